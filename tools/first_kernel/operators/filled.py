"""Tensors made of nothing but their shape, or of what the reference holds."""

from __future__ import annotations

from typing import Any

from ..kernels.nests import Lazy, Scalar, Value, Writing
from ..program.arrays import FLOATING
from ..program.calls import Call
from ..program.pointwise import number
from ..program.sizes import as_dim, count
from ..program.values import CannotWrite, Dim
from .movement import shape_of


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


OPERATORS = {
    **dict.fromkeys(
        ("zeros", "ones", "full", "zeros_like", "ones_like", "full_like", "new_zeros",
         "new_ones", "new_full", "scalar_tensor", "empty_like", "empty"), _filled),
    "constant": _constant, "arange": _arange, "linspace": _linspace, "eye": _eye,
}  # fmt: skip
