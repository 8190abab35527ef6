"""Operators that put values where they are told to: scatters, tensors with a part replaced."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from ..kernels.accumulators import counted_in, lowest
from ..kernels.nests import Lazy, Scalar, Value, Writing
from ..kernels.pen import Pen
from ..program.arrays import FLOATING, Array, expanded, part, shape, unsqueezed, whole, without
from ..program.calls import Call
from ..program.sizes import ZERO, count
from ..program.values import ONE, CannotWrite, Dims, broadcast
from .gathers import index_at
from .movement import axis_names, from_start, replaced, slice_start
from .scans import scan

MOST_SEARCHED = 4096
"""Indices that every element of a result looks through."""
MOST_LOOKS = 1 << 26
"""Indices that all elements of a result look through: some 15 million warp instructions, of the 40
million that a call may execute on the simulated device."""
_KINDS = {"add": "sum", "multiply": "prod"}
"""Names that scatter has for what scatter_reduce calls otherwise."""
_BITS = {
    "float64": ("unsigned long long", "__double_as_longlong", "__longlong_as_double"),
    "float32": ("unsigned", "__float_as_uint", "__uint_as_float"),
    "int64": ("unsigned long long", "static_cast<unsigned long long>", "static_cast<long long>"),
    "int32": ("unsigned", "static_cast<unsigned>", "static_cast<int>"),
}
"""Types that atomics work on: what holds their bits, and what makes one of the other."""


@dataclass(frozen=True, eq=False)
class _Scatter:
    """What a call puts where: each element of `values`, at another place along one axis."""

    array: Array
    """What is there before."""
    index: Array
    """Of all axes: the place along the axis."""
    values: Array
    axis: int
    kind: str
    """put, sum, mean, prod, amax or amin."""
    included: bool
    """Whether what is there before takes part."""
    factor: float
    """Of the values."""

    @property
    def counts(self) -> bool:
        """Whether it matters how many values a place is given."""
        return self.kind == "mean" or not self.included

    def taken(self, pen: Pen, spot: Sequence[str]) -> str:
        """Return the text of the value at a spot of the index."""
        text = pen.load(self.values, spot, "source")
        if self.factor == 1:
            return text
        is_whole = self.array.dtype not in FLOATING
        written = str(int(self.factor)) if is_whole else pen.number(str(self.factor), "alpha")
        return f"{written} * {text}"

    def put(self, pen: Pen, text: str) -> None:
        """Write what becomes of `value` where another is put at its place."""
        if self.kind == "put":
            pen.line(f"value = {text};")
        elif self.kind in ("sum", "mean", "prod"):
            pen.line(f"value {'*' if self.kind == 'prod' else '+'}= {text};")
        elif self.kind in ("amax", "amin"):
            pen.line(f"const {counted_in(self.array.dtype)} other = {text};")
            # What is no number stays.
            beyond = f"other {'>' if self.kind == 'amax' else '<'} value"
            undefined = " || other != other" if self.array.dtype in FLOATING else ""
            pen.line(f"if ({beyond}{undefined}) value = other;")
        else:
            raise CannotWrite(f"the reduction {self.kind} of a scatter is not written")

    def finish(self, value: str, own: str) -> str:
        """Return the text of a result of which `found` values were counted."""
        if self.kind == "mean":
            # Of whole numbers the next one below; a quotient in C++ is the next towards zero.
            whole = self.array.dtype not in FLOATING
            above = f" - ({value} % found + found) % found"
            value = f"({value}{above}) / found" if whole else f"{value} / found"
        return f"found > 0 ? {value} : {own}"


def _scatter(write: Writing, call: Call) -> Value:
    asked = _asked(write, call)
    if not _searches_long(asked.array.dims, (asked.index.dims[asked.axis],)):
        return _searched(write, call, asked)
    if asked.kind == "put":
        return _scattered_last(write, call, asked)
    if asked.array.dtype == "bool":
        return _searched(write, call, asked)
    return _put_together(write, call, asked)


def _searches_long(results: Dims, indices: Dims) -> bool:
    """Say whether it takes long for each result to look through the indices for its own."""
    looks = count(indices).full
    return looks > MOST_SEARCHED or looks * count(results).full > MOST_LOOKS


def _asked(write: Writing, call: Call) -> _Scatter:
    array, named = write.array(call.args[0]), call.args[2]
    if not isinstance(named, Array | Lazy):
        named = _number(named, (ONE,), "int64")
    index = write.array(named)
    rank = len(array.dims)
    axis = call.axis(1, "dim", rank)
    source = call.get(3, "src", call.get(3, "value"))
    if source is None:
        source = call.kwargs.get("value", call.kwargs.get("source"))
    if not isinstance(source, Array | Lazy):
        source = _number(source, index.dims, array.dtype)
    values = write.array(source)
    if call.base.startswith("index"):
        size, step = (*index.dims, ONE)[0], (*index.strides, ZERO)[0]
        along = tuple(size if each == axis else ONE for each in range(rank))
        steps = tuple(step if each == axis else ZERO for each in range(rank))
        index = expanded(replace(index, dims=along, strides=steps), values.dims)
    kind = "put" if "reduce" not in call.base else call.get(4, "reduce")
    kind = call.kwargs.get("reduce", "sum" if call.base.endswith("_add") else kind)
    return _Scatter(
        array, index, values, axis, _KINDS.get(kind, kind),
        included=bool(call.kwargs.get("include_self", True)),
        factor=float(call.kwargs.get("alpha", 1)),
    )  # fmt: skip


def _number(number: Any, dims: Dims, dtype: str) -> Lazy:
    """Return what holds one number everywhere."""
    return Lazy(dims, dtype, (Scalar(number),), lambda t: t[0], False, "fill")


def _searched(write: Writing, call: Call, asked: _Scatter) -> Value:
    """Each element of the result looks for what is put there: right without atomics."""
    array, index, axis = asked.array, asked.index, asked.axis
    rank = len(array.dims)
    out = write.new(call.name, array.dims, array.dtype)
    pen = write.pen(call.base)
    here = pen.one_thread_each(out.dims, axis_names(rank))
    own = pen.load(array, here)
    start = own if asked.included else _start(asked.kind, array.dtype)
    pen.line(f"{counted_in(array.dtype)} value = {start};")
    if asked.counts:
        pen.line(f"index_t found = {int(asked.included)};")
    inside = [
        f"{here[other]} < {pen.size(index.dims[other])}" for other in range(rank)
        if other != axis and not index.dims[other].same_as(array.dims[other])
    ]  # fmt: skip
    with pen.block(f"if ({' && '.join(inside) or 'true'})"), pen.loops(
        [index.dims[axis]], ["k"]
    ) as (k,):
        spot = [k if other == axis else here[other] for other in range(rank)]
        taken = asked.taken(pen, spot)
        with pen.block(f"if ({pen.load(index, spot, 'index')} == {here[axis]})"):
            asked.put(pen, taken)
            if asked.counts:
                pen.line("++found;")
    pen.store(out, here, asked.finish("value", own) if asked.counts else "value")
    write.launch(pen)
    return out


def _put_together(write: Writing, call: Call, asked: _Scatter) -> Value:
    """Each value goes to its place by an atomic, whatever order they come in."""
    array, index, title = asked.array, asked.index, write.title
    total = _before(write, call.name, array, None if asked.included else (
        _start(asked.kind, array.dtype)))  # fmt: skip
    found = write.new(f"{call.name}_found", array.dims, "int32")
    if asked.counts:
        write.title = f"{title}: how many values each place has"
        write.assign(found, write.apply("copy", int(asked.included), dtype="int32"))
    write.title = f"{title}: each of {shape(index.dims)} values to its place in {shape(array.dims)}"
    pen = write.pen(f"{call.base}_atomic")
    here = pen.one_thread_each(index.dims, axis_names(len(index.dims)))
    target = replaced(here, asked.axis, index_at(pen, index, here, None))
    element = pen.element(total, target, "out", written=True)
    taken = asked.taken(pen, here)
    if asked.kind in ("sum", "mean"):
        pen.line(_added(total.dtype, element, taken))
    elif asked.kind in ("amax", "amin") and total.dtype not in FLOATING:
        pen.line(f"atomic{asked.kind[1:].capitalize()}(&{element}, {taken});")
    else:
        _exchange(pen, asked, total.dtype, element, taken)
    if asked.counts:
        pen.line(f"atomicAdd(&{pen.element(found, target, 'counted', written=True)}, 1);")
    write.launch(pen)
    write.title = title
    if not asked.counts:
        return _as_before(write, call.name, total, array)
    out = write.new(call.name, array.dims, array.dtype)
    pen = write.pen(f"{call.base}_finish")
    here = pen.one_thread_each(out.dims, axis_names(len(out.dims)))
    pen.line(f"const int found = {pen.load(found, here, 'counted')};")
    pen.store(out, here, asked.finish(pen.load(total, here, "total"), pen.load(array, here)))
    write.launch(pen)
    return out


def _before(write: Writing, name: str, array: Array, start: str | None = None) -> Array:
    """Return what values are put together with: a copy, or a number in each place.

    It is of a type that atomics work on.
    """
    dtype = array.dtype if array.dtype in _BITS else (
        "float32" if array.dtype in FLOATING else "int64")  # fmt: skip
    total = write.new(name, array.dims, dtype)
    title = write.title
    write.title = f"{title}: what is there before"
    if start is not None:
        write.assign(total, Lazy(array.dims, dtype, (), lambda _: start, False, "fill"))
    else:
        write.assign(total, array if dtype == array.dtype else (
            write.apply("copy", array, dtype=dtype)))  # fmt: skip
    write.title = title
    return total


def _as_before(write: Writing, name: str, total: Array, array: Array) -> Array:
    """Return what values were put together to, of the type that was there before."""
    if total.dtype == array.dtype:
        return total
    return write.array(write.apply("copy", total, dtype=array.dtype), name)


def _added(dtype: str, element: str, text: str) -> str:
    """Return the statement that adds a number to an element, whoever else does so."""
    if dtype != "int64":
        return f"atomicAdd(&{element}, {text});"
    bits, into, _ = _BITS[dtype]  # Sums of whole numbers are the same with a sign and without.
    return f"atomicAdd(reinterpret_cast<{bits}*>(&{element}), {into}({text}));"


def _exchange(pen: Pen, asked: _Scatter, dtype: str, element: str, text: str) -> None:
    """Write what puts a value together with an element where CUDA has no atomic for that."""
    bits, into, back = _BITS[dtype]
    pen.line(f"{bits}* const place = reinterpret_cast<{bits}*>(&{element});")
    pen.line(f"{bits} now = *place;")
    with pen.block("while (true)"):
        pen.line(f"const {bits} seen = now;")
        pen.line(f"{counted_in(dtype)} value = {back}(seen);")
        asked.put(pen, text)
        pen.line(f"now = atomicCAS(place, seen, {into}(value));")
        pen.line("if (now == seen) break;  // Nobody has put another there meanwhile.")


def _scattered_last(write: Writing, call: Call, asked: _Scatter) -> Value:
    """Find which value comes last for each place, and put that there."""
    array, index, axis = asked.array, asked.index, asked.axis
    rank, title = len(array.dims), write.title
    last = write.new(f"{call.name}_last", array.dims, "int64")
    write.title = f"{title}: no value for any place yet"
    write.assign(last, write.apply("copy", -1, dtype="int64"))
    write.title = f"{title}: which of {shape(index.dims)} comes last at each of {shape(array.dims)}"
    pen = write.pen(f"{call.base}_last")
    here = pen.one_thread_each(index.dims, axis_names(rank))
    target = replaced(here, axis, index_at(pen, index, here, None))
    element = pen.element(last, target, "last", written=True)
    pen.line(f"atomicMax(&{element}, static_cast<long long>({here[axis]}));")
    write.launch(pen)
    write.title = title
    out = write.new(call.name, array.dims, array.dtype)
    pen = write.pen(call.base)
    here = pen.one_thread_each(out.dims, axis_names(rank))
    pen.line(f"const index_t last = {pen.load(last, here, 'chosen')};")
    pen.line(f"{counted_in(array.dtype)} value = {pen.load(array, here)};")
    taken = asked.taken(pen, replaced(here, axis, "last"))
    pen.line(f"if (last >= 0) value = {taken};")
    pen.store(out, here, "value")
    write.launch(pen)
    return out


def _start(kind: str, dtype: str) -> str:
    if kind in ("amax", "amin"):
        return lowest(kind[1:], dtype)
    return "1" if kind == "prod" else "0"


def _index_put(write: Writing, call: Call) -> Value:
    array = write.array(call.args[0], call.name)
    if any(not isinstance(each, Array | Lazy | None) for each in call.args[1]):
        raise CannotWrite(f"{call.where} with a number among its places is not written")
    given = [None if each is None else write.array(each) for each in call.args[1]]
    adds = call.flag(3, "accumulate")
    if any(each is not None and each.dtype in ("bool", "uint8") for each in given):
        return _put_where(write, call, array, given, adds)
    given += [None] * (len(array.dims) - len(given))
    places = [axis for axis, each in enumerate(given) if each is not None]
    indices = {axis: each for axis, each in enumerate(given) if each is not None}
    shape = broadcast([each.dims for each in indices.values()])
    together = places == list(range(places[0], places[-1] + 1))
    first = places[0] if together else 0
    rest = [axis for axis in range(len(array.dims)) if axis not in indices]
    room = [*(array.dims[axis] for axis in rest[:first]), *shape,
            *(array.dims[axis] for axis in rest[first:])]  # fmt: skip
    values = expanded(write.array(call.args[2]), tuple(room))
    if _searches_long(array.dims, shape) and not (adds and array.dtype == "bool"):
        put = _added_up if adds else _put_last
        return put(write, call, array, indices, values, (first, shape))
    out = write.new(call.name, array.dims, array.dtype)
    pen = write.pen("index_put")
    here = pen.one_thread_each(out.dims, axis_names(len(out.dims)))
    pen.line(f"{counted_in(array.dtype)} value = {pen.load(array, here)};")
    with pen.loops(shape, ("p", "q", "r", "s")[: len(shape)]) as spot:
        found = [
            f"{index_at(pen, expanded(index, shape), spot, array.dims[axis])} == {here[axis]}"
            for axis, index in indices.items()
        ]
        source = [*(here[axis] for axis in rest[:first]), *spot,
                  *(here[axis] for axis in rest[first:])]  # fmt: skip
        taken = pen.load(values, source, "values")
        pen.line(f"if ({' && '.join(found)}) value {'+=' if adds else '='} {taken};")
    pen.store(out, here, "value")
    write.launch(pen)
    return out


Indices = Mapping[int, Array]
"""The index of each axis that has one."""


def _added_up(
    write: Writing, call: Call, array: Array, indices: Indices, values: Array,
    where: tuple[int, Dims],
) -> Array:  # fmt: skip
    """Add each value to the place that it is meant for; `where` the indices' axes are in it."""
    first, shape = where
    out = _before(write, call.name, array)
    pen = write.pen("index_put_add")
    here = pen.one_thread_each(values.dims, axis_names(len(values.dims)))
    spot = here[first : first + len(shape)]
    rest = iter([*here[:first], *here[first + len(shape) :]])
    at = _places(pen, array, indices, spot, shape)
    target = [at[axis] if axis in at else next(rest) for axis in range(len(array.dims))]
    element = pen.element(out, target, "out", written=True)
    pen.line(_added(out.dtype, element, pen.load(values, here, "values")))
    write.launch(pen)
    return _as_before(write, call.name, out, array)


