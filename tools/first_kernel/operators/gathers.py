"""Operators that read elements at places computed or given: gathers, interpolation."""

from __future__ import annotations

from collections.abc import Sequence

from ..kernels.nests import Value, Writing
from ..kernels.pen import Pen
from ..program.arrays import Array, expanded
from ..program.calls import Call
from ..program.values import CannotWrite, Dim
from .movement import axis_names, moved, replaced, shape_of


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
    return moved(
        write, "index_select", call.name, array, shape_of(call),
        lambda pen, here: replaced(here, axis, index_at(pen, index, [here[axis]], None)),
    )  # fmt: skip


def _gather(write: Writing, call: Call) -> Value:
    array, index = write.array(call.args[0]), write.array(call.args[2])
    axis = call.axis(1, "dim", len(array.dims))
    return moved(
        write, "gather", call.name, array, index.dims,
        lambda pen, here: replaced(here, axis, index_at(pen, index, here, None)),
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
    "embedding": _embedding, "one_hot": _one_hot, "index_select": _index_select,
    "gather": _gather, "index": _index,
    "upsample_nearest1d": _upsample, "upsample_nearest2d": _upsample,
    "upsample_nearest3d": _upsample, "upsample_bilinear2d": _upsample,
    "upsample_linear1d": _upsample, "upsample_trilinear3d": _upsample,
}  # fmt: skip
