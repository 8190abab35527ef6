"""Kernels of a task as a tree in words: what was tried on which, and what came of it."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence

from ...harness.records.outcomes import Outcome
from ...memory.knowledge.kernels import KnownKernel, Tried
from .experience import gain_text, parameters_text

SHORT = 8
"""Characters of a source's sha256."""
_LEVEL = "  "


def tree_lines(tried: Iterable[Tried], won: Iterable[KnownKernel]) -> list[str]:
    """Return the kernels of a task, each below the one that it was made of.

    What gained most stands first, what failed last. A kernel that was made in several ways is told
    whole at the first; those that won runs are marked.
    """
    under: dict[str, list[Tried]] = {}
    for each in tried:
        under.setdefault(each.parent_sha256, []).append(each)
    made = {
        each.child_sha256
        for group in under.values()
        for each in group
        if each.log_gain is not None and each.child_sha256 != each.parent_sha256
    }
    marks: dict[str, str] = {}
    for kernel in won:
        marks.setdefault(kernel.source_sha256, _mark(kernel))
    told: set[str] = set()
    roots = [source for source in under if source not in made]
    lines: list[str] = []
    # Kernels that were made of one another have no first.
    for root in (*sorted(roots), *sorted(under)):
        if root not in told:
            lines.append(f"{root[:SHORT]}{marks.get(root, '')}")
            lines += _below(root, under, marks, told, 1)
    seen = {source for source in (*told, *made) if source}
    lines += [f"{name[:SHORT]}{mark}" for name, mark in sorted(marks.items()) if name not in seen]
    return lines


def _below(
    root: str,
    under: Mapping[str, Sequence[Tried]],
    marks: Mapping[str, str],
    told: set[str],
    depth: int,
) -> Iterator[str]:
    # A list of its own instead of recursion: a chain of kernels may be longer than Python's stack.
    waiting = [(root, depth, list(_ordered(under.get(root, ()))))]
    told.add(root)
    while waiting:
        _, level, edges = waiting[-1]
        if not edges:
            waiting.pop()
            continue
        edge = edges.pop(0)
        child = edge.child_sha256 if edge.log_gain is not None else None
        again = child in told if child else False
        yield f"{_LEVEL * level}{_edge(edge)}{_child(child, marks, again, under)}"
        if child and not again:
            told.add(child)
            waiting.append((child, level + 1, list(_ordered(under.get(child, ())))))


def _ordered(edges: Iterable[Tried]) -> list[Tried]:
    return sorted(
        edges,
        key=lambda each: (
            each.log_gain is None, -(each.log_gain or 0.0), each.technique, str(each.parameters),
            each.gpu, each.child_sha256 or "",
        ),
    )  # fmt: skip


def _edge(edge: Tried) -> str:
    where = f" of {edge.launch}" if edge.launch else ""
    setting = parameters_text(edge.parameters)
    times = f", {edge.tries} tries" if edge.tries > 1 else ""
    if edge.log_gain is not None:
        came = gain_text(edge.log_gain)
    elif edge.outcome is Outcome.NOT_APPLICABLE:
        came = "does not apply"
    else:
        came = edge.outcome.value.replace("_", " ")
    return f"{edge.technique}{where}{setting}: {came} on {edge.gpu}{times}"


def _child(
    child: str | None, marks: Mapping[str, str], again: bool, under: Collection[str]
) -> str:
    if child is None:
        return ""
    above = " (see above)" if again and child in under else ""
    return f" -> {child[:SHORT]}{marks.get(child, '')}{above}"


def _mark(kernel: KnownKernel) -> str:
    share = "" if kernel.bound_share is None else f", {kernel.bound_share:.0%} of the bound"
    return f" [won {kernel.run}: {kernel.microseconds:.2f} us on {kernel.gpu}{share}]"
