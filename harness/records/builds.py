"""What a compiler made of a source, and what it had to say."""

from __future__ import annotations

from .record import Record


class Diagnostic(Record):
    """One fact about a candidate's failure, as a person or a model can act on it."""

    kind: str
    """Machine-readable kind: compile_error, out_of_bounds, race, mismatch, forbidden_symbol, ..."""
    message: str
    kernel: str | None = None
    line: int | None = None
    """1-based line of the candidate's source."""
    count: int = 1


class KernelResources(Record):
    """What ptxas says of one kernel (`-Xptxas -v`)."""

    kernel: str
    registers: int
    """Registers per thread."""
    static_shared_bytes: int = 0
    stack_bytes: int = 0
    spill_store_bytes: int = 0
    spill_load_bytes: int = 0
    barriers: int = 0


class Build(Record):
    """The result of compiling one source for one variant and architecture."""

    key: str
    """sha256 of source, task.cuh, flags, architecture and compiler version."""
    succeeded: bool
    arch: str
    """For example sm_90."""
    compiler: str
    """Versions of nvcc and its host compiler, and why that one was taken."""
    kernels: tuple[KernelResources, ...] = ()
    undefined_symbols: tuple[str, ...] = ()
    directory: str = ""
    """Folder of the build cache: candidate.cu, candidate.so, candidate.ptx, candidate.cubin."""
    diagnostics: tuple[Diagnostic, ...] = ()
