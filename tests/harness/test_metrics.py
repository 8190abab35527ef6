"""Figures over runs, by hand-computed cases: nothing is dropped, and failures count."""

from __future__ import annotations

import math
from typing import Any

import pytest

from kernelblaster.harness.metrics import (
    TaskOutcome,
    compare_policies,
    counted,
    fast_p,
    mean_interval,
    ratio,
    run_score,
    spread,
    summarize,
)
from kernelblaster.harness.records.timings import Provenance


def won(task: str, best: float, **changes: Any) -> TaskOutcome:
    """A run whose kernel takes `best` us; the initial one takes 100, eager 40, compile 20."""
    given: dict[str, Any] = {
        "task": task, "policy": "a", "outcome": "improved", "provenance": Provenance.EVENTS,
        "initial_us": 100.0, "best_us": best, "eager_us": 40.0, "compile_us": 20.0,
        "bound_us": 5.0, "evaluations": 4, "outcomes": {"passed": 3, "race": 1}, "tokens": 1000,
        "money": 0.5, "seconds": 60.0, "device_seconds": 6.0,
    }  # fmt: skip
    return TaskOutcome(**{**given, **changes})


def lost(task: str, outcome: str = "failed", **changes: Any) -> TaskOutcome:
    given = {"best_us": None, "provenance": None, "initial_us": None, "evaluations": 1,
             "outcomes": {"wrong_answer": 1}}  # fmt: skip
    return won(task, 1.0, **{"outcome": outcome, **given, **changes})


@pytest.mark.parametrize(
    ("against", "expected"), [("initial", 10.0), ("eager", 4.0), ("compile", 2.0), ("pytorch", 2.0)]
)
def test_a_ratio_is_of_the_other_time_over_the_winners(against: Any, expected: float) -> None:
    assert ratio(won("t", 10.0), against) == expected


def test_the_gain_of_paired_rounds_comes_before_the_quotient_of_two_times() -> None:
    assert ratio(won("t", 10.0, gain=9.5), "initial") == 9.5


def test_a_failure_counts_as_its_initial_kernel_and_never_above_one() -> None:
    assert counted(lost("t"), "pytorch") == 1.0
    slow = lost("t", "unconfirmed", initial_us=100.0, provenance=Provenance.EVENTS)
    assert (counted(slow, "pytorch"), counted(slow, "initial")) == (0.2, 1.0)
    assert counted(lost("t", initial_us=10.0), "pytorch") == 1.0


def test_what_was_not_measured_beside_pytorch_counts_as_one_and_is_shown() -> None:
    alone = won("t", 10.0, eager_us=None, compile_us=None)
    assert (ratio(alone, "pytorch"), counted(alone, "pytorch")) == (None, 1.0)
    assert summarize([alone]).without_baseline == 1


def test_fast_p_has_every_run_in_its_denominator_and_is_strict() -> None:
    runs = [won("a", 10.0), won("b", 20.0), won("c", 80.0), lost("d")]
    assert fast_p(runs, 1.0, "pytorch") == 0.25
    assert fast_p(runs, 0.5, "pytorch") == 0.5
    assert fast_p(runs, 0.0, "pytorch") == 0.75
    assert fast_p(runs, 2.0, "pytorch") == 0.0


@pytest.mark.parametrize(("uncertainty", "share"), [(0.0, 1.0), (0.01, 0.0)])
def test_what_a_ratio_may_be_off_by_is_not_faster(uncertainty: float, share: float) -> None:
    hardly = won("a", 100.0, gain=1.0000068, uncertainty=uncertainty)
    assert fast_p([hardly], 1.0, "initial") == share
    assert fast_p([won("a", 50.0, uncertainty=0.01)], 1.0, "initial") == 1.0


def test_a_spread_by_hand() -> None:
    found = spread([1.0, 2.0, 4.0, 8.0])
    assert found.geometric_mean == pytest.approx(8 ** 0.5)
    assert (found.lower_quartile, found.median, found.upper_quartile) == (1.75, 3.0, 5.0)
    assert (found.minimum, found.maximum, found.count) == (1.0, 8.0, 4)


