"""A PyTorch reference as a task, at the sizes as written and at small ones."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from .identity import sha256_of_json
from .programs import Program
from .readings import AS_WRITTEN, Reading
from .record import Record
from .tensors import DType, TensorSpec, Tolerance
from .variations import Variation

MOST_ELEMENTS = 48 << 20
"""Of all tensors of a variant of which cases are kept: inputs and answers, several times."""
MOST_WORK = 1 << 33
"""Multiply-adds, and elements of all results, of such a variant."""


class TaskVariant(Record):
    """The task at one set of dimensions: `full` as written, `verify` shrunk to be quick."""

    name: Literal["full", "verify"]
    dimensions: dict[str, int]
    """Sizes of the reference by name (task/dimensions.py), with the values of this variant."""
    tensors: tuple[TensorSpec, ...]
    """Outputs, inputs, parameters, buffers: the order of the launch signature."""
    scalars: dict[str, float | int | bool] = Field(default_factory=dict)
    """Inputs of the reference that are plain numbers: constexpr in task.cuh."""
    work: int = Field(default=0, ge=0)
    """Multiply-adds that answering takes, and elements of all results on the way."""

    @property
    def is_large(self) -> bool:
        """Whether no cases are kept: without a GPU it is verified by a sample of its blocks."""
        elements = sum(tensor.numel for tensor in self.tensors)
        return elements > MOST_ELEMENTS or self.work > MOST_WORK

    def of_role(self, *roles: str) -> tuple[TensorSpec, ...]:
        """Return the tensors of the given roles, in signature order."""
        return tuple(tensor for tensor in self.tensors if tensor.role in roles)


REFERENCE_SECONDS = 600.0
"""How long PyTorch may take for a task's answers, where nobody says otherwise."""


class Task(Record):
    """A PyTorch reference in KernelBench form (`Model`, `get_inputs`, `get_init_inputs`)."""

    name: str
    """File stem of the reference."""
    path: str
    """Where the reference was read; not part of the identity."""
    reference_sha256: str
    source: str
    """Text of the reference."""
    op_class: str
    """elementwise, reduction, softmax, normalization, matmul, transpose, or mixed."""
    dtype: DType
    """Type of the first output."""
    tolerance: Tolerance
    full: TaskVariant
    verify: TaskVariant
    program: Program | None = None
    """None where torch.export cannot trace the reference: then a model or --start must write it."""
    program_failure: str = ""
    """Why there is no program; empty where there is one."""
    verify_program: Program | None = None
    """The program at the dimensions of `verify`; None where it is not known."""
    variation: Variation = Field(default_factory=Variation)
    reading: Reading = AS_WRITTEN
    reference_seconds: float = Field(default=REFERENCE_SECONDS, gt=0)
    """How long PyTorch may take for its answers on the CPU; not part of the identity."""
    notes: tuple[str, ...] = ()
    """What whoever brings the task should know of how it was read, a sentence each."""

    @property
    def id(self) -> str:
        """Identity of the task: reference text, the dimensions of both variants, how it is read."""
        return sha256_of_json(
            [self.reference_sha256, self.full.dimensions, self.verify.dimensions,
             self.tolerance.model_dump(include={"absolute", "relative"}), self.reading.model_dump()]
        )  # fmt: skip
