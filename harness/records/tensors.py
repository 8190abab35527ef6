"""The tensors that cross the boundary of `launch`, and how far an answer may be off."""

from __future__ import annotations

from typing import Literal

from .record import Record

DType = Literal[
    "float64", "float32", "float16", "bfloat16", "int64", "int32", "int16", "int8", "uint8", "bool"
]
DTYPE_BYTES: dict[str, int] = {
    "float64": 8, "float32": 4, "float16": 2, "bfloat16": 2,
    "int64": 8, "int32": 4, "int16": 2, "int8": 1, "uint8": 1, "bool": 1,
}  # fmt: skip


class TensorSpec(Record):
    """One tensor that crosses the boundary of `launch`, contiguous and row-major."""

    name: str
    """Identifier in the launch signature and, upper-cased, in task.cuh."""
    shape: tuple[int, ...]
    dtype: DType
    role: Literal["input", "parameter", "buffer", "output"]
    constant: bool = False
    """Whether it is a buffer that does not depend on the seed: a kernel may rely on its values."""

    @property
    def numel(self) -> int:
        """Number of elements (1 for a scalar tensor)."""
        count = 1
        for size in self.shape:
            count *= size
        return count

    @property
    def nbytes(self) -> int:
        """Size in bytes."""
        return self.numel * DTYPE_BYTES[self.dtype]


class Tolerance(Record):
    """Largest accepted difference: |got - expected| <= absolute + relative * |expected|."""

    absolute: float
    relative: float
    step: float = 0.0
    """What the elements may be off that round another way; see `share`."""
    least_step: float = 0.0
    """And what each that does is off at least: one that is off by less makes no step."""
    share: float = 0.0
    """Of all elements, those that may be off by more than the above, and up to `step`."""
