"""What every knowledge base starts from: states, techniques and priors, read from seed.json."""

from __future__ import annotations

import functools
import json
from dataclasses import dataclass
from importlib import resources
from typing import Any

from ..records import Optimization, PerformanceState
from .signature import centroid_of


@dataclass(frozen=True)
class Seed:
    """Performance states with their optimizations, and every technique without its prior."""

    version: str
    states: tuple[PerformanceState, ...]
    optimizations: dict[str, dict[str, Optimization]]
    """By state id, then technique."""
    techniques: dict[str, Optimization]
    """By name, with a neutral prior: for a state the seed does not know."""


@functools.cache
def load_seed() -> Seed:
    """Read the seed shipped with the package, once in a process.

    Raises:
        ValueError: a state names a technique or a signature feature that does not exist.
    """
    text = resources.files(__package__).joinpath("seed.json").read_text(encoding="utf-8")
    document = json.loads(text)
    techniques = {
        name: Optimization(technique=name, prior_log_gain=0.0, prior_strength=0.5, **facts)
        for name, facts in document["techniques"].items()
    }
    return Seed(
        version=document["version"],
        states=tuple(_state(entry) for entry in document["states"]),
        optimizations={
            entry["id"]: {
                technique: _under_state(techniques, entry["id"], technique, prior)
                for technique, prior in entry["optimizations"].items()
            }
            for entry in document["states"]
        },
        techniques=techniques,
    )


def _state(entry: dict[str, Any]) -> PerformanceState:
    return PerformanceState(
        id=entry["id"],
        name=entry["name"],
        primary=entry["primary"],
        secondary=entry.get("secondary"),
        centroid=centroid_of({**entry["signature"], f"bound_{entry['primary']}": 1.0}),
        spread=entry["spread"],
        description=entry["description"],
        origin="seed",
    )


def _under_state(
    techniques: dict[str, Optimization], state: str, technique: str, prior: list[float]
) -> Optimization:
    if technique not in techniques:
        raise ValueError(f"seed state {state} names an unknown technique {technique}")
    log_gain, strength = prior
    return techniques[technique].model_copy(
        update={"prior_log_gain": log_gain, "prior_strength": strength}
    )
