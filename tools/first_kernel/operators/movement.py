"""Operators that move elements: views and copies."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from ..kernels.nests import Lazy, Results, Value, Writing
from ..kernels.pen import Pen
from ..program.arrays import FLOATING, Array, expanded, flipped, part, permuted, unsqueezed, without
from ..program.calls import Call
from ..program.pointwise import number
from ..program.sizes import (
    ZERO,
    as_dim,
    ceil_div,
    count,
    divided,
    literal,
    minus,
    negative,
    plus,
    same_as_zero,
    times,
    values,
)
from ..program.values import ONE, CannotWrite, Dim, Dims, IsRandom


def _same(write: Writing, call: Call) -> Value:
    if call.base in ("dropout", "alpha_dropout", "feature_dropout", "native_dropout") and (
        call.flag(2, "train") and call.number(1, "p", 0.5) > 0
    ):
        raise IsRandom(f"{call.where} in training is random: read it with --mode eval")
    value: Value = call.args[0]
    if not isinstance(value, Array | Lazy):  # A number that the program holds.
        return write.apply("copy", value, dtype=call.dtype)
    if call.dtype is not None and not _alike(value.dtype, call.dtype):
        return write.apply("copy", value, dtype=call.dtype)
    return value


def _alike(left: str, right: str) -> bool:
    # Between floating point types a value keeps what precision it has, or is given that of double.
    return left == right or (left in FLOATING and right in FLOATING and right != "float64")


def _contiguous(write: Writing, call: Call) -> Value:
    # A copy, where PyTorch makes one, shares no memory; otherwise it is the value itself.
    value: Value = call.args[0]
    if isinstance(value, Array) and not value.is_contiguous:
        return write.contiguous(value, call.name)
    return value


def _order(call: Call, rank: int) -> list[int]:
    order = list(range(rank))
    if call.base == "permute":
        listed = call.get(1, "dims")
        return [int(axis) % rank for axis in listed]
    if call.base == "movedim":
        source, target = call.axis(1, "source", rank), call.axis(2, "destination", rank)
        order.remove(source)
        order.insert(target, source)
        return order
    if call.base in ("numpy_T",):
        return order[::-1]
    if rank < 2:
        return order
    first, second = rank - 2, rank - 1
    if call.base in ("transpose", "swapaxes", "swapdims"):
        first, second = call.axis(1, "dim0", rank), call.axis(2, "dim1", rank)
    order[first], order[second] = order[second], order[first]
    return order


def _permute(write: Writing, call: Call) -> Value:
    array = write.array(call.args[0], call.name)
    return permuted(array, _order(call, len(array.dims)))


def _reshape(write: Writing, call: Call) -> Value:
    return write.reshape(call.args[0], shape_of(call), call.name)


def shape_of(call: Call) -> Dims:
    """Return the shape of an operation's result."""
    if call.dims is None:
        raise CannotWrite(f"{call.where}: the shape of its result is not known")
    return call.dims


def _unsqueeze(write: Writing, call: Call) -> Value:
    array = write.array(call.args[0], call.name)
    return unsqueezed(array, call.axis(1, "dim", len(array.dims) + 1))


def _squeeze(write: Writing, call: Call) -> Value:
    array = write.array(call.args[0], call.name)
    axes = call.axes(1, "dim", len(array.dims))
    return without(array, [axis for axis in axes if array.dims[axis].is_one])


def _expand(write: Writing, call: Call) -> Value:
    return expanded(write.array(call.args[0], call.name), shape_of(call))


def _broadcast_tensors(write: Writing, call: Call) -> Results:
    dims = shape_of(call)
    return tuple(expanded(write.array(each), dims) for each in call.args[0])


def _select(write: Writing, call: Call) -> Value:
    array = write.array(call.args[0], call.name)
    axis = call.axis(1, "dim", len(array.dims))
    return without(part(array, axis, from_start(call.get(2, "index"), array.dims[axis]), ONE),
                   [axis])  # fmt: skip


def from_start(index: int | Dim, size: Dim) -> Dim:
    """Return an index as counted from the first."""
    found = as_dim(index)
    return plus(size, found) if found.full < 0 else found


def slice_start(call: Call, position: int, size: Dim) -> Dim:
    """Return where a slice begins."""
    start = call.get(position, "start")
    return ZERO if start is None else from_start(start, size)


def _slice(write: Writing, call: Call) -> Value:
    array = write.array(call.args[0], call.name)
    axis = call.axis(1, "dim", len(array.dims), 0)
    step = call.get(4, "step", 1)
    if not isinstance(step, int):
        raise CannotWrite(f"the step of {call.where} differs between the variants")
    begin = slice_start(call, 2, array.dims[axis])
    return part(array, axis, begin, shape_of(call)[axis], step)


