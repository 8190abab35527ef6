"""What to expect of a technique on this very kernel: regression on context, from evidence.

An action is (technique, launch, setting); its log gain, where it passes, is a Gaussian process over
the context: what all tries of the technique share, what those on one class of operation share, what
kernels with like profiles share, and an effect of each task, whose tries are no independent
samples. First use and repetition hardly speak for each other, nor do far apart settings. It is
solved for each technique by the tries nearest to the kernel, so that a question costs about the
same whatever is remembered. Whether a try passes is asked of `failures`.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from .failures import Failures, Reliability
from .signature import embed

FAILURE_COST = 0.05
"""What a try that fails costs, in log speedup: about what a small step would have gained."""

SHARED, SHARED_CLASS, LOCAL, TASK = 0.15, 0.10, 0.35, 0.10
"""Variances of log gains of one technique: what all tries share, those on one class of operation,
kernels with like profiles, and the effect of a task."""
NOISE = 0.02
"""Variance of a log gain that nothing of the context says."""
REACH = 0.12
"""Distance of signatures at which two kernels are 0.6 alike."""
BYTES_REACH, HEADROOM_REACH, SHARE_REACH = 3.0, 1.2, 0.4
"""The same for the logarithms of time and of the time over its bound, and for shares of time."""
REPEATED = 0.25
"""How far a first use speaks for a repetition, and back."""
OTHER_CLASS, OTHER_DTYPE, OTHER_WRITER, OTHER_GPU, OTHER_FAMILY = 0.5, 0.7, 0.6, 0.95, 0.85
"""How far kernels speak for one another that are alike but for this."""
SETTING_REACH = 2.0
"""Doublings of a parameter's value at which two settings are 1/e alike."""
NEAREST = 48
"""Tries of a technique that a question is answered by."""
CONTRARY = 0.3
"""Difference of two log gains under like circumstances from which the later doubts the earlier."""


class Situation(NamedTuple):
    """A launch of a kernel before anything is tried on it."""

    task: str
    op_class: str
    dtype: str
    gpu: str
    family: str
    simulated: bool
    signature: tuple[float, ...]
    """Of the launch."""
    share: float
    """Of the program's time that the launches of its kernel take (Amdahl)."""
    microseconds: float
    """Of the program."""
    bound_us: float | None
    """That no kernel of the task can be faster than."""
    source: str = ""
    """Name of the source: what was refused of it is refused again."""


class Action(NamedTuple):
    """What can be done to it."""

    technique: str
    launch: str = ""
    setting: Mapping[str, Any] = {}
    earlier: Mapping[str, Any] | None = None
    """Setting with which the lineage has it applied to this launch; None at a first use."""
    writer: str = "builtin"
    """Who is to write it: the library's rewrite, or a model by name."""


class Forecast(NamedTuple):
    """What to expect of an action, before it is tried."""

    mean: float
    """Of the log gain of this try, given that it passes."""
    spread: float
    """Standard deviation of the same."""
    cap: float
    """Log gain that the launch's share of the time, or the task's bound, allows at most."""
    passes: Reliability
    tries: float
    """Tries of the technique that it rests on."""

    @property
    def value(self) -> float:
        """Expected log gain of trying, failures taken in: what actions are ordered by."""
        return self._worth(self.passes.probability, self.mean)

    def sample(self, generator: np.random.Generator) -> float:
        """Draw one plausible value of trying."""
        success = float(generator.beta(self.passes.passed, self.passes.failed))
        return self._worth(success, min(float(generator.normal(self.mean, self.spread)), self.cap))

    def chances(self, least: float) -> tuple[float, float, float]:
        """Return the probabilities that it fails, gains no more than `least`, and gains more."""
        success = self.passes.probability
        more = 0.5 * math.erfc((least - self.mean) / (self.spread * math.sqrt(2.0)))
        return 1.0 - success, success * (1.0 - more), success * more

    def _worth(self, success: float, gain: float) -> float:
        return success * gain - (1.0 - success) * FAILURE_COST


class Question(NamedTuple):
    """An action on a launch, with what is believed of it before any try."""

    situation: Situation
    action: Action
    prior: float = 0.0
    """Log gain expected without evidence: the seed's, or a technique's card."""


class Tried(NamedTuple):
    """What came of an action."""

    situation: Situation
    action: Action
    log_gain: float | None
    """None where it failed."""
    reason: str = ""
    """Why it failed: an outcome's name."""
    standard_error: float = 0.0
    """Of the log gain."""
    prior: float = 0.0
    """Log gain that was expected without evidence."""


