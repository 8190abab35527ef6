"""Edits of the policy in words: what changes, where, and why."""

from __future__ import annotations

import math
from collections.abc import Mapping

from ...memory.records.edits import (
    AddMacro,
    AddTechnique,
    Deprecate,
    Edit,
    JoinStates,
    RenameState,
    Revise,
)
from .experience import gain_text


def edit_text(edit: Edit, state_names: Mapping[str, str] | None = None) -> str:
    """Return an edit in one line; `state_names` are those of states by id."""
    return f"{_what(edit, state_names or {})}: {edit.reason}"


def technique_of(edit: Edit) -> str | None:
    """Return the technique that an edit is about; None where it is about states."""
    if isinstance(edit, AddTechnique | AddMacro):
        return edit.card.technique
    return edit.technique if isinstance(edit, Revise | Deprecate) else None


def _what(edit: Edit, names: Mapping[str, str]) -> str:
    def called(state: str) -> str:
        return f'"{names.get(state, state)}"'

    if isinstance(edit, Revise):
        where = f" in {called(edit.state)}" if edit.state else ""
        return f"{edit.technique}{where}, revision {edit.revision}: {'; '.join(_revised(edit))}"
    if isinstance(edit, AddTechnique):
        return (
            f"{edit.card.technique} listed in {called(edit.state)}, expected "
            f"{gain_text(edit.card.prior_log_gain)}"
        )
    if isinstance(edit, AddMacro):
        steps = " then ".join(step.technique for step in edit.card.steps)
        return f"{steps} listed as one in {called(edit.state)}"
    if isinstance(edit, Deprecate):
        by = f" by {edit.writer}" if edit.writer else ""
        return f"{edit.technique} not to be tried again in {edit.op_class}{by}"
    if isinstance(edit, JoinStates):
        return f"{', '.join(map(called, edit.states))} joined into {called(edit.into)}"
    if isinstance(edit, RenameState):
        return f'{called(edit.state)} renamed "{edit.name}"'
    return f"{called(edit.state)} split where {edit.condition}"


def _revised(edit: Revise) -> list[str]:
    parts = [f"only where {condition}" for condition in edit.conditions]
    if edit.correction:
        parts.append(f"its expected gain times {math.exp(edit.correction):.2f}")
    parts += [f"{name} first {values[:1]}" for name, values in sorted(edit.parameters.items())]
    if edit.notes:
        parts.append(f"noted: {edit.notes}")
    return parts
