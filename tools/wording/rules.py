"""The rules that a kernel is judged by, as templates tell them: the checks' own figures, in words.

The text is `_rules.md`; prompts with less room take its parts `_tolerance.md` and `_precision.md`.
"""

from __future__ import annotations

from typing import Any

from ...harness.bound.arithmetic import multiplies
from ...harness.records.parts import in_words
from ...harness.records.record import Record
from ...harness.records.tasks import Task
from ...harness.records.variations import Level
from ...harness.task.rules import (
    BEYOND,
    KINDS,
    LARGEST_CLAIMED,
    LARGEST_SHARE,
    LEVELS,
    OWN_ERROR_FACTOR,
)


class Figures(Record):
    """What the rules' text takes from the checks."""

    kinds: str
    """What floating inputs hold in the cases, in their order."""
    narrower: str
    """Which tensors of the task hold less than any values, and what; empty where none does."""
    own: str
    """How many times PyTorch's own error is accepted."""
    share: str
    """Largest tolerance, of an output's root mean square."""
    largest_claimed: str
    """Size of what a reviewer may claim an input to hold."""


def rules_context(task: Task) -> dict[str, Any]:
    """Return what `_rules.md` and its parts speak of.

    `multiplies` says whether precision and tensor cores are worth a word.
    """
    narrower = "; ".join(
        f"{tensor.name}: {_how_far(task, tensor.name, level)}"
        for tensor in task.full.of_role("input", "parameter", "buffer")
        if (level := task.variation.levels.get(tensor.name, "any")) in LEVELS
        and not tensor.constant
    )
    return {
        "tolerance": task.tolerance,
        "dtype": task.dtype,
        "multiplies": multiplies(task),
        "figures": Figures(
            kinds="; ".join(KINDS.values()),
            narrower=f" ({narrower})" if narrower else "",
            own=f"{OWN_ERROR_FACTOR:g}",
            share=f"{LARGEST_SHARE:.0%}",
            largest_claimed=f"{LARGEST_CLAIMED:g}",
        ),
    }


def _how_far(task: Task, name: str, level: Level) -> str:
    """Return how far a tensor varies; what Model(...) or get_inputs() draws is drawn every time."""
    drawn = level == "own" and name not in task.variation.fixed
    if drawn:
        return "drawn anew as the reference draws it"
    beyond = [
        (f"{low:.10g}" if low == high else f"all from {low:.10g} to {high:.10g}")
        + (f" (in {name}{in_words(part)} alone)" if part else "")
        for low, high, part in task.variation.beyond(name)
    ]
    return LEVELS[level] + (BEYOND.format(" and ".join(beyond)) if beyond else "")
