"""An iteration's steps as text: ids to refer to, expected and measured gains, what they changed."""

from __future__ import annotations

import difflib
import math
import re
from collections.abc import Mapping, Sequence

from ....memory.knowledge.states.dimensions import DIMENSIONS
from ....memory.knowledge.states.signature import completed
from ....memory.records.evidence import Step
from ....tools.wording.experience import gain_text, measured_gain, outcome_text, parameters_text
from ...records.gradient import Gap

SHORTEST_ID = 6
"""Characters of an evidence id that are shown, at least."""
FEWEST_CHARACTERS = 4
"""Of an id, for it to mean a step."""
MOST_MOVED = 5
"""Figures told of one step."""
STRIKING = 0.05
"""Weighted change of a figure below which it is not told."""
MOST_DIFF_LINES = 40
_SAYS_LITTLE = re.compile(r"[+-]\s*(#include|(static\s+)?constexpr\b|using\b|//|[{}()\s;]*$)")
_NEW_KERNEL = re.compile(r"\+.*\b__global__\b")
LONGEST_DIFFS = 12_000
"""Characters of all changes together."""


def evidence_of(steps: Sequence[Step]) -> list[Step]:
    """Return the steps that left evidence."""
    return [step for step in steps if step.evidence_id]


def labels_of(steps: Sequence[Step]) -> dict[str, str]:
    """Return, for each evidence id, as much of it as tells it from the others."""
    ids = list(dict.fromkeys(str(step.evidence_id) for step in evidence_of(steps)))
    length = SHORTEST_ID
    while len({name[:length] for name in ids}) < len(ids):
        length += 1
    return {name: name[:length] for name in ids}


def resolve(ids: Sequence[str], steps: Sequence[Step]) -> list[Step]:
    """Return the steps that ids mean, in their order, each once; the beginning of an id will do.

    Raises:
        ValueError: an id means none of the steps, or several; the text says which there are.
    """
    found: dict[str, Step] = {}
    for name in ids:
        meant = [step for step in evidence_of(steps) if str(step.evidence_id).startswith(name)]
        if len(name) < FEWEST_CHARACTERS or len(meant) != 1:
            raise ValueError(
                f"no step has the id {name[:40] or '(empty)'}: give ids of the list, "
                f"{', '.join(labels_of(steps).values())}"
            )
        found[str(meant[0].evidence_id)] = meant[0]
    return list(found.values())


def kernels_of(steps: Sequence[Step]) -> dict[str, str]:
    """Return a short name for each source, in the order in which the steps met them."""
    names: dict[str, str] = {}
    for step in steps:
        for sha256 in (step.parent_sha256, step.child_sha256):
            if sha256:
                names.setdefault(sha256, f"K{len(names)}")
    return names


def steps_text(steps: Sequence[Step], state_names: Mapping[str, str]) -> str:
    """Return one line a step: id, place, kernels, technique, state, expected and measured."""
    labels, kernels = labels_of(steps), kernels_of(steps)
    lines = []
    for step in evidence_of(steps):
        child = f" -> {kernels[step.child_sha256]}" if step.child_sha256 else ""
        state = state_names.get(step.state_id, step.state_id)
        lines.append(
            f"- {labels[str(step.evidence_id)]} (rollout {step.rollout}, step {step.step + 1}, "
            f"{kernels[step.parent_sha256]}{child}): {step.technique}"
            f'{parameters_text(step.parameters)} in "{state}": expected '
            f"{gain_text(step.expected_log_gain)}; {outcome_text(step)}"
        )
    return "\n".join(lines)


def alike(steps: Sequence[Step]) -> list[tuple[str, Step]]:
    """Return the steps that made a kernel, each pair of kernels once, with the ids of all such."""
    labels = labels_of(steps)
    found: dict[tuple[str, str], tuple[list[str], Step]] = {}
    for step in evidence_of(steps):
        if step.child_sha256:
            pair = step.parent_sha256, step.child_sha256
            found.setdefault(pair, ([], step))[0].append(labels[str(step.evidence_id)])
    return [(", ".join(names), step) for names, step in found.values()]


