"""Statistics of times on samples whose truth is known, and the loop that collects them."""

from __future__ import annotations

import math
import random
from collections.abc import Callable
from typing import Any

import pytest

from kernelblaster.harness.judge.timing import (
    FEW,
    FEWEST,
    WIDER,
    Ratio,
    Stopping,
    compare,
    measure,
    median_interval,
    summary,
)


def noisy(centre: float, spread: float, count: int, seed: int) -> list[float]:
    """Return times as GPUs give them: a narrow body and, rarely, a far outlier above."""
    chance = random.Random(seed)
    return [
        centre * (1 + spread * chance.gauss(0, 1)) * (3.0 if chance.random() < 0.03 else 1.0)
        for _ in range(count)
    ]


def test_the_interval_of_a_median_covers_the_truth_as_often_as_it_says() -> None:
    covered = 0
    for seed in range(200):
        low, high = median_interval(noisy(100.0, 0.02, 60, seed), seed=seed)
        covered += low <= 100.06 and high >= 99.94
    assert 180 <= covered <= 200


def test_the_interval_of_few_samples_covers_as_often_as_it_says() -> None:
    """Twenty rounds are what most comparisons get; the bootstrap alone covers too rarely there."""
    chance, covered = random.Random(3), 0
    for seed in range(600):
        low, high = median_interval([chance.gauss(0, 1) for _ in range(20)], seed=seed)
        covered += low <= 0 <= high
    assert covered >= 0.945 * 600


@pytest.mark.parametrize("count", sorted(WIDER))
def test_an_interval_of_fewer_samples_than_lie_on_both_sides_reaches_beyond_them(
    count: int,
) -> None:
    chance, covered = random.Random(count), 0
    draws = [chance.gauss] if count == 2 else [
        chance.gauss, lambda at, spread: at + spread * chance.uniform(-1, 1),
        lambda at, spread: at + spread * (chance.expovariate(1.0) - math.log(2)),
    ]  # fmt: skip
    for draw in draws:
        for _ in range(1000):
            low, high = median_interval([draw(100.0, 1.0) for _ in range(count)])
            covered += low <= 100.0 <= high
    assert covered >= 0.945 * 1000 * len(draws)
    wild = median_interval([1.0, 50.0, 2.0, 3.0, 4.0][:count])
    assert 0 < wild[0] < 1.0 and wild[1] > 50.0


def test_more_samples_give_a_narrower_interval() -> None:
    few = median_interval(noisy(100.0, 0.05, 20, 1))
    many = median_interval(noisy(100.0, 0.05, 400, 1))
    assert many[1] - many[0] < 0.5 * (few[1] - few[0])


def test_an_interval_is_repeatable_and_holds_the_median() -> None:
    samples = noisy(10.0, 0.1, 31, 5)
    assert median_interval(samples) == median_interval(samples)
    found = summary(samples)
    assert found["low"] <= found["median"] <= found["high"]
    assert median_interval([7.0]) == (7.0, 7.0)
    with pytest.raises(ValueError, match="no samples"):
        median_interval([])


def test_a_drift_cancels_in_pairs() -> None:
    drift = [1 + 0.01 * number for number in range(60)]
    first = [100 * d * n for d, n in zip(drift, noisy(1, 0.002, 60, 1), strict=True)]
    second = [110 * d * n for d, n in zip(drift, noisy(1, 0.002, 60, 2), strict=True)]
    found = compare(first, second)
    assert found.interval[0] <= 100 / 110 <= found.interval[1]
    assert found.half_width < 0.005
    assert found.is_faster and not compare(second, first).is_faster


def test_what_is_equal_is_seldom_called_faster() -> None:
    wrong = sum(
        compare(noisy(50, 0.01, 40, seed), noisy(50, 0.01, 40, 1000 + seed)).is_faster
        for seed in range(100)
    )
    assert wrong <= 8


@pytest.mark.parametrize(
    ("first", "second"), [([], []), ([1.0], [1.0, 2.0]), ([0.0], [1.0]), ([1.0], [-1.0])]
)
def test_a_failed_measurement_is_no_ratio(first: list[float], second: list[float]) -> None:
    with pytest.raises(ValueError):
        compare(first, second)


