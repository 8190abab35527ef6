"""Operators that move elements: views, copies, gathers, tensors made of nothing but their shape."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from ..kernels.nests import Lazy, Scalar, Value, Writing
from ..kernels.pen import Pen
from ..program.arrays import FLOATING, Array, expanded, flipped, part, permuted, unsqueezed, without
from ..program.calls import Call
from ..program.pointwise import number
from ..program.sizes import ZERO, as_dim, count, divided, negative, plus, times
from ..program.values import ONE, CannotWrite, Dim, Dims, IsRandom

Results = Value | tuple[Value, ...]


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
    # Between floating point types a value keeps what precision it has.
    return left == right or (left in FLOATING and right in FLOATING)


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
        each = write.known.of(-(-size.full // given), -(-size.verify // given))
        given = each
    if not isinstance(given, tuple):
        each = as_dim(given)
        parts = -(-size.full // each.full)
        if -(-size.verify // each.verify) != parts:
            raise CannotWrite(f"{call.where} gives {parts} parts, and others when shrunk")
        last = (size.full - (parts - 1) * each.full, size.verify - (parts - 1) * each.verify)
        given = (*[each] * (parts - 1), write.known.of(*last))
    begin, found = ZERO, []
    for one in map(as_dim, given):
        found.append(part(array, axis, begin, one))
        begin = plus(begin, one)
    return tuple(found)


def _unbind(write: Writing, call: Call) -> Results:
    array = write.array(call.args[0], call.name)
    axis = call.axis(1, "dim", len(array.dims), 0)
    size = array.dims[axis]
    if size.full != size.verify:
        raise CannotWrite(f"{call.where} gives {size.full} parts, and others when shrunk")
    return tuple(
        without(part(array, axis, as_dim(index), ONE), [axis]) for index in range(size.full)
    )


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


# Copies


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

    return _moved(write, "repeat", call.name, array, dims, source)


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
    return _moved(
        write, "repeat_interleave", call.name, array, shape_of(call),
        lambda pen, here: _replaced(here, axis, f"{here[axis]} / {pen.size(repeats, 'repeats')}"),
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
            forward = write.known.of(-moved.full % size.full, -moved.verify % size.verify)
            text = pen.size(forward, "shift")
            found[axis] = f"({here[axis]} + {text}) % {pen.size(size)}"
        return found

    return _moved(write, "roll", call.name, array, array.dims, source)


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
        if before.full == after.full == 0 == before.verify == after.verify:
            continue
        name, size = pen.name(f"from_{axis}"), pen.size(array.dims[axis])
        text = f"{here[axis]} - {pen.size(before, 'before')}" if before.full else here[axis]
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


# Tensors from shapes


def _filled(write: Writing, call: Call) -> Value:
    value: Any = {"zeros": 0, "ones": 1}.get(call.base.replace("new_", "").replace("_like", ""))
    if value is None:
        value = call.get(2 if call.base == "new_full" else 1, "fill_value", 0)
    if call.base == "scalar_tensor":
        value = call.args[0]
    dtype = call.dtype or "float32"
    if dtype not in FLOATING and not isinstance(value, Dim):
        value = bool(value) if dtype == "bool" else int(value)
    elif isinstance(value, int):
        value = float(value)
    filled = Scalar(value)
    return Lazy(shape_of(call), dtype, (filled,), lambda texts: texts[0], False, "fill")


def _constant(write: Writing, call: Call) -> Value:
    """A tensor whose values are known: its kernel holds them."""
    out = write.new(call.name, shape_of(call), call.dtype or "float32")
    pen = write.pen("constant", "values that the reference holds")
    here = pen.one_thread_each((count(out.dims),), ("i",))
    flat = write.array(write.reshape(out, (count(out.dims),)))
    ctype = "float" if out.dtype in FLOATING else "long long"
    texts = [number(float(each)) if out.dtype in FLOATING else str(int(each))
             for each in call.args[0]]  # fmt: skip
    pen.line(f"const {ctype} values[] = {{")
    for begin in range(0, len(texts), 8):
        pen.line(f"    {', '.join(texts[begin : begin + 8])},")
    pen.line("};")
    pen.store(flat, here, f"values[{here[0]}]")
    write.launch(pen)
    return out


def _arange(write: Writing, call: Call) -> Value:
    numbers = [each for each in call.args if isinstance(each, int | float | Dim)]
    start: int | float | Dim = numbers[0] if len(numbers) > 1 else 0
    step: int | float | Dim = numbers[2] if len(numbers) > 2 else 1
    dims = shape_of(call)
    out = write.new(call.name, dims, call.dtype or "int64")
    pen = write.pen("arange")
    (i,) = pen.one_thread_each(dims, ("i",))
    if isinstance(start, Dim) or isinstance(step, Dim) or (
        isinstance(start, int) and isinstance(step, int)):  # fmt: skip
        if isinstance(start, float) or isinstance(step, float):
            raise CannotWrite(f"{call.where} by numbers that differ between the variants")
        text = f"{pen.size(as_dim(start), 'start')} + {pen.size(as_dim(step), 'step')} * {i}"
    else:
        text = f"{number(float(start))} + {number(float(step))} * {i}"
    pen.store(out, [i], text)
    write.launch(pen)
    return out


def _linspace(write: Writing, call: Call) -> Value:
    start, end = (number(call.number(place, "", 0.0)) for place in (0, 1))
    out = write.new(call.name, shape_of(call), call.dtype or "float32")
    pen = write.pen("linspace")
    (i,) = pen.one_thread_each(out.dims, ("i",))
    steps = pen.size(out.dims[0], "steps")
    pen.store(out, [i], f"{start} + ({end} - {start}) * {i} / ({steps} > 1 ? {steps} - 1 : 1)")
    write.launch(pen)
    return out


def _eye(write: Writing, call: Call) -> Value:
    out = write.new(call.name, shape_of(call), call.dtype or "float32")
    pen = write.pen("eye")
    row, column = pen.one_thread_each(out.dims, ("row", "column"))
    pen.store(out, [row, column], f"{row} == {column} ? 1 : 0")
    write.launch(pen)
    return out


# Gathers


def axis_names(rank: int) -> tuple[str, ...]:
    """Return what the axes of a shape are called in a kernel."""
    return ("a", "b", "c", "d", "e", "f", "g", "h")[: max(rank, 0)]


def _moved(
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


def _replaced(places: Sequence[str], axis: int, index: str) -> list[str]:
    return [*places[:axis], index, *places[axis + 1 :]]


def index_at(pen: Pen, array: Array, here: Sequence[str], size: Dim | None) -> str:
    """Return the name of an index read from a tensor; negative ones count from the end."""
    name = pen.name("at")
    element = pen.load(array, here, "index")
    pen.line(f"index_t {name} = static_cast<index_t>({element});")
    if size is not None:
        pen.line(f"if ({name} < 0) {name} += {pen.size(size)};")
    return str(name)


def _embedding(write: Writing, call: Call) -> Value:
    table, index = (write.array(each, call.name) for each in call.args[:2])
    out = write.new(call.name, shape_of(call), table.dtype)
    pen = write.pen("embedding")
    *here, column = pen.one_thread_each(out.dims, (*axis_names(len(index.dims)), "column"))
    pen.store(out, [*here, column], pen.load(table, [index_at(pen, index, here, None), column]))
    write.launch(pen)
    return out


def _one_hot(write: Writing, call: Call) -> Value:
    index = write.array(call.args[0], call.name)
    out = write.new(call.name, shape_of(call), "int64")
    pen = write.pen("one_hot")
    *here, column = pen.one_thread_each(out.dims, (*axis_names(len(index.dims)), "column"))
    pen.store(out, [*here, column], f"{pen.load(index, here)} == {column}")
    write.launch(pen)
    return out


def _index_select(write: Writing, call: Call) -> Value:
    array, index = write.array(call.args[0]), write.array(call.args[2])
    axis = call.axis(1, "dim", len(array.dims))
    return _moved(
        write, "index_select", call.name, array, shape_of(call),
        lambda pen, here: _replaced(here, axis, index_at(pen, index, [here[axis]], None)),
    )  # fmt: skip


def _gather(write: Writing, call: Call) -> Value:
    array, index = write.array(call.args[0]), write.array(call.args[2])
    axis = call.axis(1, "dim", len(array.dims))
    return _moved(
        write, "gather", call.name, array, index.dims,
        lambda pen, here: _replaced(here, axis, index_at(pen, index, here, None)),
    )  # fmt: skip


def _index(write: Writing, call: Call) -> Value:
    array = write.array(call.args[0], call.name)
    given = [None if each is None else write.array(each) for each in call.args[1]]
    given += [None] * (len(array.dims) - len(given))
    places = [axis for axis, each in enumerate(given) if each is not None]
    if any(given[axis].dtype == "bool" for axis in places):  # type: ignore[union-attr]
        raise CannotWrite(f"{call.where} by a mask has a shape that depends on values")
    dims = shape_of(call)
    out = write.new(call.name, dims, array.dtype)
    together = places == list(range(places[0], places[-1] + 1))
    first = places[0] if together else 0
    rank = max(len(given[axis].dims) for axis in places)  # type: ignore[union-attr]
    pen = write.pen("index")
    here = pen.one_thread_each(dims, axis_names(len(dims)))
    spot = here[first : first + rank]
    rest = iter([*here[:first], *here[first + rank :]])
    source = []
    for axis, index in enumerate(given):
        if index is None:
            source.append(next(rest))
        else:
            view = expanded(index, dims[first : first + rank])
            source.append(index_at(pen, view, spot, array.dims[axis]))
    pen.store(out, here, pen.load(array, source))
    write.launch(pen)
    return out


def _sorted(write: Writing, call: Call) -> Results:
    """Each element counts those that come before it: that is its place."""
    array = write.array(call.args[0], call.name)
    rank = len(array.dims)
    is_topk = call.base == "topk"
    position = 2 if is_topk else 1
    axis = call.axis(position, "dim", rank, -1) if not isinstance(
        call.get(position, "dim", -1), bool) else rank - 1  # fmt: skip
    descending = call.flag(3, "largest", True) if is_topk else call.flag(2, "descending")
    dims = call.dims if call.base != "argsort" else array.dims
    if dims is None:
        raise CannotWrite(f"{call.where}: the shape of its result is not known")
    values = write.new(call.name, dims, array.dtype)
    places = write.new(f"{call.name}_places", dims, "int64")
    pen = write.pen(call.base)
    here = pen.one_thread_each(array.dims, axis_names(rank))
    ctype = "float" if array.dtype in FLOATING else "long long"
    pen.line(f"const {ctype} value = {pen.load(array, here)};")
    pen.line("index_t place = 0;")
    with pen.loops([array.dims[axis]], ["k"]) as (k,):
        other = [k if each == axis else here[each] for each in range(rank)]
        pen.line(f"const {ctype} other = {pen.load(array, other)};")
        before = ">" if descending else "<"
        pen.line(f"if (other {before} value || (other == value && {k} < {here[axis]})) ++place;")
    out = ["place" if each == axis else here[each] for each in range(rank)]
    with pen.block(f"if (place < {pen.size(dims[axis], 'kept')})"):
        pen.store(values, out, "value", "values")
        pen.store(places, out, here[axis], "places")
    write.launch(pen)
    return places if call.base == "argsort" else (values, places)


def _upsample(write: Writing, call: Call) -> Value:
    array = write.array(call.args[0], call.name)
    dims = shape_of(call)
    space = len(dims) - 2
    out = write.new(call.name, dims, array.dtype)
    pen = write.pen(call.base)
    here = pen.one_thread_each(dims, ("n", "channel", *("z", "y", "x")[-space:]))
    if "nearest" in call.base:
        source = [
            f"{index} * {pen.size(have)} / {pen.size(wanted)}"
            for index, have, wanted in zip(here[2:], array.dims[2:], dims[2:], strict=True)
        ]
        pen.store(out, here, pen.load(array, [*here[:2], *source]))
        write.launch(pen)
        return out
    if call.base not in ("upsample_bilinear2d", "upsample_linear1d", "upsample_trilinear3d"):
        raise CannotWrite(f"{call.where} is not written")
    corners = call.flag(2, "align_corners")
    weights = []
    for index, have, wanted in zip(here[2:], array.dims[2:], dims[2:], strict=True):
        size, goal = pen.size(have), pen.size(wanted)
        spot, low, high, rest = (pen.name(each) for each in ("spot", "low", "high", "rest"))
        if corners:
            text = f"{goal} > 1 ? {index} * static_cast<float>({size} - 1) / ({goal} - 1) : 0.0f"
        else:
            text = f"fmaxf(({index} + 0.5f) * {size} / {goal} - 0.5f, 0.0f)"
        pen.line(f"const float {spot} = {text};")
        pen.line(f"const index_t {low} = static_cast<index_t>({spot});")
        pen.line(f"const index_t {high} = {low} + 1 < {size} ? {low} + 1 : {low};")
        pen.line(f"const float {rest} = {spot} - {low};")
        weights.append(((low, f"(1.0f - {rest})"), (high, rest)))
    terms: list[tuple[list[str], str]] = [([], "")]
    for choices in weights:
        terms = [([*at, spot], f"{factor}{weight} * ") for at, factor in terms
                 for spot, weight in choices]  # fmt: skip
    pen.line("float value = 0.0f;")
    for at, factor in terms:
        pen.line(f"value += {factor}{pen.load(array, [*here[:2], *at])};")
    pen.store(out, here, "value")
    write.launch(pen)
    return out


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
    "unfold": _unfold, "diagonal": _diagonal, "diag": _diag, "diag_embed": _diag,
    "cat": _cat, "concat": _cat, "stack": _stack, "repeat": _repeat, "tile": _repeat,
    "repeat_interleave": _repeat_interleave, "roll": _roll, "pad": _pad,
    "constant_pad_nd": _pad, "tril": _triangle, "triu": _triangle,
    **{f"{kind}_pad{rank}d": _pad for kind in ("reflection", "replication") for rank in (1, 2, 3)},
    "pixel_shuffle": _pixel_shuffle, "pixel_unshuffle": _pixel_shuffle,
    **dict.fromkeys(
        ("zeros", "ones", "full", "zeros_like", "ones_like", "full_like", "new_zeros",
         "new_ones", "new_full", "scalar_tensor", "empty_like", "empty"), _filled),
    "constant": _constant, "arange": _arange, "linspace": _linspace,
    "eye": _eye,
    "embedding": _embedding, "one_hot": _one_hot, "index_select": _index_select,
    "gather": _gather, "index": _index, "sort": _sorted, "topk": _sorted, "argsort": _sorted,
    "upsample_nearest1d": _upsample, "upsample_nearest2d": _upsample,
    "upsample_nearest3d": _upsample, "upsample_bilinear2d": _upsample,
    "upsample_linear1d": _upsample, "upsample_trilinear3d": _upsample,
}  # fmt: skip
