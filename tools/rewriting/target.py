"""The kernels of a program, and which of them a rewrite changed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from ...harness.vetting.symbols import bare_name
from .records import NotRecognised, Outcome, Rewritten
from .source.syntax import Source, text_of


def target_of(written: Rewritten, parent: str, kernels: Sequence[str]) -> str:
    """Return the kernel that a rewrite changed: the one it says, of those that its note names or
    that differ the costliest.

    Args:
        written: what it made.
        parent: the source it was applied to.
        kernels: those of the program, the costliest first; one at least.
    """
    if len(kernels) == 1:
        return kernels[0]
    noted = written.kernel or written.note.split(":")[0]
    named = {name.strip() for name in noted.split(",")}
    short = {name: bare_name(name) for name in kernels}
    if told := [name for name in kernels if short[name] in named]:
        return told[0]
    before, after = kernel_texts(parent), kernel_texts(written.source)
    moved = (name for name in kernels if before.get(short[name]) != after.get(short[name]))
    return next(moved, kernels[0])


def targets_of(
    made: Mapping[str, Outcome], source: str, kernels: Sequence[str]
) -> dict[str, str]:
    """Return which of a program's kernels, the costliest first, each rewrite changes."""
    return {
        technique: target_of(found, source, kernels)
        for technique, found in made.items()
        if isinstance(found, Rewritten)
    }


def kernel_texts(source: str) -> dict[str, str]:
    """Return the text of each kernel by name; nothing of a file that no rewrite reads."""
    try:
        return {kernel.name: text_of(kernel.node) for kernel in Source(source).kernels()}
    except NotRecognised:
        return {}
