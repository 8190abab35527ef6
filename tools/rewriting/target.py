"""Which kernel of a program a rewrite changed."""

from __future__ import annotations

from collections.abc import Sequence

from .records import NotRecognised, Rewritten
from .source.syntax import Source, text_of


def target_of(written: Rewritten, parent: str, kernels: Sequence[str]) -> str:
    """Return the kernel that a rewrite changed: the one it names, or the costliest that differs.

    Args:
        written: what it made.
        parent: the source it was applied to.
        kernels: those of the program, the costliest first; one at least.
    """
    named = {name.strip() for name in written.note.split(":")[0].split(",")}
    before, after = _texts(parent), _texts(written.source)
    told = (name for name in kernels if name in named)
    moved = (name for name in kernels if before.get(name) != after.get(name))
    return next(told, None) or next(moved, kernels[0])


def _texts(source: str) -> dict[str, str]:
    try:
        return {kernel.name: text_of(kernel.node) for kernel in Source(source).kernels()}
    except NotRecognised:
        return {}
