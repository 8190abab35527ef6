"""Which kernel of a program a rewrite changed."""

from __future__ import annotations

from collections.abc import Sequence

from .records import Rewritten


def target_of(written: Rewritten, parent: str, kernels: Sequence[str]) -> str:
    """Return the kernel that a rewrite changed: the one it names, or the costliest that differs.

    Args:
        written: what it made.
        parent: the source it was applied to.
        kernels: those of the program, the costliest first; one at least.
    """
    named = written.note.split(":")[0].strip()
    if named in kernels:
        return named
    moved = (name for name in kernels if _text(name, parent) != _text(name, written.source))
    return next(moved, kernels[0])


def _text(kernel: str, source: str) -> str:
    """Return the text of a kernel and of all up to the next."""
    _, _, after = source.partition(f" {kernel}(")
    return after.partition("__global__")[0]
