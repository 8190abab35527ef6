"""Operators whose every result looks for its values: scatters, searches, the k-th of many."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from ..kernels.accumulators import lowest
from ..kernels.nests import Lazy, Results, Scalar, Value, Writing
from ..kernels.pen import Pen
from ..program.arrays import FLOATING, Array, expanded, part, unsqueezed, whole, without
from ..program.calls import Call
from ..program.sizes import ZERO, as_dim, ceil_div, count, minus
from ..program.values import ONE, CannotWrite, Dims, broadcast
from .gathers import index_at
from .movement import axis_names, from_start, slice_start
from .scans import scan

MOST_SEARCHED = 4096
"""Indices that every element of a result looks through."""
_ATOMIC = ("float64", "float32", "int32")
_KINDS = {"add": "sum", "multiply": "prod"}
"""Names that scatter has for what scatter_reduce calls otherwise."""


def _counted_in(dtype: str) -> str:
    """Return the C type in which values are put together."""
    return "float" if dtype in FLOATING else "long long"


def _scatter(write: Writing, call: Call) -> Value:
    """Each element of the result looks for what is put there: right without atomics."""
    array, index = write.array(call.args[0]), write.array(call.args[2])
    rank = len(array.dims)
    axis = call.axis(1, "dim", rank)
    source = call.get(3, "src", call.get(3, "value"))
    if source is None:
        source = call.kwargs.get("value", call.kwargs.get("source"))
    if not isinstance(source, Array | Lazy):
        source = Lazy(index.dims, array.dtype, (Scalar(source),), lambda t: t[0], False, "fill")
    values = write.array(source)
    if call.base.startswith("index"):
        along = tuple(index.dims[0] if each == axis else ONE for each in range(rank))
        steps = tuple(index.strides[0] if each == axis else ZERO for each in range(rank))
        index = expanded(replace(index, dims=along, strides=steps), values.dims)
    kind = "put" if "reduce" not in call.base else call.get(4, "reduce")
    kind = call.kwargs.get("reduce", "sum" if call.base.endswith("_add") else kind)
    kind = _KINDS.get(kind, kind)
    included = bool(call.kwargs.get("include_self", True))
    out = write.new(call.name, array.dims, array.dtype)
    pen = write.pen(call.base)
    here = pen.one_thread_each(out.dims, axis_names(rank))
    own = pen.load(array, here)
    counts = kind == "mean" or not included
    start = own if included else _start(kind, array.dtype)
    pen.line(f"{_counted_in(array.dtype)} value = {start};")
    if counts:
        pen.line(f"index_t found = {int(included)};")
    inside = [
        f"{here[other]} < {pen.size(index.dims[other])}" for other in range(rank)
        if other != axis and not index.dims[other].same_as(array.dims[other])
    ]  # fmt: skip
    with pen.block(f"if ({' && '.join(inside) or 'true'})"), pen.loops(
        [index.dims[axis]], ["k"]
    ) as (k,):
        spot = [k if other == axis else here[other] for other in range(rank)]
        taken = pen.load(values, spot, "source")
        if (factor := call.kwargs.get("alpha", 1)) != 1:
            whole = array.dtype not in FLOATING
            written = str(int(factor)) if whole else pen.number(str(float(factor)), "alpha")
            taken = f"{written} * {taken}"
        with pen.block(f"if ({pen.load(index, spot, 'index')} == {here[axis]})"):
            _put_together(pen, kind, array.dtype, taken)
            if counts:
                pen.line("++found;")
    if counts:
        last = "value / found" if kind == "mean" else "value"
        pen.store(out, here, f"found > 0 ? {last} : {own}")
    else:
        pen.store(out, here, "value")
    write.launch(pen)
    return out


def _start(kind: str, dtype: str) -> str:
    if kind in ("amax", "amin"):
        return lowest(kind[1:], dtype)
    return "1" if kind == "prod" else "0"


def _put_together(pen: Pen, kind: str, dtype: str, taken: str) -> None:
    """Write what becomes of `value` where another is put at its place."""
    if kind == "put":
        pen.line(f"value = {taken};")
    elif kind in ("sum", "mean", "prod"):
        pen.line(f"value {'*' if kind == 'prod' else '+'}= {taken};")
    elif kind in ("amax", "amin"):
        pen.line(f"const {_counted_in(dtype)} other = {taken};")
        # What is no number stays.
        beyond = f"other {'>' if kind == 'amax' else '<'} value"
        undefined = " || other != other" if dtype in FLOATING else ""
        pen.line(f"if ({beyond}{undefined}) value = other;")
    else:
        raise CannotWrite(f"the reduction {kind} of a scatter is not written")


def _index_put(write: Writing, call: Call) -> Value:
    array = write.array(call.args[0], call.name)
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
    if count(shape).full > MOST_SEARCHED and (not adds or array.dtype in _ATOMIC):
        put = _added_up if adds else _put_last
        return put(write, call, array, indices, values, (first, shape))
    out = write.new(call.name, array.dims, array.dtype)
    pen = write.pen("index_put")
    here = pen.one_thread_each(out.dims, axis_names(len(out.dims)))
    pen.line(f"{_counted_in(array.dtype)} value = {pen.load(array, here)};")
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
    out = write.new(call.name, array.dims, array.dtype)
    write.assign(out, array)
    pen = write.pen("index_put_add")
    here = pen.one_thread_each(values.dims, axis_names(len(values.dims)))
    spot = here[first : first + len(shape)]
    rest = iter([*here[:first], *here[first + len(shape) :]])
    at = _places(pen, array, indices, spot, shape)
    target = [at[axis] if axis in at else next(rest) for axis in range(len(array.dims))]
    element = pen.element(out, target, "out", written=True)
    pen.line(f"atomicAdd(&{element}, {pen.load(values, here, 'values')});")
    write.launch(pen)
    return out


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
    pen.line(f"{_counted_in(array.dtype)} value = {pen.load(array, here)};")
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


def _search(write: Writing, call: Call) -> Value:
    """How many of a row of sorted numbers come before each value."""
    value, edges = (write.array(each) for each in call.args[:2])
    if call.base == "searchsorted":
        value, edges = edges, value
    if call.kwargs.get("sorter") is not None:
        raise CannotWrite(f"{call.where} with a sorter is not written")
    right = call.kwargs.get("right") or call.kwargs.get("side") == "right"
    out = write.new(call.name, value.dims, call.dtype or "int64")
    pen = write.pen(call.base)
    rank = len(value.dims)
    here = pen.one_thread_each(value.dims or (ONE,), axis_names(max(rank, 1)))[:rank]
    rows = here[: len(edges.dims) - 1]
    pen.line(f"const {_counted_in(value.dtype)} value = {pen.load(value, here)};")
    pen.line("index_t before = 0;")
    with pen.loops(edges.dims[-1:], ["k"]) as (k,):
        compare = "<=" if right else "<"
        pen.line(f"if ({pen.load(edges, [*rows, k], 'edges')} {compare} value) ++before;")
    pen.store(out, here, "before")
    write.launch(pen)
    return out


def _kth(write: Writing, call: Call) -> Results:
    """Each element counts those that come before it: the one with k - 1 of them is the k-th."""
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
    pen = write.pen(call.base)
    here = pen.one_thread_each(array.dims, axis_names(rank))
    ctype = _counted_in(array.dtype)
    pen.line(f"const {ctype} value = {pen.load(array, here)};")
    pen.line("index_t before = 0;")
    with pen.loops([size], ["k"]) as (k,):
        other = [k if each == axis else here[each] for each in range(rank)]
        pen.line(f"const {ctype} other = {pen.load(array, other)};")
        pen.line(f"if (other < value || (other == value && {k} < {here[axis]})) ++before;")
    target = ["0" if each == axis else here[each] for each in range(rank)]
    with pen.block(f"if (before + 1 == {pen.size(k_th, 'wanted')})"):
        pen.store(values, target, "value", "values")
        pen.store(places, target, here[axis], "places")
    write.launch(pen)
    if keep:
        return values, places
    found = without(values, [axis]), without(places, [axis])
    return found[0] if whole_of else found


def _bag(write: Writing, call: Call) -> Results:
    """Sums, means or largest of the rows that a bag names."""
    table, index, begins = (write.array(each, call.name) for each in call.args[:3])
    mode, weights = call.get(4, "mode", 0), call.get(6, "per_sample_weights")
    left_out = call.get(8, "padding_idx")
    left_out = None if left_out is None or int(left_out) < 0 else int(left_out)
    bags = begins.dims[0]
    if call.flag(7, "include_last_offset"):
        bags = write.known.named(minus(bags, ONE))
    dims = (bags, table.dims[1])
    out = write.new(call.name, dims, table.dtype)
    pen = write.pen("embedding_bag")
    bag, column = pen.one_thread_each(dims, ("bag", "column"))
    total = pen.size(index.dims[0], "terms")
    many = pen.size(begins.dims[0], "offsets")
    pen.line(f"const index_t first = {pen.load(begins, [bag], 'begins')};")
    after = pen.load(begins, [f"{bag} + 1"], "begins")
    pen.line(f"const index_t last = {bag} + 1 < {many} ? {after} : {total};")
    pen.line(f"float value = {'-INFINITY' if mode == 2 else '0.0f'};")
    pen.line("index_t found = 0;")
    with pen.block("for (index_t k = first; k < last; ++k)"):
        row = index_at(pen, index, ["k"], None)
        if left_out is not None:
            pen.line(f"if ({row} == {left_out}) continue;")
        taken = pen.load(table, [row, column], "table")
        if weights is not None:
            taken += f" * {pen.load(write.array(weights), ['k'], 'weights')}"
        pen.line(f"value = fmaxf(value, {taken});" if mode == 2 else f"value += {taken};")
        pen.line("++found;")
    text = "value / found" if mode == 1 else "value"
    pen.store(out, [bag, column], f"found > 0 ? {text} : 0.0f")
    write.launch(pen)
    return out, _Unused(), _Unused(), _Unused()  # type: ignore[return-value]


class _Unused:
    """A result that serves the gradient alone."""


OPERATORS: dict[str, Any] = {
    **dict.fromkeys(
        ("scatter", "scatter_add", "scatter_reduce", "index_add", "index_copy", "index_reduce"),
        _scatter),
    **dict.fromkeys(("index_put", "_index_put_impl", "_unsafe_index_put"), _index_put),
    "masked_scatter": _masked_scatter, "slice_scatter": _part_put, "select_scatter": _part_put,
    "bucketize": _search, "searchsorted": _search, "kthvalue": _kth, "median": _kth,
    "embedding_bag": _bag, "_embedding_bag": _bag,
}  # fmt: skip
