"""The built-in selector's ways to choose: by belief, the best, or any."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest

from kernelblaster.memory.records.policy import ExpectedGain
from kernelblaster.nodes.common.randomness import explores
from kernelblaster.nodes.optimization_selector.builtin import select
from kernelblaster.nodes.records.choices import Proposal
from kernelblaster.nodes.records.plan import RunPlan

PLACES = [(0, rollout, step) for rollout in range(3) for step in range(100)]


def proposal(technique: str, score: float) -> Proposal:
    expected = ExpectedGain(
        mean_log=score, std_log=0.1, success_probability=0.95, passed=20.0, failed=1.0,
        trials=9.0, score=score,
    )  # fmt: skip
    return Proposal(technique=technique, source="knowledge base", expected=expected)


PROPOSALS = (proposal("best", 1.5), proposal("good", 0.3), proposal("bad", -0.5))


def chosen(**settings: Any) -> Counter[tuple[bool, str]]:
    """Return how often each technique is chosen, by whether it is the first rollout."""
    plan = RunPlan.model_construct(**{"seed": 1, "choice": "sampled", "memory": "live", **settings})
    found: Counter[tuple[bool, str]] = Counter()
    for iteration, rollout, step in PLACES:
        choice = select(
            PROPOSALS, plan, iteration=iteration, rollout=rollout, step=step, source_sha256="s"
        )
        assert choice is not None
        found[rollout == 0, choice.technique] += 1
    return found


def test_sampled_follows_belief_and_explores() -> None:
    found = chosen()
    assert found[True, "best"] == 100 and found[False, "best"] > 150
    assert found[False, "good"] > 0, "the first step of an exploring rollout does as no other"


def test_greedy_takes_the_highest_expectation_in_every_rollout() -> None:
    assert chosen(choice="greedy") == {(True, "best"): 100, (False, "best"): 200}
    plan = RunPlan.model_construct(choice="greedy")
    assert not explores(plan, 1), "its writer draws no parameters, its steps accept no detours"


@pytest.mark.parametrize("settings", [{"choice": "random"}, {"memory": "off"}])
def test_random_draws_with_equal_chances_whatever_is_believed(settings: dict[str, str]) -> None:
    found = chosen(**settings)
    for first, expected in ((True, 100 / 3), (False, 200 / 3)):
        for each in PROPOSALS:
            assert abs(found[first, each.technique] - expected) < 20, found
    assert found == chosen(**settings)
    assert found != chosen(**settings, seed=2)
