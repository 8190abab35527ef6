"""The optimization database that comes with the paper's own program, read as knowledge of ours.

Its `optimization_database.json` (github.com/NVlabs/KernelBlaster, data/kernelblaster) lists
techniques under situations named in words, with a predicted and, once a run has used them, a
measured speedup each. A situation becomes the state of ours whose words are nearest, a technique
the one of ours whose name has the same words, else a new one. What was measured there becomes a
prior of one observation at most; what was only predicted is worth no more than a mention.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

from pydantic import Field, ValidationError

from ....harness.errors import told_of
from ....harness.records.record import Record
from ...records.optimizations import Optimization, StateOptimization
from ...records.update import KnowledgeUpdate
from ..retrieval.words import Rarity, ranked, stems
from ..seed import Seed

AUTHOR = "import"
MEASURED_STRENGTH, MENTIONED_STRENGTH = 1.0, 0.25
"""Observations that a prior is worth which rests on a speedup measured there, and on none."""
LARGEST_GAIN = 1.0
"""Log gain to which a speedup of theirs is cut: its task and its baseline are not known."""
SAME_NAME = 0.7
"""Share of the words of two names that must agree for them to be of one technique."""
SAYS_NOTHING = frozenset(stems("optimization technique pattern usage strategies"))
"""Stems of words that make no technique another."""


class Listed(Record):
    """A technique as their file has it; what else it says is not read."""

    model_config = Record.model_config | {"extra": "ignore"}

    technique: str = Field(min_length=1, max_length=120)
    description: str = ""
    category: str = ""
    actual_speedup: float | None = Field(default=None, gt=0, allow_inf_nan=False)
    usage_count: int = 0
    confidence_score: float = Field(default=0.5, ge=0, le=1)


class Situation(Record):
    """A situation as their file has it."""

    model_config = Record.model_config | {"extra": "ignore"}

    optimizations: tuple[Listed, ...] = ()
    primary_bottleneck: str = ""
    secondary_characteristics: str = ""


class Taken(NamedTuple):
    """What became of their file."""

    update: KnowledgeUpdate
    states: dict[str, str]
    """By their situation: id of the state of ours."""
    renamed: dict[str, str]
    """Of their techniques, those that are one of ours, with its name."""
    new: tuple[str, ...]
    """Those that none of ours is."""


def is_published_database(value: Any) -> bool:
    """Say whether a value read from JSON is such a file."""
    return isinstance(value, dict) and isinstance(value.get("optimization_strategies"), dict)


def read_published_database(value: Any, seed: Seed, *, run: str) -> Taken:
    """Return what a base of ours can learn from their file.

    Args:
        value: its JSON.
        seed: states and techniques of ours.
        run: what the update is kept under: applied again under the same name, it changes nothing.

    Raises:
        ValueError: it is damaged; says where.
    """
    try:
        situations = {
            name: Situation.model_validate(each)
            for name, each in value["optimization_strategies"].items()
        }
    except ValidationError as error:
        raise ValueError(told_of(error)) from error
    states, renamed, new = {}, {}, []
    entries: dict[tuple[str, str], StateOptimization] = {}
    for name, situation in situations.items():
        states[name] = _state(name, situation, seed)
        for listed in situation.optimizations:
            ours = _technique(listed.technique, seed)
            if ours is None:
                new.append(listed.technique)
            elif ours != listed.technique:
                renamed[listed.technique] = ours
            entry = _entry(states[name], ours or listed.technique, listed, seed)
            known = ours in seed.optimizations.get(states[name], {})
            if listed.actual_speedup is not None or not known:
                entries.setdefault((entry.state_id, entry.optimization.technique), entry)
    update = KnowledgeUpdate(run=run, iteration=0, optimizations=tuple(entries.values()))
    return Taken(update, states, renamed, tuple(dict.fromkeys(new)))


def _state(name: str, situation: Situation, seed: Seed) -> str:
    """Return the state of ours whose words are nearest."""
    texts = [f"{state.id} {state.name} {state.description}" for state in seed.states]
    said = f"{name} {situation.primary_bottleneck} {situation.secondary_characteristics}"
    texts = [text.replace("_", " ") for text in texts]
    order = ranked(said.replace("_", " "), texts, Rarity(texts))
    return seed.states[order[0] if order else 0].id


def _technique(name: str, seed: Seed) -> str | None:
    """Return the technique of ours of the same name, in other words or none."""
    wanted = _words(name)
    shares = [
        (len(wanted & words) / len(wanted | words), ours)
        for ours in seed.techniques if (words := _words(ours))
    ]  # fmt: skip
    share, ours = max(shares, key=lambda each: (each[0], each[1]), default=(0.0, ""))
    return ours if share >= SAME_NAME else None


def _words(name: str) -> frozenset[str]:
    return frozenset(stems(name.replace("_", " "))) - SAYS_NOTHING


def _entry(state: str, technique: str, listed: Listed, seed: Seed) -> StateOptimization:
    measured = listed.actual_speedup is not None and listed.usage_count > 0
    gain = math.log(listed.actual_speedup or 1.0) if measured else 0.0
    card = seed.techniques.get(technique) or Optimization(
        technique=technique,
        description=listed.description or technique.replace("_", " "),
        applies_when="not said where it was imported from",
        avoid_when="not said where it was imported from",
        side_effects="not said",
        notes=f"Imported from the paper's database ({listed.category or 'no category'}).",
        prior_log_gain=0.0,
        prior_strength=MENTIONED_STRENGTH,
    )
    strength = MEASURED_STRENGTH * listed.confidence_score if measured else 0.0
    return StateOptimization(
        state_id=state,
        optimization=card.model_copy(
            update={
                "prior_log_gain": min(max(gain, -LARGEST_GAIN), LARGEST_GAIN),
                "prior_strength": max(strength, MENTIONED_STRENGTH),
            }
        ),
        device_kind="cuda",
        revision=1,
        author=AUTHOR,
    )
