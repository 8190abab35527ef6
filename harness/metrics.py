"""What is computed over many finished runs: shares, means, quartiles, policies side by side."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from typing import Any, Literal

import numpy as np
from pydantic import Field, model_validator

from .bound.speed_of_light import score
from .records.record import Integer, Record
from .records.timings import Provenance

Against = Literal["initial", "eager", "compile", "pytorch"]
"""What a kernel's time is set beside: `pytorch` is the faster of eager and torch.compile."""


class TaskOutcome(Record):
    """What one policy came to on one task under one seed; what failed is one too.

    The times are of one provenance and, where a device can do that, of the same rounds.
    """

    task: str
    """Which task: the same word under every policy."""
    policy: str
    seed: Integer = 0
    outcome: str
    """improved, not_improved, unconfirmed, or why there is no result: failed, no_first_kernel, ...
    Only the first two are valid."""
    provenance: Provenance | None = None
    """Whose numbers the times are; None where there is no time."""
    initial_us: float | None = Field(default=None, gt=0)
    """Microseconds of the initial kernel."""
    best_us: float | None = Field(default=None, gt=0)
    """Microseconds of the winner, measured again; None where nothing valid was announced."""
    eager_us: float | None = Field(default=None, gt=0)
    """PyTorch eager; None where it was not measured, as on the simulated device."""
    compile_us: float | None = Field(default=None, gt=0)
    """torch.compile; None where it was not measured."""
    bound_us: float | None = Field(default=None, ge=0)
    """Speed of light (`SpeedOfLight.microseconds`)."""
    gain: float | None = Field(default=None, gt=0)
    """The initial kernel's time over the winner's as the run announced it, of paired rounds; where
    it is None, initial_us / best_us."""
    uncertainty: float = Field(default=0.0, ge=0)
    """What its ratios may be too large by, relative: the gain over the lower end of its interval,
    less 1. Of a run that was stored without it, 0."""
    evaluations: int = 0
    """Distinct sources evaluated, the initial kernel included."""
    outcomes: dict[str, int] = Field(default_factory=dict)
    """These evaluations by outcome."""
    tokens: int = 0
    """Of models, input and output."""
    money: float | None = None
    """Dollars; None where no call has a price."""
    seconds: float = 0.0
    """Working time of the run, all sittings."""
    device_seconds: float = 0.0
    """Of these, seconds that the device worked: GPU-seconds on a GPU."""

    @property
    def valid(self) -> bool:
        """Whether the run announced a kernel that held."""
        return self.outcome in VALID

    @model_validator(mode="after")
    def _only_what_holds_has_a_time(self) -> TaskOutcome:
        if self.valid != (self.best_us is not None):
            raise ValueError(f"{self.outcome} with best_us {self.best_us}: only a kernel that held"
                             " has a time, and each that held has one")  # fmt: skip
        if self.valid and (self.initial_us is None or self.provenance is None):
            raise ValueError("a kernel that held has the initial one's time and a provenance")
        return self


VALID = frozenset({"improved", "not_improved"})
"""Outcomes of runs whose announced kernel held when it was measured again."""

_SHAKES = 2000
"""Samples of a bootstrap."""

FEWEST_TASKS = 6
"""Tasks from which on two policies can be said to differ: that five of five go one way happens by
chance once in 16 times, and an interval drawn over one task has no width at all."""


class Spread(Record):
    """How ratios are spread."""

    count: int
    geometric_mean: float
    median: float
    lower_quartile: float
    upper_quartile: float
    minimum: float
    maximum: float


class Interval(Record):
    """An estimate with the ends of its 95 % interval."""

    estimate: float
    low: float
    high: float


class Summary(Record):
    """What one policy came to on tasks; failures are in every denominator."""

    policy: str
    against: Against
    runs: int
    """Tasks times seeds."""
    valid: int
    """Runs whose announced kernel held."""
    failed: dict[str, int]
    """The others, by outcome."""
    without_baseline: int
    """Runs whose ratio is not known because what it is against was not measured: they count as
    1.0."""
    ratios: Spread
    """Of all runs: a failure counts as its initial kernel does, and as 1.0 at best."""
    valid_ratios: Spread | None
    """Of the valid runs alone; None where none is."""
    fast: dict[float, float]
    """fast_p by p."""
    score: Spread | None
    """Of S, over the runs where it is known; a failure has what its initial kernel has, 0.5 at
    best."""
    evaluations: int
    outcomes: dict[str, int]
    """Candidates by outcome, of all runs."""
    passed: float | None
    """Share of the candidates that passed; None where there was none."""
    tokens: int
    money: float | None
    """Dollars of the runs that have a price; None where none has."""
    minutes: float
    device_seconds: float
    log_gain_per_million_tokens: float | None
    """Natural logarithm of the gains against the initial kernels, all together, for a million
    tokens; None where no model was asked."""