class Expectations:
    """All tries so far, in arrays; each is added once and asked for at near-constant cost."""

    def __init__(self) -> None:
        self.failures = Failures()
        self._known: dict[object, tuple[str, int]] = {}
        self._by_technique: dict[str, _Column] = {}
        self._words: dict[str, int] = {}

    def __len__(self) -> int:
        return len(self._known)

    def add(self, tried: Tried) -> None:
        """Take what came of an action; told again, it stands where it stood."""
        situation, action = tried.situation, tried.action
        self.failures.add(
            action.technique, situation.op_class, action.writer, tried.reason,
            tried.log_gain is not None, _identity(situation, action),
        )  # fmt: skip
        column = self._by_technique.setdefault(action.technique, _Column())
        row, codes = self._row(situation, action, column)
        value = math.nan if tried.log_gain is None else tried.log_gain
        key = _identity(situation, action)
        if key in self._known:
            column.replace(self._known[key][1], value, tried)
            return
        self._known[key] = action.technique, column.append(row, codes, value, tried)

    def refused(self, situation: Situation, action: Action) -> bool:
        """Say whether this very action failed on this very kernel: it is out."""
        found = self._known.get(_identity(situation, action))
        return found is not None and self._by_technique[found[0]].failed(found[1])

    def forecasts(self, asked: Sequence[Question]) -> list[Forecast]:
        """Return what to expect of each action, in the order asked."""
        found: dict[int, Forecast] = {}
        by_technique: dict[str, list[int]] = {}
        for place, question in enumerate(asked):
            by_technique.setdefault(question.action.technique, []).append(place)
        for technique, places in by_technique.items():
            questions = [asked[place] for place in places]
            means, spreads, tries = self._expected(technique, questions)
            for place, question, mean, spread in zip(
                places, questions, means, spreads, strict=True
            ):
                situation, action = question.situation, question.action
                cap = most_gain(situation)
                passes = self.failures.reliability(technique, situation.op_class, action.writer)
                found[place] = Forecast(min(mean, cap), spread, cap, passes, tries)
        return [found[place] for place in range(len(asked))]

    def _expected(
        self, technique: str, questions: Sequence[Question]
    ) -> tuple[list[float], list[float], float]:
        """Return means and spreads of the log gains, and the number of tries they rest on."""
        priors = np.array([each.prior for each in questions])
        column = self._by_technique.get(technique)
        before = SHARED + SHARED_CLASS + LOCAL + TASK
        if column is None or not column.count:
            spread = math.sqrt(before + NOISE)
            return priors.tolist(), [spread] * len(questions), 0.0
        rows, codes = zip(
            *(self._row(each.situation, each.action, column) for each in questions), strict=True
        )
        here, marks = np.array(rows, np.float32), np.array(codes, np.int32)
        near = column.nearest(here, marks, NEAREST)
        x, c = column.rows[near], column.codes[near]
        among, alike = _covariance(x, c, x, c)
        gains = column.gains[near]
        noise = NOISE + column.errors[near] ** 2 + _doubts(alike, gains)
        foreign = c[:, _KIND] != marks[0, _KIND]
        noise[foreign] = np.maximum(noise[foreign], foreign.sum() * (NOISE + TASK))
        noise[np.isnan(gains)] = 1e6
        told = np.where(np.isnan(gains), 0.0, gains - column.priors[near])
        across, _ = _covariance(here, marks, x, c)
        among[np.diag_indices_from(among)] += noise
        solved = np.linalg.solve(among, np.column_stack([told, across.T]))
        means = priors + across @ solved[:, 0]
        variances = before - np.einsum("ij,ji->i", across, solved[:, 1:])
        spreads = np.sqrt(np.maximum(variances, 0.0) + NOISE)
        return means.tolist(), spreads.tolist(), float(np.isfinite(gains).sum())

    def _row(
        self, situation: Situation, action: Action, column: _Column
    ) -> tuple[list[float], list[int]]:
        """Return what distances are taken of, in units of their reach, and what is alike or not."""
        values = column.setting(action.setting)
        earlier = column.setting(action.earlier) if action.earlier else values
        headroom = math.log(situation.microseconds / (situation.bound_us or situation.microseconds))
        row = [
            *(value / REACH for value in embed(situation.signature)),
            math.log(situation.microseconds) / BYTES_REACH,
            headroom / HEADROOM_REACH,
            situation.share / SHARE_REACH,
            *(value / SETTING_REACH for value in values),
            *((new - old) / SETTING_REACH for new, old in zip(values, earlier, strict=True)),
        ]
        words = (
            f"task {situation.task}", f"class {situation.op_class}", situation.dtype,
            f"writer {action.writer}", situation.gpu, situation.family,
        )  # fmt: skip
        codes = [self._words.setdefault(word, len(self._words)) for word in words]
        return row, [*codes, int(action.earlier is not None), int(situation.simulated)]


def most_gain(situation: Situation) -> float:
    """Return the log gain that no action on a launch can exceed: by its share, by the bound."""
    by_share = math.inf if situation.share >= 1.0 else -math.log1p(-situation.share)
    if situation.bound_us is None:
        return by_share
    return min(by_share, max(0.0, math.log(situation.microseconds / situation.bound_us)))


_TASK, _CLASS, _DTYPE, _WRITER, _GPU, _FAMILY, _REPEATED, _KIND = range(8)
_PARAMETERS = 3
"""Numbers of a setting that are looked at, in alphabetical order of their names."""


def _alike(left: NDArray[np.int32], right: NDArray[np.int32], place: int) -> NDArray[np.bool_]:
    return left[:, None, place] == right[None, :, place]


