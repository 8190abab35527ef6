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
BEFORE = SHARED + SHARED_CLASS + LOCAL + TASK
"""Variance before any try."""
NOISE = 0.01
"""Variance of a log gain that nothing of the context says."""
ONE_TRY = TASK + NOISE
"""Variance of what a task's tries say together of another: simulated ones of a measured kernel are
worth no more than one such, however many they are."""
PRIOR = 4.0
"""Variance of a log gain about what was believed of it without evidence."""
REACH = 0.2
"""Distance of signatures at which two kernels are 0.6 alike."""
TIME_REACH, HEADROOM_REACH, SHARE_REACH = 3.0, 1.2, 0.4
"""The same for the logarithms of time and of the time over its bound, and for shares of time."""
REPEATED = 0.25
"""How far a first use speaks for a repetition, and back."""
OTHER_CLASS, OTHER_DTYPE, OTHER_WRITER, OTHER_GPU, OTHER_FAMILY = 0.5, 0.7, 0.6, 0.95, 0.85
"""How far kernels speak for one another that are alike but for this."""
SETTING_REACH = 2.0
"""Doublings of a parameter's value at which two settings are 0.6 alike."""
NEAREST = 32
"""Tries of a technique that a question is answered by."""
EXACT, SURE = 0.01, Reliability(99.0, 1.0)
"""Spread and reliability of what was done to this very kernel before, and passed."""
CONTRARY = 0.3
"""Difference of two log gains under like circumstances from which the later doubts the earlier."""
SHORT, RESULTS = 0.12, 3
"""So many results of a technique and writer in a row, each so far below its forecast, refute what
they were forecast by: earlier gains as far above all of them count no more."""


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
    expected: float | None = None
    """Log gain that was forecast before it was tried; None where nobody noted it."""


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
        row, codes = self._row(self._launch(situation), action, column)
        value = math.nan if tried.log_gain is None else tried.log_gain
        key = _identity(situation, action)
        if key in self._known:
            column.replace(self._known[key][1], value, tried)
            return
        self._known[key] = action.technique, column.append(row, codes, value, tried)
        column.compare(action.writer, tried.expected)

    def refused(self, situation: Situation, action: Action) -> bool:
        """Say whether this very action failed on this very kernel: it is out."""
        found = self._known.get(_identity(situation, action))
        return found is not None and self._by_technique[found[0]].failed(found[1])

    def forecasts(self, asked: Sequence[Question]) -> list[Forecast]:
        """Return what to expect of each action, in the order asked."""
        found: dict[int, Forecast] = {}
        seen: dict[int, tuple[list[float], list[int], float]] = {}
        by_technique: dict[tuple[str, str, str], list[int]] = {}
        for place, (situation, action, _) in enumerate(asked):
            case = action.technique, situation.op_class, action.writer
            by_technique.setdefault(case, []).append(place)
            if id(situation) not in seen:
                seen[id(situation)] = (*self._launch(situation), most_gain(situation))
        for case, places in by_technique.items():
            technique, passes = case[0], self.failures.reliability(*case)
            questions = [asked[place] for place in places]
            launches = [seen[id(each.situation)] for each in questions]
            means, spreads, tries = self._expected(technique, questions, launches)
            for place, (_, _, cap), mean, spread in zip(
                places, launches, means, spreads, strict=True
            ):
                found[place] = Forecast(min(mean, cap), spread, cap, passes, tries)
                gain = self._remembered(asked[place])
                if gain is not None:
                    found[place] = Forecast(gain, EXACT, cap, SURE, tries)
        return [found[place] for place in range(len(asked))]

    def _remembered(self, question: Question) -> float | None:
        """Return what came of this very action on this very kernel; None where nothing is known."""
        found = self._known.get(_identity(question.situation, question.action))
        return None if found is None else self._by_technique[found[0]].passed(found[1])

    def _expected(
        self,
        technique: str,
        questions: Sequence[Question],
        launches: Sequence[tuple[list[float], list[int], float]],
    ) -> tuple[list[float], list[float], float]:
        """Return means and spreads of the log gains, and the number of tries they rest on."""
        priors = np.array(
            [min(each.prior, most) for each, (_, _, most) in zip(questions, launches, strict=True)]
        )
        column = self._by_technique.get(technique)
        if column is None or not column.count:
            none = np.zeros(len(questions))
            return *_with_priors(none, none + BEFORE, priors), 0.0
        rows, codes = zip(
            *(
                self._row(launch[:2], each.action, column)
                for each, launch in zip(questions, launches, strict=True)
            ),
            strict=True,
        )
        here, marks = np.array(rows, np.float32), np.array(codes, np.int32)
        near = column.nearest(here, marks, NEAREST)
        x, c = column.rows[near], column.codes[near]
        gains, errors, refuted = column.told[near].T
        covariance, alike = _covariance(
            np.concatenate([x, here]), np.concatenate([c, marks]), x, c
        )
        among, across = covariance[: len(x)], covariance[len(x) :]
        failed = np.isnan(gains)
        noise = NOISE + errors**2 + _doubts(alike[: len(x)], np.where(failed, -FAILURE_COST, gains))
        foreign = c[:, _KIND] != marks[0, _KIND]
        if foreign.any():
            noise[foreign] = np.maximum(noise[foreign], foreign.sum() * ONE_TRY)
        noise[failed | (refuted > 0.0)] = 1e6
        among.flat[:: len(x) + 1] += noise
        told = np.where(failed, 0.0, gains)
        solved = np.linalg.solve(among, np.concatenate([told[:, None], across.T], axis=1))
        variances = np.maximum(BEFORE - (across * solved[:, 1:].T).sum(1), 1e-6)
        means, spreads = _with_priors(across @ solved[:, 0], variances, priors)
        return means, spreads, float(len(x) - failed.sum())

    def _launch(self, situation: Situation) -> tuple[list[float], list[int]]:
        """Return what distances are taken of, in units of their reach, and what is alike or not."""
        headroom = math.log(situation.microseconds / (situation.bound_us or situation.microseconds))
        row = [
            *(value / REACH for value in embed(situation.signature)),
            math.log(situation.microseconds) / TIME_REACH,
            headroom / HEADROOM_REACH,
            situation.share / SHARE_REACH,
        ]
        words = (
            f"task {situation.task}", f"class {situation.op_class}", situation.dtype,
            situation.gpu, situation.family,
        )  # fmt: skip
        codes = [self._words.setdefault(word, len(self._words)) for word in words]
        return row, [*codes, int(situation.simulated)]

    def _row(
        self, launch: tuple[list[float], list[int]], action: Action, column: _Column
    ) -> tuple[list[float], list[int]]:
        """Return the same of an action on a launch."""
        values = column.setting(action.setting)
        earlier = column.setting(action.earlier) if action.earlier else values
        row = [
            *launch[0],
            *(value / SETTING_REACH for value in values),
            *((new - old) / SETTING_REACH for new, old in zip(values, earlier, strict=True)),
        ]
        writer = f"writer {action.writer}"
        codes = self._words.setdefault(writer, len(self._words)), int(action.earlier is not None)
        return row, [*launch[1], *codes]


