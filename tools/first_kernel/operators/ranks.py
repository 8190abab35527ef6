"""Operators that find the rank of elements, or the element of one: sorts, the k-th, medians."""

from __future__ import annotations

from ..kernels.accumulators import counted_in
from ..kernels.nests import Results, Writing
from ..kernels.pen import Pen
from ..program.arrays import FLOATING, Array, shape, without
from ..program.calls import Call
from ..program.sizes import as_dim, ceil_div, count
from ..program.values import ONE, CannotWrite, Dim
from .movement import axis_names, replaced

MOST_COMPARED = 4096
"""Elements of a row, each of which is compared with all others."""
DIGITS = 256
"""Values of a digit, and threads of a block."""


def _kth(write: Writing, call: Call) -> Results:
    array = write.array(call.args[0], call.name)
    whole_of = call.base == "median" and len(call.args) < 2 and "dim" not in call.kwargs
    if whole_of:
        array = write.array(write.reshape(array, (count(array.dims),)))
    rank = len(array.dims)
    place = 2 if call.base == "kthvalue" else 1
    axis = 0 if whole_of else call.axis(place, "dim", rank, -1)
    keep = not whole_of and call.flag(place + 1, "keepdim")
    size = array.dims[axis]
    middle = write.known.named(ceil_div(size, 2))
    k_th = as_dim(call.args[1]) if call.base == "kthvalue" else middle
    dims = tuple(ONE if each == axis else dim for each, dim in enumerate(array.dims))
    values = write.new(call.name, dims, array.dtype)
    places = write.new(f"{call.name}_places", dims, "int64")
    rank_of = _selected if size.full > MOST_COMPARED else _counted
    rank_of(write, call, array, axis, k_th, (values, places))
    if keep:
        return values, places
    found = without(values, [axis]), without(places, [axis])
    return found[0] if whole_of else found


def _counted(
    write: Writing, call: Call, array: Array, axis: int, k_th: Dim, found: tuple[Array, Array]
) -> None:
    """Each element counts those that come before it: the one with k - 1 of them is the k-th."""
    values, places = found
    pen = write.pen(call.base)
    here = _count_others(pen, array, axis, "before", "<")
    target = replaced(here, axis, "0")
    with pen.block(f"if (before + 1 == {pen.size(k_th, 'wanted')})"):
        pen.store(values, target, "value", "values")
        pen.store(places, target, here[axis], "places")
    write.launch(pen)


def _count_others(pen: Pen, array: Array, axis: int, count: str, before: str) -> list[str]:
    """Begin a kernel with a thread for each element, which counts those of its row before it.

    Args:
        count: name of what is counted in.
        before: how another compares with an element that it comes before.

    Returns the element's indices; it is `value` in what follows.
    """
    here = pen.one_thread_each(array.dims, axis_names(len(array.dims)))
    ctype = counted_in(array.dtype)
    pen.line(f"const {ctype} value = {pen.load(array, here)};")
    pen.line(f"index_t {count} = 0;")
    with pen.loops([array.dims[axis]], ["k"]) as (k,):
        pen.line(f"const {ctype} other = {pen.load(array, replaced(here, axis, k))};")
        pen.line(f"if (other {before} value || (other == value && {k} < {here[axis]})) ++{count};")
    return here


def _begin_row(pen: Pen, array: Array, axis: int) -> list[str]:
    """Begin a kernel with a block for each row along an axis; return the first element's indices.
    """
    names = axis_names(len(array.dims))
    others = [each for each in range(len(array.dims)) if each != axis]
    rows = [array.dims[each] for each in others]
    here = pen.one_block_each(rows, [names[each] for each in others])
    return [*here[:axis], "0", *here[axis:]]