class Recorder:
    """Writes down what it is told, as an observer."""

    def __init__(self) -> None:
        self.calls: list[tuple[str, str, int]] = []

    def before(self, name: str, round_number: int) -> None:
        self.calls.append(("before", name, round_number))

    def after(self, name: str, round_number: int) -> None:
        self.calls.append(("after", name, round_number))


def sampler(spread: float) -> Callable[[str], float]:
    chance = random.Random(3)
    centres = {"new": 90.0, "old": 100.0}
    return lambda name: centres[name] * (1 + spread * chance.gauss(0, 1))


def test_rounds_end_when_the_ratio_is_known() -> None:
    stopping = Stopping(least=20, most=400, batch=10, seconds=1e9)
    quiet = measure(["new", "old"], sampler(0.001), stopping)
    loud = measure(["new", "old"], sampler(0.05), stopping)
    assert len(quiet["new"]) == len(quiet["old"]) == 20
    assert 20 < len(loud["new"]) <= 400
    assert compare(loud["new"], loud["old"]).half_width <= 0.01 or len(loud["new"]) == 400


def test_rounds_end_when_the_budget_is_spent_but_not_before_the_least() -> None:
    clock = iter(range(0, 10**6, 3))  # seconds, at each look
    stopping = Stopping(least=30, most=400, batch=10, seconds=5, patience=1e9)
    found = measure(["new", "old"], sampler(0.2), stopping, clock=lambda: float(next(clock)))
    assert 30 <= len(found["new"]) <= 40


def test_where_rounds_take_seconds_there_are_as_many_as_an_interval_takes() -> None:
    clock = iter(range(0, 10**6, 3))
    found = measure(["new", "old"], sampler(0.2), Stopping(), clock=lambda: float(next(clock)))
    assert len(found["new"]) == FEWEST
    low, high = median_interval(found["new"])
    assert (low, high) == (min(found["new"]), max(found["new"]))


@pytest.mark.parametrize(
    ("slower", "spread", "slack", "rounds"),
    [
        (10.0, 0.01, 0.05, FEWEST),
        (10.0, 0.2, 0.05, 20),  # Not even roughly known after six rounds.
        (10.0, 0.01, 0.0, 20),  # The ratio is what was asked for.
        (1.1, 0.001, 0.05, 20),
        (0.1, 0.001, 0.05, 20),  # A fast one is to be announced.
    ],
)
def test_what_is_far_slower_is_timed_in_few_rounds(
    slower: float, spread: float, slack: float, rounds: int
) -> None:
    chance = random.Random(5)
    centres = {"candidate": slower, "eager": 1.0, "compile": 1.0}
    stopping = Stopping(slack=slack, seconds=1e9)
    found = measure(
        list(centres), lambda name: centres[name] * (1 + spread * chance.uniform(-1, 1)), stopping
    )
    assert FEWEST <= len(found["candidate"])
    assert (len(found["candidate"]) < 20) == (rounds < 20)


@pytest.mark.parametrize(
    ("slower", "spread", "slack", "rounds"),
    [
        (1.2, 0.001, 0.05, (FEWEST, 10)),
        (1.2, 0.05, 0.05, (14, 20)),  # The interval decides.
        (1.2, 0.001, 0.0, (20, 20)),  # The ratio is what was asked for.
        (0.8, 0.001, 0.05, (20, 20)),  # A fast one is to be announced.
        (1.0, 0.001, 0.05, (20, 20)),
    ],
)
def test_where_rounds_are_long_what_is_slower_is_timed_in_few(
    slower: float, spread: float, slack: float, rounds: tuple[int, int]
) -> None:
    chance, now = random.Random(5), [0.0]

    def run(name: str) -> float:
        now[0] += 0.05
        centre = slower if name == "candidate" else 1.0
        return centre * (1 + spread * chance.uniform(-1, 1))

    stopping = Stopping(slack=slack)
    found = measure(["candidate", "eager"], run, stopping, clock=lambda: now[0])
    assert rounds[0] <= len(found["candidate"]) <= rounds[1]