class Difference(Record):
    """Two policies on the same tasks: the quotient of their geometric means, and its interval."""

    first: str
    second: str
    against: Against
    tasks: int
    """Those that both have."""
    only_one: int
    """Tasks that one of the two lacks: in none of the figures."""
    ratio: Interval
    """Geometric mean of the first over the second's: above 1 the first is better."""
    fast: Interval
    """fast_1 of the first less that of the second."""
    tells: bool
    """Whether the interval of the ratio leaves out 1, and there are tasks enough to say so."""


def ratio(outcome: TaskOutcome, against: Against) -> float | None:
    """Return how many times as fast as something the winner is; None where a time is missing.

    A run that is not valid has none.
    """
    if not outcome.valid or outcome.best_us is None:
        return None
    if against == "initial" and outcome.gain is not None:
        return outcome.gain
    base = _base(outcome, against)
    return None if base is None else base / outcome.best_us


def counted(outcome: TaskOutcome, against: Against) -> float:
    """Return the ratio with which a run counts in a mean: no run is left out.

    What failed leaves its initial kernel, and counts as that does, 1.0 at best: nobody has to use
    it. Where even that is not known, or what it is against was not measured, it is 1.0.
    """
    known = ratio(outcome, against)
    if known is not None:
        return known
    base = _base(outcome, against)
    if outcome.valid or base is None or outcome.initial_us is None:
        return 1.0
    return min(1.0, base / outcome.initial_us)


def fast_p(outcomes: Sequence[TaskOutcome], p: float, against: Against) -> float:
    """Return the share of all runs that are valid and more than p times as fast.

    By more than their ratios may be off, on every device: what is announced as no improvement is
    not faster than its initial kernel here.

    Raises:
        ValueError: there is no run.
    """
    _require(outcomes)
    fast = [
        each for each in outcomes
        if (r := ratio(each, against)) is not None and r > p * (1 + each.uncertainty)
    ]  # fmt: skip
    return len(fast) / len(outcomes)


def spread(values: Sequence[float]) -> Spread:
    """Return mean, quartiles and ends of positive numbers.

    Raises:
        ValueError: there is none.
    """
    _require(values)
    lower, median, upper = np.quantile(values, (0.25, 0.5, 0.75))
    return Spread(
        count=len(values),
        geometric_mean=_geometric_mean(np.array(values)),
        median=float(median),
        lower_quartile=float(lower),
        upper_quartile=float(upper),
        minimum=min(values),
        maximum=max(values),
    )


def run_score(outcome: TaskOutcome) -> float | None:
    """Return S of a run (`bound.speed_of_light.score`), with the faster of eager and compile, or
    without them the initial kernel, as the base.

    A run that failed has what its initial kernel has, 0.5 at best, and 0 where it has none. None
    where no bound is known of a run that ended.
    """
    base = _base(outcome, "pytorch") or outcome.initial_us
    if base is None or outcome.bound_us is None:
        return None if outcome.valid else 0.0
    if outcome.best_us is not None:
        return score(outcome.best_us, outcome.bound_us, base)
    left = score(outcome.initial_us or base, outcome.bound_us, base)
    return None if left is None else min(0.5, left)


def summarize(
    outcomes: Sequence[TaskOutcome],
    against: Against = "pytorch",
    thresholds: Sequence[float] = (0.5, 0.8, 1.0, 1.5, 2.0),
) -> Summary:
    """Return what one policy came to.

    Raises:
        ValueError: there is no run, there are several policies, or times of two provenances.
    """
    _require(outcomes)
    policies = {each.policy for each in outcomes}
    if len(policies) > 1:
        raise ValueError(f"a summary is of one policy: {', '.join(sorted(policies))}")
    _require_one_provenance(outcomes)
    valid = [each for each in outcomes if each.valid]
    known = [r for each in outcomes if (r := ratio(each, against)) is not None]
    scores = [s for each in outcomes if (s := run_score(each)) is not None]
    verdicts: Counter[str] = Counter()
    for each in outcomes:
        verdicts.update(each.outcomes)
    tokens = sum(each.tokens for each in outcomes)
    gained = sum(math.log(counted(each, "initial")) for each in outcomes)
    money = [each.money for each in outcomes if each.money is not None]
    tried = sum(verdicts.values())
    return Summary(
        policy=outcomes[0].policy,
        against=against,
        runs=len(outcomes),
        valid=len(valid),
        failed=dict(sorted(Counter(each.outcome for each in outcomes if not each.valid).items())),
        without_baseline=sum(_base(each, against) is None for each in outcomes),
        ratios=spread([counted(each, against) for each in outcomes]),
        valid_ratios=spread(known) if known else None,
        fast={p: fast_p(outcomes, p, against) for p in thresholds},
        score=spread(scores) if scores else None,
        evaluations=sum(each.evaluations for each in outcomes),
        outcomes=dict(sorted(verdicts.items())),
        passed=verdicts["passed"] / tried if tried else None,
        tokens=tokens,
        money=sum(money) if money else None,
        minutes=sum(each.seconds for each in outcomes) / 60,
        device_seconds=sum(each.device_seconds for each in outcomes),
        log_gain_per_million_tokens=1e6 * gained / tokens if tokens else None,
    )


