"""A first kernel that lacks the functions of some operators, and what each of them must be."""

from __future__ import annotations

from dataclasses import dataclass

from ....harness.records.record import Record
from ..program.arrays import Storage
from ..program.values import Dims
from .pen import C_TYPES, Pointer


class MissingKernel(Record):
    """One function that somebody else must write: it does what one ATen operator does."""

    name: str
    op: str
    """The operator with its arguments, tensors by the names of the parameters."""
    line: int | None
    """Of the reference."""
    reason: str
    """What of the operator is outside the writer's reach; empty where all of it is."""
    prototype: str
    tensors: tuple[str, ...]
    """One line for each pointer: its shape by named constants, and in numbers."""

    @property
    def scratch(self) -> str:
        """Name of the constant that says how many bytes of scratch memory it is given."""
        return f"{self.name}_scratch"


class Sketch(Record):
    """A CUDA source in two halves, between which the missing functions belong."""

    constants: tuple[str, ...]
    """What the first half declares beside task.cuh."""
    before: str
    after: str
    missing: tuple[MissingKernel, ...]
    notes: tuple[str, ...]
    """What was decided, one line for each kernel."""
    reason: str = ""
    """Why it is not complete: every operator that is left out, with its lines."""

    def completed(self, functions: str) -> str:
        """Return the source with the text of the missing functions in it."""
        return f"{self.before}{functions.strip()}\n\n{self.after}" if functions else (
            self.before + self.after)  # fmt: skip


@dataclass(frozen=True)
class Unwritten:
    """A call of a missing function, as a launch among others."""

    stem: str
    op: str
    line: int | None
    reason: str
    pointers: tuple[Pointer, ...]

    @property
    def storages(self) -> list[Storage]:
        """What it reads and writes."""
        return [pointer.array.storage for pointer in self.pointers]

    @property
    def key(self) -> tuple[object, ...]:
        """Equal for calls that one function can do."""
        return (self.stem, self.op, *_tensors(self.pointers))

    def kernel(self, name: str) -> MissingKernel:
        """Return what is missing, by the name that the function must have."""
        parameters = [f"{pointer.ctype} {pointer.name}" for pointer in self.pointers]
        return MissingKernel(
            name=name,
            op=self.op,
            line=self.line,
            reason=self.reason,
            prototype=f"static void {name}"
            f"({', '.join([*parameters, 'void* scratch', 'cudaStream_t stream'])})",
            tensors=_tensors(self.pointers),
        )


def _tensors(pointers: tuple[Pointer, ...]) -> tuple[str, ...]:
    return tuple(
        f"{pointer.name}: {C_TYPES[pointer.array.dtype]} "
        f"[{', '.join(dim.text for dim in pointer.array.dims)}]"
        f"{_numbers(pointer.array.dims)}"
        for pointer in pointers
    )


def _numbers(dims: Dims) -> str:
    if all(dim.text.isdigit() for dim in dims):
        return ""
    full, small = ([getattr(dim, size) for dim in dims] for size in ("full", "verify"))
    return f", {full} at full dimensions" + (f", {small} at small ones" if small != full else "")
