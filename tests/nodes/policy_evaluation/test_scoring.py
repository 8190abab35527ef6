"""Forecasts are scored against what came of them, and what was off is named."""

from __future__ import annotations

import math
from typing import Any

import pytest

from kernelblaster.memory.records.evidence import Step
from kernelblaster.nodes.policy_evaluation.builtin import evaluate
from kernelblaster.nodes.policy_evaluation.scoring import score


def step(log_gain: float | None, at: int = 0, **changes: Any) -> Step:
    values: dict[str, Any] = {
        "run": "r", "iteration": 0, "rollout": 0, "step": at, "state_id": "s", "technique": "t",
        "expected_log_gain": 0.2, "forecast_std": 0.1, "forecast_pass": 0.75,
        "outcome": "race" if log_gain is None else "passed", "log_gain": log_gain,
        "parent_sha256": "p", "microseconds_before": 2.0, "bottleneck_before": "dram",
        "author": "builtin", "evidence_id": f"row {at}",
    }  # fmt: skip
    return Step(**{**values, **changes})


def test_a_score_says_how_far_off_and_to_which_side() -> None:
    found = score([step(0.3), step(-0.2, 1), step(0.2, 2), step(None, 3)])
    assert found.rows == 4
    assert found.off == pytest.approx((0.1 + 0.4 + 0.0) / 3)
    assert found.bias == pytest.approx((0.1 - 0.4 + 0.0) / 3)
    assert found.covered == pytest.approx(2 / 3)
    assert found.pass_log_loss == pytest.approx(-(3 * math.log(0.75) + math.log(0.25)) / 4)
    assert list(found.worst.items())[0] == ("row 1", -0.4)


def test_without_a_forecast_of_that_kind_there_is_no_score_of_it() -> None:
    found = score([step(0.3, forecast_std=None, forecast_pass=None)])
    assert (found.covered, found.pass_log_loss) == (None, None) and found.off is not None
    assert score([step(None, forecast_pass=None)]).off is None
    assert score([step(None, forecast_pass=1.0)]).pass_log_loss == pytest.approx(-math.log(0.01))


@pytest.mark.parametrize(
    ("gains", "since"), [((0.2, 0.5, 0.6), 1), ((0.6, -0.2, 0.6), 2), ((0.6, 0.6, 0.25), None)]
)
def test_a_review_says_since_when_a_technique_is_off(
    gains: tuple[float, ...], since: int | None
) -> None:
    *earlier, last = (step(gain, at, iteration=at) for at, gain in enumerate(gains))
    found = evaluate(2, [last], {}, earlier)
    assert found.reviews[0].off_since == since
    assert found.earlier is not None and found.earlier.rows == 2
