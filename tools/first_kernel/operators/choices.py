"""Operators that choose or weigh each element by another: clamps by tensors, masks, gates."""

from __future__ import annotations

from ..kernels.nests import Value, Writing
from ..program.arrays import part
from ..program.calls import Call
from ..program.sizes import ZERO, as_dim, divided


def _bounded(write: Writing, call: Call) -> Value:
    """Clamp by tensors."""
    value = call.args[0]
    low, high = call.get(1, "min"), call.get(2, "max")
    if low is not None:
        value = write.apply("maximum", value, low, dtype=call.dtype)
    return value if high is None else write.apply("minimum", value, high, dtype=call.dtype)


def _masked_fill(write: Writing, call: Call) -> Value:
    value, mask, fill = call.args[:3]
    return write.apply("where", mask, fill, value, dtype=call.dtype or value.dtype)


def _glu(write: Writing, call: Call) -> Value:
    array = write.array(call.args[0], call.name)
    axis = call.axis(1, "dim", len(array.dims), -1)
    half = write.known.named(divided(array.dims[axis], as_dim(2)))
    gate = write.apply("sigmoid", part(array, axis, half, half))
    return write.apply("mul", part(array, axis, ZERO, half), gate)


OPERATORS = {
    "clamp_by_tensors": _bounded, "masked_fill": _masked_fill, "glu": _glu,
}  # fmt: skip