def _selected(
    write: Writing, call: Call, array: Array, axis: int, k_th: Dim, found: tuple[Array, Array]
) -> None:
    """A block finds the k-th of a row digit by digit: it counts how many have each next digit."""
    values, places = found
    many, (bits, ctype) = array.dims[axis], _key_type(array.dtype)
    pen = write.pen(f"{call.base}_select", f"{write.title}: a block for each row of "
                    f"{many.full} in {shape(array.dims)}")  # fmt: skip
    here = _begin_row(pen, array, axis)
    element = pen.load(array, replaced(here, axis, "k"))
    size = pen.size(many, "k_size")
    stepped = f"for (index_t k = threadIdx.x; k < {size}; k += blockDim.x)"
    pen.line(f"__shared__ int counted[{DIGITS}], next;")
    pen.line("__shared__ index_t rest;")
    _write_keys(pen, array.dtype, ctype, bits, element, comes_first=call.base == "median")
    pen.line(f"index_t left = {pen.size(k_th, 'wanted')};")
    if call.base == "median" and array.dtype in FLOATING:
        pen.line("bool undefined = false;")
        with pen.block(stepped):
            pen.line("undefined = undefined || key_of(k) == 0;")
        pen.line("if (__syncthreads_or(undefined)) left = 1;")
    pen.line("// Which digits it begins with, and how many-th it is of those that begin with them.")
    pen.line(f"{ctype} chosen = 0;")
    with pen.block(f"for (int shift = {bits - 8}; shift >= 0; shift -= 8)"):
        pen.line("counted[threadIdx.x] = 0;")
        pen.line("__syncthreads();")
        with pen.block(stepped):
            pen.line(f"const {ctype} key = key_of(k);")
            pen.line(f"const int digit = static_cast<int>(key >> shift & {DIGITS - 1});")
            pen.line("if ((key ^ chosen) >> shift >> 8 == 0) atomicAdd(&counted[digit], 1);")
        pen.line("__syncthreads();")
        with pen.block("if (threadIdx.x == 0)"):
            pen.line("int digit = 0;")
            stop = f"digit < {DIGITS - 1} && counted[digit] < left"
            pen.line(f"for (; {stop}; ++digit) left -= counted[digit];")
            pen.line("next = digit;")
            pen.line("rest = left;")
        pen.line("__syncthreads();")
        pen.line(f"chosen |= static_cast<{ctype}>(next) << shift;")
        pen.line("left = rest;")
    pen.line("// Equal ones come in their order: each thread counts those in a part of the row.")
    pen.line(f"const index_t part = ({size} + blockDim.x - 1) / blockDim.x;")
    pen.line("const index_t begin = threadIdx.x * part;")
    pen.line(f"const index_t end = begin + part < {size} ? begin + part : {size};")
    pen.line("int equal = 0;")
    pen.line("for (index_t k = begin; k < end; ++k) equal += key_of(k) == chosen;")
    pen.line("counted[threadIdx.x] = equal;")
    pen.line("__syncthreads();")
    pen.line("for (int other = 0; other < threadIdx.x; ++other) left -= counted[other];")
    with pen.block("for (index_t k = begin; k < end; ++k)"), pen.block(
        "if (key_of(k) == chosen && --left == 0)"
    ):
        pen.store(values, here, element, "values")
        pen.store(places, here, "k", "places")
    write.launch(pen)


def _key_type(dtype: str) -> tuple[int, str]:
    """Return how many bits the whole numbers have that are in the order of a type's, and theirs."""
    return (64, "unsigned long long") if dtype in ("float64", "int64") else (32, "unsigned")


def _write_keys(
    pen: Pen, dtype: str, ctype: str, bits: int, element: str, *, comes_first: bool
) -> None:
    """Write a function that gives whole numbers in the order of a row's elements.

    Args:
        comes_first: whether what is no number comes before all, not after them.
    """
    one = "1ull" if bits == 64 else "1u"
    with pen.block("const auto key_of = [&](index_t k)"):
        if dtype not in FLOATING:
            pen.line(f"return static_cast<{ctype}>({element}) ^ ({one} << {bits - 1});")
        else:
            read = "__double_as_longlong" if bits == 64 else "__float_as_uint"
            pen.line(f"const float value = {element};")
            edge = f"static_cast<{ctype}>({0 if comes_first else -1})"
            pen.line(f"if (value != value) return {edge};")
            pen.line(f"const {ctype} bits = {read}(value + 0.0f);  // There is no -0.")
            pen.line(f"return bits >> {bits - 1} ? ~bits : bits | ({one} << {bits - 1});")
    pen.lines[-1] += ";"