def _narrow(write: Writing, call: Call) -> Value:
    array = write.array(call.args[0], call.name)
    axis = call.axis(1, "dim", len(array.dims))
    return part(array, axis, from_start(call.args[2], array.dims[axis]), shape_of(call)[axis])


def _split(write: Writing, call: Call) -> Results:
    array = write.array(call.args[0], call.name)
    axis = call.axis(2, "dim", len(array.dims), 0)
    size = array.dims[axis]
    given = call.args[1]
    if call.base == "chunk" or call.base == "tensor_split":
        if not isinstance(given, int):
            raise CannotWrite(f"{call.where} into a number of parts that differs is not written")
        given = write.known.named(ceil_div(size, given))
    if not isinstance(given, tuple):
        each = as_dim(given)
        parts, *others = values(lambda whole, one: -(-whole // one), size, each)
        if any(other != parts for other in others):
            raise CannotWrite(f"{call.where} gives {parts} parts, and others when shrunk")
        before = times(literal(parts - 1), each)
        given = (*[each] * (parts - 1), write.known.named(minus(size, before)))
    begin, found = ZERO, []
    for one in map(as_dim, given):
        found.append(part(array, axis, begin, one))
        begin = plus(begin, one)
    return tuple(found)


def _unbind(write: Writing, call: Call) -> Results:
    array = write.array(call.args[0], call.name)
    axis = call.axis(1, "dim", len(array.dims), 0)
    size = array.dims[axis]
    if not size.is_number:
        raise CannotWrite(f"{call.where} gives {size.full} parts, and others when shrunk")
    return tuple(
        without(part(array, axis, as_dim(index), ONE), [axis]) for index in range(size.full)
    )


def _as_strided(write: Writing, call: Call) -> Value:
    """Another view of all memory that a value lies in; the caller knows that PyTorch's is alike."""
    array = write.array(call.args[0], call.name)
    given = call.get(3, "storage_offset")
    strides = tuple(as_dim(each) for each in call.args[2])
    start = array.offset if given is None else as_dim(given)
    return replace(array, dims=shape_of(call), strides=strides, offset=start)


def _flip(write: Writing, call: Call) -> Value:
    array = write.array(call.args[0], call.name)
    for axis in call.axes(1, "dims", len(array.dims)):
        array = flipped(array, axis)
    return array


def _unfold(write: Writing, call: Call) -> Value:
    array = write.array(call.args[0], call.name)
    axis = call.axis(1, "dimension", len(array.dims))
    size, step = as_dim(call.args[2]), as_dim(call.args[3])
    stride = array.strides[axis]
    strides = list(array.strides)
    strides[axis] = times(stride, step)
    return replace(array, dims=shape_of(call), strides=(*strides, stride)) if size.full else array


def _diagonal(write: Writing, call: Call) -> Value:
    array = write.array(call.args[0], call.name)
    rank = len(array.dims)
    first, second = call.axis(2, "dim1", rank, 0), call.axis(3, "dim2", rank, 1)
    start = as_dim(call.get(1, "offset", 0))
    place = times(start, array.strides[second]) if start.full >= 0 else (
        times(negative(start), array.strides[first]))  # fmt: skip
    rest = permuted(array, [axis for axis in range(rank) if axis not in (first, second)])
    stride = plus(array.strides[first], array.strides[second])
    return replace(rest, dims=shape_of(call), strides=(*rest.strides, stride),
                   offset=plus(array.offset, place))  # fmt: skip


def _diag(write: Writing, call: Call) -> Value:
    array = write.array(call.args[0], call.name)
    if len(array.dims) == 2 and call.base == "diag":
        return _diagonal(write, call)
    start = call.get(1, "diagonal", call.get(1, "offset", 0))
    if not isinstance(start, int):
        raise CannotWrite(f"{call.where} with an offset that differs between the variants")
    dims = shape_of(call)
    first, second = (call.axis(k + 2, f"dim{k + 1}", len(dims), k - 2) for k in (0, 1))
    out = write.new(call.name, dims, array.dtype)
    pen = write.pen("diagonal_matrix")
    names = list(axis_names(len(dims)))
    names[first], names[second] = "row", "column"
    here = pen.one_thread_each(dims, names)
    row, column = here[first], here[second]
    rest = [index for axis, index in enumerate(here) if axis not in (first, second)]
    index = row if start >= 0 else f"{row} - {-start}"
    value = f"{column} - {row} == {start} ? {pen.load(array, [*rest, index])} : 0"
    pen.store(out, here, value)
    write.launch(pen)
    return out


def _cat(write: Writing, call: Call) -> Value:
    values = [each for each in call.args[0] if len(each.dims) > 1 or call.dims and
              len(each.dims) == len(call.dims)]  # fmt: skip
    dims = shape_of(call)
    axis = call.axis(1, "dim", len(dims), 0)
    out = write.new(call.name, dims, call.dtype or values[0].dtype)
    begin = ZERO
    for value in values:
        size = value.dims[axis]
        write.assign(part(out, axis, begin, size), value)
        begin = plus(begin, size)
    return out


def _stack(write: Writing, call: Call) -> Value:
    dims = shape_of(call)
    axis = call.axis(1, "dim", len(dims), 0)
    out = write.new(call.name, dims, call.dtype or call.args[0][0].dtype)
    for position, value in enumerate(call.args[0]):
        write.assign(without(part(out, axis, as_dim(position), ONE), [axis]), value)
    return out


def _repeat(write: Writing, call: Call) -> Value:
    array = write.array(call.args[0], call.name)
    dims = shape_of(call)
    while len(array.dims) < len(dims):
        array = unsqueezed(array, 0)

    def source(pen: Pen, here: Sequence[str]) -> list[str]:
        return [
            index if have.same_as(wanted) else "0" if have.is_one
            else f"{index} % {pen.size(have)}"
            for index, have, wanted in zip(here, array.dims, dims, strict=True)
        ]  # fmt: skip

    return moved(write, "repeat", call.name, array, dims, source)


def _repeat_interleave(write: Writing, call: Call) -> Value:
    array = write.array(call.args[0], call.name)
    times_each = call.get(1, "repeats")
    if not isinstance(times_each, int | Dim):
        raise CannotWrite(f"{call.where} by a tensor is not written")
    given = call.get(2, "dim")
    if given is None:
        array = write.array(write.reshape(array, (count(array.dims),)))
    axis = 0 if given is None else int(given) % len(array.dims)
    repeats = as_dim(times_each)
    return moved(
        write, "repeat_interleave", call.name, array, shape_of(call),
        lambda pen, here: replaced(here, axis, f"{here[axis]} / {pen.size(repeats, 'repeats')}"),
    )  # fmt: skip


def _roll(write: Writing, call: Call) -> Value:
    array = write.array(call.args[0], call.name)
    shifts, axes = call.args[1], call.get(2, "dims", ())
    shifts = shifts if isinstance(shifts, tuple) else (shifts,)
    axes = axes if isinstance(axes, tuple) else (axes,)
    if not axes:
        flat = write.array(write.reshape(array, (count(array.dims),)))
        return write.reshape(_rolled(write, call, flat, {0: shifts[0]}), array.dims)
    rank = len(array.dims)
    return _rolled(write, call, array, {
        int(axis) % rank: shift for axis, shift in zip(axes, shifts, strict=True)})  # fmt: skip


def _rolled(write: Writing, call: Call, array: Array, shifts: Mapping[int, Any]) -> Array:
    def source(pen: Pen, here: Sequence[str]) -> list[str]:
        found = list(here)
        for axis, shift in shifts.items():
            size = array.dims[axis]
            moved = as_dim(shift)
            forward = write.known.following(lambda by, among: -by % among, moved, size)
            text = pen.size(forward, "shift")
            found[axis] = f"({here[axis]} + {text}) % {pen.size(size)}"
        return found

    return moved(write, "roll", call.name, array, array.dims, source)


def _pad(write: Writing, call: Call) -> Value:
    array = write.array(call.args[0], call.name)
    pads = [as_dim(each) for each in call.get(1, "pad", call.get(1, "padding"))]
    mode = call.base if call.base != "pad" else call.get(2, "mode", "constant")
    value = call.get(3 if call.base == "pad" else 2, "value") if "constant" in mode else None
    out = write.new(call.name, shape_of(call), array.dtype)
    pen = write.pen(f"pad_{mode.split('_')[0]}")
    rank = len(out.dims)
    here = pen.one_thread_each(out.dims, axis_names(rank))
    source, inside = list(here), []
    for position in range(len(pads) // 2):
        axis = rank - 1 - position
        before, after = pads[2 * position], pads[2 * position + 1]
        if same_as_zero(before) and same_as_zero(after):
            continue
        name, size = pen.name(f"from_{axis}"), pen.size(array.dims[axis])
        text = f"{here[axis]} - {pen.size(before, 'before')}" if (
            not same_as_zero(before)) else here[axis]  # fmt: skip
        mutable = "const " if "constant" in mode else ""
        pen.line(f"{mutable}index_t {name} = {text};")
        if "constant" in mode:
            inside.append(f"{name} >= 0 && {name} < {size}")
        elif "reflect" in mode:
            pen.line(f"{name} = {name} < 0 ? -{name} : {name};")
            pen.line(f"{name} = {name} >= {size} ? 2 * {size} - 2 - {name} : {name};")
        elif "replic" in mode:
            pen.line(f"{name} = {name} < 0 ? 0 : {name} >= {size} ? {size} - 1 : {name};")
        else:
            pen.line(f"{name} = ({name} + {size}) % {size};")
        source[axis] = name
    text = pen.load(array, source)
    if inside:
        outside = 0 if value is None else value
        written = number(float(outside)) if array.dtype in FLOATING else str(int(outside))
        text = f"{' && '.join(inside)} ? {text} : {written}"
    pen.store(out, here, text)
    write.launch(pen)
    return out


def _triangle(write: Writing, call: Call) -> Value:
    array = write.array(call.args[0], call.name)
    diagonal = call.get(1, "diagonal", 0)
    out = write.new(call.name, array.dims, array.dtype)
    pen = write.pen(call.base)
    rank = len(array.dims)
    here = pen.one_thread_each(out.dims, (*axis_names(rank - 2), "row", "column"))
    shift = pen.size(as_dim(diagonal), "diagonal")
    compare = "<=" if call.base == "tril" else ">="
    zero = "0.0f" if array.dtype in FLOATING else "0"
    kept = f"{here[-1]} - {here[-2]} {compare} {shift}"
    pen.store(out, here, f"{kept} ? {pen.load(array, here)} : {zero}")
    write.launch(pen)
    return out


def _pixel_shuffle(write: Writing, call: Call) -> Value:
    array = write.contiguous(call.args[0], call.name)
    factor = as_dim(call.args[1])
    *lead, channels, height, width = array.dims
    if call.base == "pixel_shuffle":
        fewer = write.known.named(divided(channels, times(factor, factor)))
        split = write.reshape(array, (*lead, fewer, factor, factor, height, width))
        first = len(lead)
        order = (*range(first), first, first + 3, first + 1, first + 4, first + 2)
    else:
        high = write.known.named(divided(height, factor))
        wide = write.known.named(divided(width, factor))
        split = write.reshape(array, (*lead, channels, high, factor, wide, factor))
        first = len(lead)
        order = (*range(first), first, first + 2, first + 4, first + 1, first + 3)
    return write.reshape(permuted(write.array(split), order), shape_of(call), call.name)


def axis_names(rank: int) -> tuple[str, ...]:
    """Return what the axes of a shape are called in a kernel."""
    return ("a", "b", "c", "d", "e", "f", "g", "h")[: max(rank, 0)]


def moved(
    write: Writing, title: str, name: str, array: Array, dims: Dims,
    source: Callable[[Pen, Sequence[str]], Sequence[str]],
) -> Array:  # fmt: skip
    """Write a kernel whose every element is one of another array; `source` says at which place."""
    out = write.new(name, dims, array.dtype)
    pen = write.pen(title)
    here = pen.one_thread_each(dims, axis_names(len(dims)))
    pen.store(out, here, pen.load(array, source(pen, here)))
    write.launch(pen)
    return out


def replaced(places: Sequence[str], axis: int, index: str) -> list[str]:
    return [*places[:axis], index, *places[axis + 1 :]]


OPERATORS = {
    **dict.fromkeys(
        ("clone", "detach", "alias", "dropout", "alpha_dropout", "feature_dropout", "to",
         "_to_copy", "lift_fresh_copy", "type_as", "float", "identity", "native_dropout",
         "lift_fresh", "half", "double", "_conj", "resolve_conj", "positive"), _same),
    "contiguous": _contiguous,
    **dict.fromkeys(
        ("t", "transpose", "permute", "numpy_T", "mT", "swapaxes", "swapdims", "movedim"),
        _permute),
    **dict.fromkeys(
        ("view", "reshape", "_unsafe_view", "flatten", "unflatten", "view_as", "reshape_as",
         "ravel", "_reshape_alias"), _reshape),
    "unsqueeze": _unsqueeze, "squeeze": _squeeze, "expand": _expand, "expand_as": _expand,
    "broadcast_to": _expand, "broadcast_tensors": _broadcast_tensors, "select": _select,
    "slice": _slice, "narrow": _narrow, "split": _split, "split_with_sizes": _split,
    "chunk": _split, "tensor_split": _split, "unbind": _unbind, "flip": _flip,
    "unfold": _unfold, "as_strided": _as_strided,
    "diagonal": _diagonal, "diag": _diag, "diag_embed": _diag,
    "cat": _cat, "concat": _cat, "stack": _stack, "repeat": _repeat, "tile": _repeat,
    "repeat_interleave": _repeat_interleave, "roll": _roll, "pad": _pad,
    "constant_pad_nd": _pad, "tril": _triangle, "triu": _triangle,
    **{f"{kind}_pad{rank}d": _pad for kind in ("reflection", "replication") for rank in (1, 2, 3)},
    "pixel_shuffle": _pixel_shuffle, "pixel_unshuffle": _pixel_shuffle,
}  # fmt: skip