def moved_text(before: Sequence[float], after: Sequence[float]) -> str:
    """Return the figures of a profile that a step moved most, by the two signatures."""
    moved = sorted(
        (
            (abs(right - left) * dimension.weight, dimension, left, right)
            for dimension, left, right in zip(
                DIMENSIONS, completed(before), completed(after), strict=True
            )
            if "{}" in dimension.words and min(left, right) >= 0.0
        ),
        key=lambda item: (-item[0], item[1].name),
    )
    words: dict[tuple[str, str], str] = {}
    for change, dimension, left, right in moved:
        if change > STRIKING and len(words) < MOST_MOVED:
            # Occupancy that is reached follows from the one that can be: one of them says it.
            figure = dimension.name.split("_")[0], f"{left:.0%} {right:.0%}"
            words.setdefault(figure, dimension.changed(left, right))
    return "; ".join(words.values())


def diffs_text(changes: Sequence[tuple[str, str, str]]) -> str:
    """Return what steps changed in the code, each (label, before, after), while there is room."""
    parts: list[str] = []
    size = 0
    for label, before, after in changes:
        lines = _changed_lines(before, after)
        if len(lines) > MOST_DIFF_LINES:
            shown = _kernels_first(lines)[:MOST_DIFF_LINES]
            lines = [*shown, f"({len(lines) - len(shown)} more lines)"]
        part = "\n".join([f"{label}:", *lines])
        size += len(part)
        if size > LONGEST_DIFFS:
            break
        parts.append(part)
    return "\n\n".join(parts)


def _kernels_first(lines: Sequence[str]) -> list[str]:
    """Return the lines of a long difference from its first new kernel on, then those before it.

    Sizes, includes and comments are left out: what a kernel does otherwise is what is looked for.
    """
    telling = [line for line in lines if not _SAYS_LITTLE.match(line)]
    at = next((at for at, line in enumerate(telling) if _NEW_KERNEL.match(line)), 0)
    return [*telling[at:], *telling[:at]]


def _changed_lines(before: str, after: str) -> list[str]:
    """Return the difference of two files, what replaces lines before what only adds some.

    Helpers come first in a file; what the kernel's body does otherwise is what is looked for.
    """
    hunks: list[list[str]] = []
    for line in list(
        difflib.unified_diff(before.splitlines(), after.splitlines(), lineterm="", n=0)
    )[2:]:
        if line.startswith("@@"):
            hunks.append([])
        hunks[-1].append(line.rstrip())
    hunks.sort(key=lambda hunk: not any(line.startswith("-") for line in hunk))
    return [line for hunk in hunks for line in hunk]


def measured_text(steps: Sequence[Step]) -> str:
    """Return what steps of one technique came to: mean gain, or how they failed."""
    gains = [step.log_gain for step in steps if step.log_gain is not None]
    tries = "try" if len(steps) == 1 else "tries"
    if not gains:
        outcomes = ", ".join(sorted({step.outcome.replace("_", " ") for step in steps}))
        return f"{len(steps)} {tries}, none passed ({outcomes})"
    of = "" if len(gains) == len(steps) else f"{len(gains)} of "
    return f"{measured_gain(math.fsum(gains) / len(gains))} in {of}{len(steps)} {tries}"


def gap_lines(gaps: Sequence[Gap], steps: Sequence[Step]) -> list[str]:
    """Return the gaps in words, numbered from 1, each with the ids of its steps."""
    labels = labels_of(steps)
    lines = []
    for at, gap in enumerate(gaps, 1):
        ids = ", ".join(labels[name] for name in gap.evidence if name in labels)
        what = "" if gap.techniques else f"{gap.technique} "
        words = " ".join(gap.explained.split())
        lines.append(f'{at}. {gap.kind}: {what}in "{gap.state_name}": {words} [{ids}]')
    return lines