def _sorted(write: Writing, call: Call) -> Results:
    array = write.array(call.args[0], call.name)
    is_topk = call.base == "topk"
    position = 2 if is_topk else 1
    axis = call.axis(position, "dim", len(array.dims), -1) if not isinstance(
        call.get(position, "dim", -1), bool) else len(array.dims) - 1  # fmt: skip
    descending = call.flag(3, "largest", True) if is_topk else call.flag(2, "descending")
    dims = call.dims if call.base != "argsort" else array.dims
    if dims is None:
        raise CannotWrite(f"{call.where}: the shape of its result is not known")
    values = write.new(call.name, dims, array.dtype)
    places = write.new(f"{call.name}_places", dims, "int64")
    put = _in_steps if array.dims[axis].full > MOST_COMPARED else _by_counts
    put(write, call, array, axis, descending, (values, places))
    return places if call.base == "argsort" else (values, places)


def _by_counts(
    write: Writing, call: Call, array: Array, axis: int, descending: bool,
    found: tuple[Array, Array],
) -> None:  # fmt: skip
    """Each element counts those that come before it: that is its place."""
    values, places = found
    pen = write.pen(call.base)
    here = _count_others(pen, array, axis, "place", ">" if descending else "<")
    out = replaced(here, axis, "place")
    with pen.block(f"if (place < {pen.size(values.dims[axis], 'kept')})"):
        pen.store(values, out, "value", "values")
        pen.store(places, out, here[axis], "places")
    write.launch(pen)


def _in_steps(
    write: Writing, call: Call, array: Array, axis: int, descending: bool,
    found: tuple[Array, Array],
) -> None:  # fmt: skip
    """A block puts the places of a row in order, pair by pair, in the steps of a bitonic network.

    The smaller of a pair always comes first, so that what lies beyond the row's end stays there.
    """
    values, places = found
    order = write.new(f"{call.name}_order", array.dims, "int64")
    bits, ctype = _key_type(array.dtype)
    pen = write.pen(f"{call.base}_row", f"{write.title}: a block for each row of "
                    f"{array.dims[axis].full} in {shape(array.dims)}")  # fmt: skip
    here = _begin_row(pen, array, axis)
    size = pen.size(array.dims[axis], "k_size")
    element = pen.load(array, replaced(here, axis, "k"))
    _write_keys(pen, array.dtype, ctype, bits, element, comes_first=False)
    at = {name: replaced(here, axis, name) for name in ("k", "low", "high")}
    with pen.block(f"for (index_t k = threadIdx.x; k < {size}; k += blockDim.x)"):
        pen.store(order, at["k"], "k", "order")
    pen.line("index_t whole = 2;")
    pen.line(f"while (whole < {size}) whole *= 2;")
    with pen.block("for (index_t merged = 2; merged <= whole; merged *= 2)"), pen.block(
        "for (index_t step = merged / 2; step > 0; step /= 2)"
    ):
        pen.line("__syncthreads();")
        with pen.block("for (index_t k = threadIdx.x; k < whole / 2; k += blockDim.x)"):
            pen.line("const index_t low = k / step * 2 * step + k % step;")
            mirrored = "low + merged - 1 - 2 * (k % step)"
            pen.line(f"const index_t high = 2 * step == merged ? {mirrored} : low + step;")
            pen.line(f"if (high >= {size}) continue;")
            pen.line(f"const index_t one = {pen.load(order, at['low'])};")
            pen.line(f"const index_t other = {pen.load(order, at['high'])};")
            pen.line(f"const {ctype} key = key_of(one), other_key = key_of(other);")
            after = "<" if descending else ">"
            later = f"key {after} other_key || (key == other_key && one > other)"
            with pen.block(f"if ({later})"):
                pen.store(order, at["low"], "other", "order")
                pen.store(order, at["high"], "one", "order")
    pen.line("__syncthreads();")
    with pen.block(
        f"for (index_t place = threadIdx.x; place < {pen.size(values.dims[axis], 'kept')}; "
        "place += blockDim.x)"
    ):
        out = replaced(here, axis, "place")
        pen.line(f"const index_t k = {pen.load(order, out)};")
        pen.store(values, out, element, "values")
        pen.store(places, out, "k", "places")
    write.launch(pen)


OPERATORS = {
    "kthvalue": _kth, "median": _kth, "sort": _sorted, "topk": _sorted, "argsort": _sorted,
}  # fmt: skip