def compare_policies(
    first: Sequence[TaskOutcome],
    second: Sequence[TaskOutcome],
    against: Against = "pytorch",
    seed: int = 0,
) -> Difference:
    """Return how two policies compare on the tasks that both have, with bootstrap intervals.

    Tasks are drawn, each with both policies' runs: what makes a task hard makes it hard for both.
    Seeds of a task are averaged. The same seed gives the same intervals.

    Raises:
        ValueError: no task in common, several policies on one side, or times of two provenances.
    """
    _require_one_provenance([*first, *second])
    sides = [_by_task(outcomes, against) for outcomes in (first, second)]
    tasks = sorted(sides[0].keys() & sides[1].keys())
    if not tasks:
        raise ValueError("the two policies have no task in common")
    logs, fast = (
        np.array([[side[task][column] for side in sides] for task in tasks]) for column in (0, 1)
    )
    drawn = np.random.default_rng(seed).integers(len(tasks), size=(_SHAKES, len(tasks)))
    ratios = _interval(logs[:, 0] - logs[:, 1], drawn)
    quotient = Interval(**{name: math.exp(value) for name, value in ratios.model_dump().items()})
    return Difference(
        first=first[0].policy,
        second=second[0].policy,
        against=against,
        tasks=len(tasks),
        only_one=len(sides[0].keys() ^ sides[1].keys()),
        ratio=quotient,
        fast=_interval(fast[:, 0] - fast[:, 1], drawn),
        tells=len(tasks) >= FEWEST_TASKS and (quotient.low > 1 or quotient.high < 1),
    )


def mean_interval(
    outcomes: Sequence[TaskOutcome], against: Against = "pytorch", seed: int = 0
) -> Interval:
    """Return the geometric mean of one policy's ratios with its bootstrap interval over tasks.

    Raises:
        ValueError: there is no run, there are several policies, or times of two provenances.
    """
    _require_one_provenance(outcomes)
    logs = np.array([log for log, _ in _by_task(outcomes, against).values()])
    drawn = np.random.default_rng(seed).integers(len(logs), size=(_SHAKES, len(logs)))
    found = _interval(logs, drawn)
    return Interval(**{name: math.exp(value) for name, value in found.model_dump().items()})


def _by_task(
    outcomes: Sequence[TaskOutcome], against: Against
) -> dict[str, tuple[float, float]]:
    """Return of each task the mean log ratio and the share above 1 over its seeds."""
    _require(outcomes)
    policies = {each.policy for each in outcomes}
    if len(policies) > 1:
        raise ValueError(f"one side is of one policy: {', '.join(sorted(policies))}")
    tasks: dict[str, list[TaskOutcome]] = {}
    for each in outcomes:
        tasks.setdefault(each.task, []).append(each)
    return {
        task: (
            float(np.mean([math.log(counted(each, against)) for each in runs])),
            fast_p(runs, 1.0, against),
        )
        for task, runs in sorted(tasks.items())
    }


def _interval(values: np.ndarray[Any, Any], drawn: np.ndarray[Any, Any]) -> Interval:
    mean = float(values.mean())
    low, high = np.quantile(values[drawn].mean(axis=1), (0.025, 0.975))
    return Interval(estimate=mean, low=min(float(low), mean), high=max(float(high), mean))


def _base(outcome: TaskOutcome, against: Against) -> float | None:
    if against == "initial":
        return outcome.initial_us
    if against == "pytorch":
        times = [time for time in (outcome.eager_us, outcome.compile_us) if time is not None]
        return min(times, default=None)
    return outcome.eager_us if against == "eager" else outcome.compile_us


def _geometric_mean(values: np.ndarray[Any, Any]) -> float:
    with np.errstate(divide="ignore"):  # Of what failed a score is zero, and so is their mean.
        return float(np.exp(np.log(values).mean()))


def _require(values: Sequence[object]) -> None:
    if not values:
        raise ValueError("there is nothing to compute a figure of")


def _require_one_provenance(outcomes: Sequence[TaskOutcome]) -> None:
    found = {each.provenance for each in outcomes if each.provenance is not None}
    if len(found) > 1:
        raise ValueError(f"times of {' and '.join(sorted(found))} are never compared or averaged")
