"""The paper's own database, read as knowledge: whose words mean what, and how much they count."""

from __future__ import annotations

import math
from typing import Any

import pytest

from kernelblaster.memory.knowledge.exchange.published_database import (
    LARGEST_GAIN,
    MENTIONED_STRENGTH,
    is_published_database,
    read_published_database,
)
from kernelblaster.tools.techniques.catalogue import knowledge_seed

SEED = knowledge_seed()


def listed(technique: str, speedup: float | None = None, **more: object) -> dict[str, Any]:
    told = {"technique": technique, "actual_speedup": speedup, "usage_count": 3 if speedup else 0}
    return {**told, "predicted_improvement": None, "last_updated": None, **more}


def database(*techniques: dict[str, Any]) -> dict[str, Any]:
    situation = {
        "optimizations": list(techniques),
        "primary_bottleneck": "Shared memory bank conflicts",
        "secondary_characteristics": "bank conflicts serialise warps",
    }
    return {"known_states": {}, "optimization_strategies": {"bank_conflicts": situation}}


def test_situations_and_techniques_are_told_by_their_words() -> None:
    value = database(listed("vectorized_memory_access"), listed("zero_copy", description="d"))
    assert is_published_database(value) and not is_published_database({"format": "x"})
    taken = read_published_database(value, SEED, run="import")
    assert taken.states == {"bank_conflicts": "shared_bank_conflicts"}
    assert taken.renamed == {"vectorized_memory_access": "vectorize_memory_access"}
    assert taken.new == ("zero_copy",)


@pytest.mark.parametrize(
    ("speedup", "gain", "strength"),
    [(None, 0.0, MENTIONED_STRENGTH), (1.5, math.log(1.5), 0.5), (100.0, LARGEST_GAIN, 0.5)],
)
def test_what_was_measured_counts_a_little_and_what_was_not_is_a_mention(
    speedup: float | None, gain: float, strength: float
) -> None:
    value = database(listed("zero_copy", speedup, confidence_score=0.5))
    (entry,) = read_published_database(value, SEED, run="import").update.optimizations
    assert entry.optimization.prior_log_gain == pytest.approx(gain)
    assert entry.optimization.prior_strength == strength
    assert entry.device_kind == "cuda"  # It says nothing of the simulated device.


def test_a_mention_leaves_a_prior_of_the_seed_alone() -> None:
    state, known = next((state, next(iter(under))) for state, under in SEED.optimizations.items()
                        if state == "shared_bank_conflicts")  # fmt: skip
    value = database(listed(known))
    assert read_published_database(value, SEED, run="import").update.optimizations == ()
    (entry,) = read_published_database(
        database(listed(known, 2.0)), SEED, run="import"
    ).update.optimizations
    assert (entry.state_id, entry.optimization.technique) == (state, known)


@pytest.mark.parametrize(
    "odd", [{"technique": ""}, {"technique": "t", "actual_speedup": -1.0}, "text"]
)
def test_what_is_damaged_is_refused(odd: Any) -> None:
    with pytest.raises(ValueError):
        read_published_database(database(odd), SEED, run="import")
