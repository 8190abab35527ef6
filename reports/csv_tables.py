"""Figures of runs as comma-separated values, for spreadsheets and scripts: a row a step."""

from __future__ import annotations

import csv
import io
import json
import math
from collections.abc import Iterable, Sequence
from typing import Any

from .reading import RunAccount

STEP_COLUMNS = (
    "run", "task", "policy", "gpu", "provenance", "iteration", "rollout", "step", "state",
    "technique", "parameters", "expected_gain", "outcome", "gain", "microseconds_before",
    "microseconds_after", "gain_over_initial", "state_author", "choice_author", "author",
    "parent_sha256", "child_sha256", "reason",
)  # fmt: skip


def steps_csv(runs: Iterable[RunAccount]) -> str:
    """Return the steps of runs; iterations, rollouts and steps count from 1 as in a report."""
    return as_csv(STEP_COLUMNS, [row for run in runs for row in _rows(run)])


def _rows(run: RunAccount) -> list[tuple[Any, ...]]:
    initial = run.initial
    return [
        (
            run.plan.run_id, run.name, run.plan.policy, run.plan.gpu,
            initial.provenance if initial else "", step.iteration + 1, step.rollout + 1,
            step.step + 1, run.state_names.get(step.state_id, step.state_id), step.technique,
            json.dumps(step.parameters, sort_keys=True), math.exp(step.expected_log_gain),
            step.outcome, None if step.log_gain is None else math.exp(step.log_gain),
            step.microseconds_before, step.microseconds_after,
            initial.microseconds / step.microseconds_after
            if initial and step.microseconds_after else None,
            step.state_author, step.choice_author, step.author, step.parent_sha256,
            step.child_sha256, step.reason,
        )
        for step in run.steps
    ]  # fmt: skip


def as_csv(columns: Sequence[str], rows: Iterable[Sequence[Any]]) -> str:
    """Return rows under their columns; None is empty."""
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow(columns)
    for row in rows:
        writer.writerow([_cell(value) for value in row])
    return out.getvalue()


def _cell(value: Any) -> Any:
    """Return a cell; a text that a spreadsheet would compute is given as text."""
    if isinstance(value, str) and value[:1] in ("=", "+", "-", "@", "\t", "\r"):
        return f"'{value}"
    return "" if value is None else value
