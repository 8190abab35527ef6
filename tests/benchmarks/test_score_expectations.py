"""The four gates of a policy, on recorded tries: what forecasts must hold whatever made them."""

from __future__ import annotations

import itertools
import statistics
from collections.abc import Sequence
from types import ModuleType
from typing import Any

import pytest
from places import ROOT
from scripts import import_script

NEAR = 0.02
"""Share of pairs that hangs on which tasks were recorded."""


@pytest.fixture(scope="module")
def scorer() -> ModuleType:
    import_script(ROOT / "benchmarks" / "learning" / "recorded_tries.py")
    return import_script(ROOT / "benchmarks" / "learning" / "score_expectations.py")


@pytest.fixture(scope="module")
def tries() -> Sequence[Any]:
    return import_script(ROOT / "benchmarks" / "learning" / "recorded_tries.py").recorded()


def right(scorer: ModuleType, tries: Sequence[Any], forecaster: Any) -> float:
    """Return the share of pairs ordered right by who knows nothing of the task."""
    found = scorer.ordered(tries, scorer.forecasts(tries, "task", forecaster))
    return statistics.fmean(each for of in found.values() for each in of)


def kernels(tries: Sequence[Any]) -> list[list[Any]]:
    """Return the tries of each kernel from which several were made."""
    groups = itertools.groupby(tries, key=lambda each: (each.gpu, each.task, each.kernel))
    return [found for _, group in groups if len(found := list(group)) > 1]


def test_evidence_orders_better_than_the_seed_and_shuffled_evidence_does_not(
    scorer: ModuleType, tries: Sequence[Any]
) -> None:
    regression = scorer.Regression()
    seed = right(scorer, tries, scorer.by_seed)
    assert right(scorer, tries, regression) > max(seed, 0.7)
    without = [right(scorer, tries, scorer.shuffled(regression, each)) for each in range(3)]
    assert statistics.fmean(without) <= seed + NEAR


def test_twice_the_evidence_is_never_worse(scorer: ModuleType, tries: Sequence[Any]) -> None:
    regression = scorer.Regression()
    known, asked = tries[::2], tries[1::2]
    assert regression(known, asked) == scorer.Regression(times=2)(known, asked)
    half = right(scorer, tries, scorer.halved(regression))
    assert right(scorer, tries, regression) >= half - NEAR


def test_the_same_task_replays_its_best(scorer: ModuleType, tries: Sequence[Any]) -> None:
    regression = scorer.Regression()
    told = regression.expectations(tries)
    lost = []
    for group in kernels(tries):
        left = [each for each in group if not told.refused(each.situation, each.action)]
        if not left:
            continue
        chosen = max(left, key=lambda each: regression.said(told, each).value)
        lost.append(max(map(scorer.worth, left)) - scorer.worth(chosen))
    assert len(lost) > 50 and max(lost) < 0.01


@pytest.mark.parametrize("technique", ["read_only_cache", "fast_math", "unroll_loop"])
def test_poison_is_gone_within_three_contrary_results(
    scorer: ModuleType, tries: Sequence[Any], technique: str
) -> None:
    """False gains are told of a technique in the situations of four tasks, and nothing true."""
    regression = scorer.Regression()
    honest = [each for each in tries if each.action.technique != technique]
    first = {each.task: each for each in tries if each.action.technique == technique}
    poison = [
        each._replace(
            outcome="passed", log_gain=1.5,
            situation=each.situation._replace(task=f"false {place}", source=f"{place} {number}"),
        )
        for place, each in enumerate(list(first.values())[:4])
        for number in range(6)
    ]  # fmt: skip
    told, clean = (regression.expectations([*honest, *false]) for false in (poison, []))
    cost = 0
    for group in kernels(tries):
        if all(each.action.technique != technique for each in group):
            continue
        chosen, otherwise = (
            max(group, key=lambda each: regression.said(known, each).value)
            for known in (told, clean)
        )
        if chosen.action.technique == technique:
            cost += scorer.worth(chosen) < scorer.worth(otherwise) - 0.01
            for known in (told, clean):
                regression.tell(known, chosen, regression.said(known, chosen).mean)
    assert cost <= 3