def test_a_summary_by_hand() -> None:
    runs = [won("a", 10.0), won("b", 5.0), lost("c"), lost("d", "no_first_kernel", outcomes={})]
    found = summarize(runs, thresholds=(1.0, 3.0))
    assert (found.runs, found.valid) == (4, 2)
    assert found.failed == {"failed": 1, "no_first_kernel": 1}
    assert found.fast == {1.0: 0.5, 3.0: 0.25}
    assert found.ratios.geometric_mean == pytest.approx((2 * 4 * 1 * 1) ** 0.25)
    assert found.valid_ratios is not None
    assert found.valid_ratios.geometric_mean == pytest.approx(8 ** 0.5)
    assert found.outcomes == {"passed": 6, "race": 2, "wrong_answer": 1}
    assert found.passed == pytest.approx(6 / 9)
    assert (found.tokens, found.money) == (4000, 2.0)
    assert (found.minutes, found.device_seconds) == (4.0, 24.0)
    gained = 1e6 * (math.log(10) + math.log(20)) / 4000
    assert found.log_gain_per_million_tokens == pytest.approx(gained)
    # S of 10 us: 1 / (1 + 5 / 15); of the bound itself 1; of what failed 0.5.
    assert found.score is not None and found.score.count == 4
    assert (found.score.maximum, found.score.minimum) == (1.0, 0.5)
    assert run_score(runs[0]) == pytest.approx(0.75)


def test_the_score_of_a_run_without_pytorch_is_against_the_initial_kernel() -> None:
    alone = won("t", 100.0, outcome="not_improved", eager_us=None, compile_us=None)
    assert run_score(alone) == 0.5
    assert run_score(alone.model_copy(update={"bound_us": None})) is None


def test_a_run_that_never_had_a_kernel_scores_nothing_and_is_not_left_out() -> None:
    nothing = lost("t", eager_us=None, compile_us=None, bound_us=None)
    assert run_score(nothing) == 0.0
    found = summarize([won("a", 10.0), *(nothing.model_copy(update={"task": n}) for n in "bcde")])
    assert found.score is not None
    assert (found.score.count, found.score.median, found.score.maximum) == (5, 0.0, 0.75)


def test_simulated_and_measured_times_never_meet() -> None:
    with pytest.raises(ValueError, match="never compared"):
        summarize([won("a", 10.0), won("b", 10.0, provenance=Provenance.SIMULATED)])


def test_a_failure_has_no_time_and_a_success_has_one() -> None:
    with pytest.raises(ValueError, match="only a kernel that held"):
        won("t", 10.0, outcome="failed")
    with pytest.raises(ValueError, match="only a kernel that held"):
        won("t", 10.0, best_us=None)


def test_policies_are_compared_on_the_tasks_that_both_have() -> None:
    tasks = [f"t{k}" for k in range(20)]
    first = [won(task, 10.0 + k % 3) for k, task in enumerate(tasks)]
    second = [won(task, 2 * (10.0 + k % 3), policy="b") for k, task in enumerate(tasks)]
    found = compare_policies(first, [*second, won("else", 1.0, policy="b")])
    # Twice as fast on every task: the interval has no width, however unlike the tasks are.
    assert found.ratio.model_dump() == pytest.approx({"estimate": 2.0, "low": 2.0, "high": 2.0})
    assert (found.tasks, found.only_one, found.tells) == (20, 1, True)
    # 20 us against compile's 20 is not above it; 20/11 and 20/12 are no more than one either way.
    assert found.fast.estimate == 1.0


def test_intervals_are_the_same_each_time_and_widen_where_policies_disagree() -> None:
    tasks = [f"t{k}" for k in range(12)]
    first = [won(task, 10.0) for task in tasks]
    second = [won(task, 5.0 if k % 2 else 20.0, policy="b") for k, task in enumerate(tasks)]
    found = compare_policies(first, second)
    assert found == compare_policies(first, second)
    assert found.ratio.low < 1.0 < found.ratio.high and not found.tells
    # The mean of twelve, each log 2 or its opposite.
    assert found.ratio.low == pytest.approx(math.exp(-1.96 * math.log(2) / 12**0.5), rel=0.1)
    assert compare_policies(second, first).ratio.estimate == pytest.approx(1.0)


def test_seeds_of_a_task_are_one_task() -> None:
    """Else the same task, run more often, would count more often."""
    runs = [won("a", 10.0, seed=k) for k in range(9)] + [won("b", 40.0)]
    assert mean_interval(runs).estimate == pytest.approx((2.0 * 0.5) ** 0.5)


def test_nothing_is_no_figure() -> None:
    with pytest.raises(ValueError, match="nothing to compute"):
        fast_p([], 1.0, "eager")
    with pytest.raises(ValueError, match="no task in common"):
        compare_policies([won("a", 1.0)], [won("b", 1.0, policy="b")])
