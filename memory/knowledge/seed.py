"""What every knowledge base starts from: states and priors of seed.json, cards of techniques."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from importlib import resources
from typing import Any

from ..records.evidence import Evidence
from ..records.optimizations import Optimization
from ..records.states import PerformanceState
from .states.signature import centroid_of


@dataclass(frozen=True)
class Seed:
    """Performance states with their optimizations, and every technique without its prior."""

    version: str
    states: tuple[PerformanceState, ...]
    optimizations: dict[str, dict[str, Optimization]]
    """By state id, then technique."""
    techniques: dict[str, Optimization]
    """By name, with a neutral prior: for a state the seed does not know."""
    formerly: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    """By technique: today's name of a parameter, by the name that older evidence has it under."""

    def in_todays_words(self, row: Evidence) -> Evidence:
        """Return a row with its parameters under today's names; its stored id is of the old."""
        renamed = self.formerly.get(row.technique, {})
        if renamed.keys().isdisjoint(row.parameters):
            return row
        parameters = {
            name if renamed.get(name, name) in row.parameters else renamed[name]: value
            for name, value in row.parameters.items()
        }
        return row.model_copy(update={"parameters": parameters})

    def with_todays_parameters(self, optimization: Optimization) -> Optimization:
        """Return an optimization that was learned with the parameters that its technique has now.

        They are the technique's own; one that only a model described keeps what it said.
        """
        card = self.techniques.get(optimization.technique)
        if card is None:
            return optimization
        return optimization.model_copy(update={"parameters": card.parameters})


def load_seed(
    cards: Iterable[Optimization], formerly: Mapping[str, Mapping[str, str]] | None = None
) -> Seed:
    """Read the states and priors shipped with the package, and join them to the techniques' cards.

    Args:
        cards: of each technique, with a neutral prior.
        formerly: by technique, today's name of a parameter by its former one.

    Raises:
        ValueError: a state names a technique or a signature feature that does not exist.
    """
    text = resources.files(__package__).joinpath("seed.json").read_text(encoding="utf-8")
    document = json.loads(text)
    techniques = {card.technique: card for card in cards}
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
        formerly=formerly or {},
    )


def _state(entry: dict[str, Any]) -> PerformanceState:
    return PerformanceState(
        id=entry["id"],
        name=entry["name"],
        primary=entry["primary"],
        secondary=entry.get("secondary"),
        centroid=centroid_of(entry["signature"], alone=True)
        if entry.get("alone")
        else centroid_of({**entry["signature"], f"bound_{entry['primary']}": 1.0}),
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