def _put_last(
    write: Writing, call: Call, array: Array, indices: Indices, values: Array,
    where: tuple[int, Dims],
) -> Array:  # fmt: skip
    """Find which value comes last for each place, and put that there."""
    first, shape = where
    title = write.title
    last = write.new(f"{call.name}_last", tuple(array.dims[axis] for axis in indices), "int64")
    write.title = f"{title}: no value for any place yet"
    write.assign(last, write.apply("copy", -1, dtype="int64"))
    write.title = f"{title}: the last value of each place"
    pen = write.pen("index_put_last")
    spot = pen.one_thread_each(shape, axis_names(len(shape)))
    flat = "0"
    for dim, index in zip(shape, spot, strict=True):
        flat = index if flat == "0" else f"({flat}) * {pen.size(dim, 'width')} + {index}"
    at = _places(pen, array, indices, spot, shape)
    element = pen.element(last, [*at.values()], "last", written=True)
    pen.line(f"atomicMax(&{element}, static_cast<long long>({flat}));")
    write.launch(pen)
    write.title = title
    out = write.new(call.name, array.dims, array.dtype)
    pen = write.pen("index_put")
    here = pen.one_thread_each(out.dims, axis_names(len(out.dims)))
    pen.line(f"const index_t last = {pen.load(last, [here[axis] for axis in indices], 'chosen')};")
    pen.line(f"{counted_in(array.dtype)} value = {pen.load(array, here)};")
    with pen.block("if (last >= 0)"):
        rest = [each for axis, each in enumerate(here) if axis not in indices]
        found = pen.split("last", shape, ("p", "q", "r", "s")[: len(shape)])
        source = [*rest[:first], *found, *rest[first:]]
        pen.line(f"value = {pen.load(values, source, 'values')};")
    pen.store(out, here, "value")
    write.launch(pen)
    return out


