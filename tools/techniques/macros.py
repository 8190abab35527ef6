"""Macros: several techniques that are chosen and written as one."""

from __future__ import annotations

from collections.abc import Iterable

from ...harness.records.tasks import Task
from ...memory.records.optimizations import Optimization
from ..rewriting.kernels.recognised import first_changed
from ..rewriting.records import (
    Inapplicable,
    Kernels,
    NotRecognised,
    Outcome,
    Parameters,
    Rewritten,
)
from ..rewriting.rewrite import Rewrite
from ..rewriting.source.syntax import Source


def macro_rewrite(card: Optimization, among: Iterable[Rewrite]) -> Rewrite | None:
    """Return a macro as one rewrite: all steps on one kernel, with the values that are listed.

    None where a step has no built-in rewrite, or the card is no macro.
    """
    known = {each.technique: each for each in among}
    if not card.steps or any(step.technique not in known for step in card.steps):
        return None

    def change(source: str, task: Task, _: Parameters, kernels: Kernels) -> Outcome:
        def all_steps(among: Kernels) -> Rewritten:
            text, notes = source, []
            for step in card.steps:
                made = known[step.technique].apply(text, task, step.parameters, among)
                if isinstance(made, Inapplicable):
                    raise NotRecognised(f"{step.technique}: {made.reason}")
                text = made.source
                notes.append(made.note)
            return Rewritten(source=text, note="; ".join(notes))

        found = Source(source).kernels(kernels)
        if not found:  # Templates alone, which are left as they are.
            return all_steps(())
        return first_changed(found, lambda kernel: all_steps([kernel.name]))

    return Rewrite(card.technique, change)


def macro_name(card_steps: Iterable[str]) -> str:
    """Return what a sequence of techniques is called."""
    return "_then_".join(card_steps)
