"""Macros: several techniques that are chosen and written as one."""

from __future__ import annotations

from collections.abc import Iterable

from ...harness.records.tasks import Task
from ...memory.records.optimizations import Optimization
from ..rewriting.records import Inapplicable, Outcome, Parameters, Rewritten
from ..rewriting.rewrite import Rewrite


def macro_rewrite(card: Optimization, among: Iterable[Rewrite]) -> Rewrite | None:
    """Return a macro as one rewrite, each step with the values that it is listed with.

    None where a step has no built-in rewrite, or the card is no macro.
    """
    known = {each.technique: each for each in among}
    if not card.steps or any(step.technique not in known for step in card.steps):
        return None

    def change(source: str, task: Task, _: Parameters) -> Outcome:
        notes = []
        for step in card.steps:
            made = known[step.technique].apply(source, task, step.parameters)
            if isinstance(made, Inapplicable):
                return Inapplicable(reason=f"{step.technique}: {made.reason}")
            source = made.source
            notes.append(made.note)
        return Rewritten(source=source, note="; ".join(notes))

    return Rewrite(card.technique, change)


def macro_name(card_steps: Iterable[str]) -> str:
    """Return what a sequence of techniques is called."""
    return "_then_".join(card_steps)
