"""A snapshot told in figures: how much it holds, and what it says of each state."""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Any

from ..records.evidence import Evidence
from ..records.lessons import Lesson
from ..records.optimizations import Optimization
from .policy.facts import comparable
from .snapshots.snapshot import Snapshot


def counts(
    snapshot: Snapshot, *, techniques: int, overturned: int, kernels: int
) -> dict[str, int]:
    """Return how many there are of what a snapshot holds, by name; some are counted by others."""
    rows, states = snapshot.evidence(), snapshot.states()
    return {
        "sequence": snapshot.at,
        "states": len(states),
        "discovered_states": sum(state.origin == "discovered" for state in states),
        "techniques": techniques,
        "evidence": len(rows),
        "overturned": overturned,
        "evidence_simulated": sum(row.device_kind == "simulated" for row in rows),
        "passed": sum(row.log_gain is not None for row in rows),
        "improved": sum((row.log_gain or 0.0) > 0.0 for row in rows),
        "lessons": len(snapshot.lessons()),
        "kernels": kernels,
        "runs": len({row.run for row in rows}),
        "tasks": len({row.task_id for row in rows}),
    }


def shown(snapshot: Snapshot, device_kind: str) -> list[dict[str, Any]]:
    """Return each state with its techniques: the prior, and what evidence there says.

    JSON values. `mean_log_gain` is None where no try passed; only evidence and lessons of
    comparable devices are counted.
    """
    rows = [row for row in snapshot.evidence() if comparable(row.device_kind, device_kind)]
    by_state: dict[str, list[Evidence]] = {}
    for row in rows:
        by_state.setdefault(snapshot.place(row), []).append(row)
    table = snapshot.optimizations(device_kind)
    return [
        {
            "id": state.id,
            "name": state.name,
            "origin": state.origin,
            "primary": state.primary,
            "secondary": state.secondary,
            "description": state.description,
            "evidence": state.count,
            "optimizations": [
                _summary(optimization, by_state.get(state.id, []))
                for _, optimization in sorted(table.get(state.id, {}).items())
            ],
            "lessons": told(snapshot.lessons(state=state.id), device_kind),
        }
        for state in snapshot.states()
    ]


def told(lessons: Iterable[Lesson], device_kind: str) -> list[dict[str, Any]]:
    """Return lessons of comparable devices as JSON values."""
    return [
        {"kind": item.kind, "text": item.text, "contested": item.contested}
        for item in lessons
        if comparable(item.device_kind, device_kind)
    ]


def _summary(optimization: Optimization, rows: list[Evidence]) -> dict[str, Any]:
    tries = [row for row in rows if row.technique == optimization.technique]
    gains = [row.log_gain for row in tries if row.log_gain is not None]
    return {
        "technique": optimization.technique,
        "prior_log_gain": optimization.prior_log_gain,
        "tries": len(tries),
        "passed": len(gains),
        "mean_log_gain": math.fsum(gains) / len(gains) if gains else None,
    }
