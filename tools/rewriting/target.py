"""The kernels of a program, and which of them a rewrite changed."""

from __future__ import annotations

from collections.abc import Sequence

from ...harness.vetting.symbols import bare_name
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
    before, after = kernel_texts(parent), kernel_texts(written.source)
    short = {name: bare_name(name) for name in kernels}
    told = (name for name in kernels if short[name] in named)
    moved = (name for name in kernels if before.get(short[name]) != after.get(short[name]))
    return next(told, None) or next(moved, kernels[0])


def kernel_texts(source: str) -> dict[str, str]:
    """Return the text of each kernel by name; nothing of a file that no rewrite reads."""
    try:
        return {kernel.name: text_of(kernel.node) for kernel in Source(source).kernels()}
    except NotRecognised:
        return {}