def _places(
    pen: Pen, array: Array, indices: Indices, spot: Sequence[str], shape: Dims
) -> dict[int, str]:
    """Write the place along each indexed axis that the indices say at a spot."""
    return {
        axis: index_at(pen, expanded(index, shape), spot, array.dims[axis])
        for axis, index in indices.items()
    }


def _put_where(
    write: Writing, call: Call, array: Array, given: Sequence[Array | None], adds: bool
) -> Value:
    """Put values where a mask over the first axes says so."""
    mask, value = given[0], call.args[2]
    deep = len(value.dims) if isinstance(value, Array | Lazy) else 0
    if mask is None or len(given) > 1 or deep > len(array.dims) - len(mask.dims):
        raise CannotWrite(
            f"{call.where} puts as many values as a mask has places: that hangs on its values; "
            "use torch.where"
        )
    for _ in range(len(array.dims) - len(mask.dims)):
        mask = unsqueezed(mask, len(mask.dims))
    wanted = write.apply("add", array, value) if adds else value
    return write.apply("where", mask, wanted, array, dtype=array.dtype)


def _masked_scatter(write: Writing, call: Call) -> Value:
    """The n-th place of a mask is given the n-th of the values."""
    array = write.array(call.args[0], call.name)
    mask = expanded(write.array(call.args[1]), array.dims)
    source = write.contiguous(call.args[2])
    size = (count(array.dims),)
    flat = write.reshape(write.array(write.apply("copy", mask, dtype="int64")), size)
    counted = replace(call, op="aten.cumsum.default", args=(flat, 0), kwargs={}, dims=size,
                      dtype="int64")  # fmt: skip
    before = write.array(write.reshape(scan(write, counted), array.dims))
    values = whole(source.storage, (count(source.dims),))
    out = write.new(call.name, array.dims, array.dtype)
    pen = write.pen("masked_scatter")
    here = pen.one_thread_each(out.dims, axis_names(len(out.dims)))
    chosen = pen.load(values, [f"{pen.load(before, here, 'before')} - 1"], "values")
    pen.store(out, here, f"{pen.load(mask, here, 'mask')} ? {chosen} : {pen.load(array, here)}")
    write.launch(pen)
    return out


def _part_put(write: Writing, call: Call) -> Value:
    """A copy, a part of which is another tensor."""
    array, source = write.array(call.args[0], call.name), call.args[1]
    rank = len(array.dims)
    out = write.new(call.name, array.dims, array.dtype)
    write.assign(out, array)
    axis = call.axis(2, "dim", rank, 0)
    if call.base == "slice_scatter":
        begin = slice_start(call, 3, array.dims[axis])
        step = call.get(5, "step", 1)
        if not isinstance(step, int):
            raise CannotWrite(f"the step of {call.where} differs between the variants")
        write.assign(part(out, axis, begin, source.dims[axis], step), source)
    else:
        begin = from_start(call.get(3, "index"), array.dims[axis])
        write.assign(without(part(out, axis, begin, ONE), [axis]), source)
    return out


OPERATORS: dict[str, Any] = {
    **dict.fromkeys(
        ("scatter", "scatter_add", "scatter_reduce", "index_add", "index_copy", "index_reduce"),
        _scatter),
    **dict.fromkeys(("index_put", "_index_put_impl", "_unsafe_index_put"), _index_put),
    "masked_scatter": _masked_scatter, "slice_scatter": _part_put, "select_scatter": _part_put,
}  # fmt: skip