def most_gain(situation: Situation) -> float:
    """Return the log gain that no action on a launch can exceed: by its share, by the bound."""
    by_share = math.inf if situation.share >= 1.0 else -math.log1p(-situation.share)
    if situation.bound_us is None:
        return by_share
    return min(by_share, max(0.0, math.log(situation.microseconds / situation.bound_us)))


_TASK, _CLASS, _DTYPE, _GPU, _FAMILY, _KIND, _WRITER, _REPEATED = range(8)
_FOREIGN = np.zeros(8)
_FOREIGN[[_CLASS, _DTYPE, _GPU, _FAMILY, _WRITER]] = np.log(
    [OTHER_CLASS, OTHER_DTYPE, OTHER_GPU, OTHER_FAMILY, OTHER_WRITER]
)
_PARAMETERS = 3
"""Numbers of a setting that are looked at, in alphabetical order of their names."""


def _covariance(
    x: NDArray[np.float32], c: NDArray[np.int32], y: NDArray[np.float32], d: NDArray[np.int32]
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Return the covariances of log gains of two lots of tries, and how alike the kernels are."""
    squares = (x * x).sum(1)[:, None] + (y * y).sum(1)[None, :] - 2.0 * (x @ y.T)
    differs = c[:, None, :] != d[None, :, :]
    alike = np.exp(differs @ _FOREIGN - 0.5 * np.maximum(squares, 0.0))
    shared = SHARED + SHARED_CLASS + TASK + LOCAL * alike
    shared -= SHARED_CLASS * differs[:, :, _CLASS] + TASK * differs[:, :, _TASK]
    use = np.where(differs[:, :, _REPEATED], REPEATED, 1.0)
    return use * shared, use * alike


def _with_priors(
    means: NDArray[np.float64], variances: NDArray[np.float64], priors: NDArray[np.float64]
) -> tuple[list[float], list[float]]:
    """Return means and spreads of log gains, what is believed without evidence taken in."""
    trust = PRIOR / (PRIOR + variances)
    joined = trust * means + (1.0 - trust) * priors
    return joined.tolist(), np.sqrt(trust * variances + NOISE).tolist()


def _doubts(
    alike: NDArray[np.float64], values: NDArray[np.float64]
) -> NDArray[np.float64]:
    """Return the noise that later, contrary results under like circumstances add to each try.

    A later failure is contrary to a gain too. Rows are in order of arrival.
    """
    apart = (values[:, None] - values[None, :]) / CONTRARY
    doubts = np.triu(alike, 1) * np.maximum(apart * apart - 1.0, 0.0)
    noise: NDArray[np.float64] = NOISE * doubts.sum(axis=1)
    return noise


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
        self._short: dict[str, list[int]] = {}
        """By writer: places of the newest results in a row that fell short of their forecasts."""
        self._names: list[str] = []
        self._rows = np.empty((0, 0), np.float32)
        self._codes = np.empty((0, 0), np.int32)
        self._squares = np.empty((0, 1), np.float32)
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
    def told(self) -> NDArray[np.float64]:
        """Log gain (NaN where it failed), its standard error, and 1 where it counts no more."""
        return self._told[: self.count]

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
            self._squares = _grown(self._squares, length, 1)
            self._told = _grown(self._told, length, 3)
        place, self.count = self.count, self.count + 1
        self._rows[place], self._codes[place] = row, codes
        self._squares[place] = self._rows[place] @ self._rows[place]
        self.replace(place, gain, tried)
        return place

    def replace(self, place: int, gain: float, tried: Tried) -> None:
        """Set what came of a try."""
        self._told[place] = gain, tried.standard_error, 0.0

    def compare(self, writer: str, expected: float | None) -> None:
        """Set the newest try beside its forecast; what is refuted by now counts no more."""
        if expected is None:
            return
        place = self.count - 1
        gain = -FAILURE_COST if self.failed(place) else self._told[place, 0]
        if expected - gain < SHORT:
            self._short.pop(writer, None)
            return
        short = self._short[writer] = [*self._short.get(writer, []), place][-RESULTS:]
        if len(short) == RESULTS:
            gains = np.nan_to_num(self._told[: self.count, 0], nan=-FAILURE_COST)
            same = self._codes[: short[0], _WRITER] == self._codes[place, _WRITER]
            above = gains[: short[0]] > gains[short].max() + SHORT
            self._told[: short[0], 2][same & above] = 1.0

    def passed(self, place: int) -> float | None:
        """Return the log gain of a try that passed and that nothing refuted, else None."""
        gain, _, refuted = self._told[place]
        return None if np.isnan(gain) or refuted else float(gain)

    def failed(self, place: int) -> bool:
        """Say whether a try failed."""
        return bool(np.isnan(self._told[place, 0]))

    def nearest(
        self, here: NDArray[np.float32], marks: NDArray[np.int32], most: int
    ) -> NDArray[np.intp]:
        """Return the places of the tries nearest to some kernels' middle, in order of arrival."""
        if self.count <= most:
            return np.arange(self.count)
        rows, codes = self.rows, self.codes
        middle = here.mean(0)
        away = self._squares[: self.count, 0] - 2.0 * (rows @ middle)
        away += np.float32(2.0) * (codes[:, _CLASS] != marks[0, _CLASS])
        away += np.float32(8.0) * (codes[:, _KIND] != marks[0, _KIND])
        away -= np.float32(8.0) * (codes[:, _TASK] == marks[0, _TASK])
        return np.sort(np.argpartition(away, most)[:most])


def _grown(array: NDArray[Any], length: int, width: int) -> NDArray[Any]:
    grown = np.zeros((length, width), array.dtype, order="F" if array.dtype == np.int32 else "C")
    if len(array):
        grown[: len(array)] = array
    return grown