def _covariance(
    x: NDArray[np.float32], c: NDArray[np.int32], y: NDArray[np.float32], d: NDArray[np.int32]
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Return the covariances of log gains of two lots of tries, and how alike the kernels are."""
    squares = (x * x).sum(1)[:, None] + (y * y).sum(1)[None, :] - 2.0 * (x @ y.T)
    alike = np.exp(-0.5 * np.maximum(squares.astype(np.float64), 0.0))
    for place, factor in (
        (_CLASS, OTHER_CLASS), (_DTYPE, OTHER_DTYPE), (_WRITER, OTHER_WRITER),
        (_GPU, OTHER_GPU), (_FAMILY, OTHER_FAMILY),
    ):  # fmt: skip
        alike *= np.where(_alike(c, d, place), 1.0, factor)
    use = np.where(_alike(c, d, _REPEATED), 1.0, REPEATED)
    shared = SHARED + SHARED_CLASS * _alike(c, d, _CLASS) + TASK * _alike(c, d, _TASK)
    return use * (shared + LOCAL * alike), use * alike


def _doubts(alike: NDArray[np.float64], gains: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return the noise that later, contrary results under like circumstances add to each try.

    A later failure is contrary to a gain too. Rows are in order of arrival.
    """
    values = np.where(np.isnan(gains), -FAILURE_COST, gains)
    apart = np.abs(values[:, None] - values[None, :]) / CONTRARY
    return NOISE * (np.triu(alike, 1) * np.maximum(apart**2 - 1.0, 0.0)).sum(1)


def _identity(situation: Situation, action: Action) -> tuple[object, ...]:
    """Return what a try is told again by: of the same source, or (without one) never."""
    if not situation.source:
        return (object(),)
    return (
        situation.task, situation.source, situation.gpu, situation.simulated, action.technique,
        action.launch, str(sorted(action.setting.items())), action.writer,
    )  # fmt: skip


class _Column:
    """The tries of one technique, in arrays that grow by doubling."""

    def __init__(self) -> None:
        self.count = 0
        self._names: list[str] = []
        self._rows = np.empty((0, 0), np.float32)
        self._codes = np.empty((0, 0), np.int32)
        self._told = np.empty((0, 3))

    @property
    def rows(self) -> NDArray[np.float32]:
        """What distances are taken of."""
        return self._rows[: self.count]

    @property
    def codes(self) -> NDArray[np.int32]:
        """What is alike or not."""
        return self._codes[: self.count]

    @property
    def gains(self) -> NDArray[np.float64]:
        """Log gains, NaN where it failed."""
        return self._told[: self.count, 0]

    @property
    def errors(self) -> NDArray[np.float64]:
        """Their standard errors."""
        return self._told[: self.count, 1]

    @property
    def priors(self) -> NDArray[np.float64]:
        """What was expected of each without evidence."""
        return self._told[: self.count, 2]

    def setting(self, given: Mapping[str, Any]) -> list[float]:
        """Return the numbers of a setting as logarithms, each parameter in a place of its own."""
        found = [0.0] * _PARAMETERS
        for name, value in sorted(given.items()):
            if name not in self._names and len(self._names) < _PARAMETERS:
                self._names.append(name)
            if name in self._names and isinstance(value, int | float) and value > 0:
                found[self._names.index(name)] = math.log2(value)
        return found

    def append(self, row: list[float], codes: list[int], gain: float, tried: Tried) -> int:
        """Add a try; return its place."""
        if self.count == len(self._rows):
            length = max(16, 2 * self.count)
            self._rows = _grown(self._rows, length, len(row))
            self._codes = _grown(self._codes, length, len(codes))
            self._told = _grown(self._told, length, 3)
        place, self.count = self.count, self.count + 1
        self._rows[place], self._codes[place] = row, codes
        self.replace(place, gain, tried)
        return place

    def replace(self, place: int, gain: float, tried: Tried) -> None:
        """Set what came of a try."""
        self._told[place] = gain, tried.standard_error, tried.prior

    def failed(self, place: int) -> bool:
        """Say whether a try failed."""
        return bool(np.isnan(self._told[place, 0]))

    def nearest(
        self, here: NDArray[np.float32], marks: NDArray[np.int32], most: int
    ) -> NDArray[np.intp]:
        """Return the places of the tries nearest to any of some kernels, in order of arrival."""
        if self.count <= most:
            return np.arange(self.count)
        rows, codes = self.rows, self.codes
        away = (rows * rows).sum(1)[:, None] - 2.0 * (rows @ here.T) + (here * here).sum(1)
        away = away.min(1)
        away += 2.0 * (codes[:, _CLASS] != marks[0, _CLASS])
        away -= 8.0 * (codes[:, _TASK] == marks[0, _TASK])
        return np.sort(np.argpartition(away, most)[:most])


def _grown(array: NDArray[Any], length: int, width: int) -> NDArray[Any]:
    grown = np.zeros((length, width), array.dtype)
    if len(array):
        grown[: len(array)] = array
    return grown