@pytest.mark.parametrize(
    ("slower", "spread", "asked", "rounds"),
    [
        (12.0, 0.005, {}, FEW),
        (12.0, 0.1, {}, 5),  # Three rounds say too little of it, and four.
        (8.0, 0.005, {}, FEWEST),
        (12.0, 0.005, {"few": FEWEST}, FEWEST),  # The others' times are to be kept.
        (12.0, 0.005, {"slack": 0.0}, 20),
        (0.08, 0.005, {}, 20),
    ],
)
@pytest.mark.parametrize("seconds", [0.0, 0.08])
def test_where_rounds_are_long_what_is_ten_times_slower_is_timed_in_three(
    slower: float, spread: float, asked: dict[str, Any], rounds: int, seconds: float
) -> None:
    chance, now = random.Random(5), [0.0]

    def run(name: str) -> float:
        now[0] += seconds if name == "candidate" else 0.0
        centre = slower if name == "candidate" else 1.0
        return 1e6 * seconds * centre * (1 + spread * chance.uniform(-1, 1)) or centre

    stopping = Stopping(seconds=100.0).model_copy(update=asked)
    found = measure(["candidate", "eager"], run, stopping, clock=lambda: now[0])
    assert len(found["candidate"]) == (rounds if seconds else max(rounds, FEWEST))


def test_what_is_slower_than_the_slower_baseline_alone_is_timed_in_all_rounds() -> None:
    times = {"candidate": 1.5, "eager": 10.0, "compile": 1.0}
    assert len(measure(list(times), times.__getitem__, Stopping(seconds=1e9))["eager"]) == 20


def test_slow_rounds_are_warmed_up_by_fewer_of_them() -> None:
    now, runs = [0.0], list[str]()

    def run(name: str) -> float:
        runs.append(name)
        now[0] += 0.15
        return 1.0

    stopping = Stopping(least=6, most=6, warmup=5, warmup_seconds=0.2)
    samples = measure(["a"], run, stopping, clock=lambda: now[0])
    assert len(samples["a"]) == 6 and len(runs) == 6 + 2


@pytest.mark.parametrize(
    ("slack", "seconds", "thrown_away"),
    [(0.05, 0.5, 0), (0.05, 0.07, 0), (0.05, 0.06, 2), (0.0, 0.5, 1), (0.0, 0.07, 2)],
)
def test_a_long_round_is_no_warm_up(slack: float, seconds: float, thrown_away: int) -> None:
    now, runs = [0.0], list[str]()

    def run(name: str) -> float:
        runs.append(name)
        now[0] += 1.1 * seconds
        return 1e6 * seconds * (0.8 if name == "a" else 0.2)

    samples = measure(["a", "b"], run, Stopping(slack=slack), clock=lambda: now[0])
    assert len(samples["a"]) == len(samples["b"]) >= FEWEST
    assert len(runs) == 2 * (len(samples["a"]) + thrown_away)


def test_every_run_is_observed_and_warm_up_is_thrown_away() -> None:
    watch = Recorder()
    stopping = Stopping(least=10, most=10, batch=10, warmup=2)
    found = measure(["new", "old"], sampler(0.0), stopping, observers=[watch])
    assert len(found["new"]) == 10 and len(watch.calls) == 2 * 2 * 12
    for number in range(0, len(watch.calls), 2):
        (_, name, place), after = watch.calls[number], watch.calls[number + 1]
        assert watch.calls[number][0] == "before" and after == ("after", name, place)
    orders = {tuple(name for when, name, place in watch.calls if when == "before" and place == n)
              for n in range(10)}  # fmt: skip
    assert orders == {("new", "old"), ("old", "new")}


def test_one_contestant_alone_is_measured_until_its_median_is_known() -> None:
    stopping = Stopping(least=20, most=400, batch=10, seconds=1e9)
    assert len(measure(["new"], sampler(0.0001), stopping)["new"]) == 20


def test_a_ratio_says_how_wide_it_is() -> None:
    assert Ratio(ratio=0.5, interval=(0.49, 0.51), rounds=9).half_width == pytest.approx(0.02)


@pytest.mark.parametrize(("high", "faster"), [(0.999, True), (1.0, False), (1.01, False)])
def test_faster_is_what_lies_below_one_as_a_whole(high: float, faster: bool) -> None:
    assert Ratio(ratio=0.9, interval=(0.8, high), rounds=9).is_faster is faster
