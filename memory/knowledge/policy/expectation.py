"""What to expect of a technique on this very kernel: regression on context, from evidence.

An action is (technique, launch, setting); its log gain, where it passes, is a Gaussian process over
the context: what all tries of the technique share, what those on one class of operation share, what
kernels with like profiles share, and an effect of each task, whose tries are no independent
samples. First use and repetition hardly speak for each other, nor do far apart settings. It is
solved for each technique by the tries nearest to the kernel, so that a question costs about the
same whatever is remembered. Whether a try passes is asked of `failures`.

Nothing is ever taken away: an `Outlook` is what all tries up to a number say, whatever came since.
Of these, order is by when they were made within their runs, not by when they arrived: neither the
timing of parallel rollouts nor the order of merging changes a forecast.
"""

from __future__ import annotations

import functools
import itertools
import math
from collections.abc import Collection, Iterator, Sequence

import numpy as np
from numpy.typing import NDArray

from ....harness.gpus import known_gpu
from ...records.policy import setting_name
from ..states.distances import embed
from .actions import BUILTIN, Action, Forecast, Question, Situation, Tried, most_gain
from .failures import Reliability
from .regression import ANY, BEFORE, OF_HARNESS, Case, Gain, gains, with_priors
from .tries import PARAMETERS, Seen, Tries, numbers, reliability

REACH = 0.2
"""Distance of signatures at which two kernels are 0.6 alike."""
TIME_REACH, HEADROOM_REACH, SHARE_REACH = 3.0, 1.2, 0.4
"""The same for the logarithms of time and of the time over its bound, and for shares of time."""
EXACT, SURE = 0.01, Reliability(99.0, 1.0)
"""Spread and reliability of what was done to this very kernel before, and passed."""


class Expectations:
    """All tries so far, in arrays; each is added once and asked for at near-constant cost."""

    def __init__(self) -> None:
        self._sequence = 0
        self._columns: dict[str, Tries] = {}
        self._places: dict[tuple[object, ...], dict[tuple[object, ...], list[int]]] = {}
        """By kernel, then by what was done to it, in order of arrival."""
        self._named: dict[str, tuple[str, int]] = {}
        self._words: dict[str, int] = {}

    def __len__(self) -> int:
        """Return how many tries there are, each once however often it was told."""
        return sum(column.different for column in self._columns.values())

    def add(self, tried: Tried, sequence: int | None = None, name: str = "") -> None:
        """Take what came of an action; told again, it is one try.

        Args:
            tried: the try.
            sequence: its number, which rises from one to the next.
            name: by which it can be overturned, or be known before its number.
        """
        self._sequence = self._sequence + 1 if sequence is None else sequence
        situation, action = tried.situation, tried.action
        column = self._columns.setdefault(action.technique, Tries())
        launch, marks = self._launch(situation)
        row, codes = [*launch, *numbers(action)], [*marks, *self._uses(action)]
        run = self._words.setdefault(f"run {tried.run}", len(self._words)) if tried.run else ANY
        place = column.append(row, codes, tried, self._sequence, run)
        if situation.source:
            done = self._places.setdefault(_kernel(situation), {})
            told = done.setdefault(_deed(action), [])
            column.repeat(place, told)
            told.append(place)
        if name:
            self._named[name] = action.technique, place

    def overturn(self, name: str, tried: Tried, sequence: int) -> None:
        """Take that a try, told under a name, failed after all."""
        technique, place = self._named[name]
        self._columns[technique].end(place, sequence)
        self.add(tried._replace(log_gain=None), sequence)

    def at(self, sequence: int, own: Collection[str] = ()) -> Outlook:
        """Return what tries up to a number say, and those of given names that came later."""
        return Outlook(self, sequence, own)

    def forecasts(self, asked: Sequence[Question]) -> list[Forecast]:
        """Return what to expect of each action by all tries, in the order asked."""
        return self.at(self._sequence).forecasts(asked)

    def refused(self, situation: Situation, action: Action) -> bool:
        """Say whether this very action failed on this very kernel: it is out."""
        return self.at(self._sequence).refused(situation, action)

    def _launch(self, situation: Situation) -> tuple[list[float], list[int]]:
        """Return what distances are taken of, in units of their reach, and what is alike or not."""
        headroom = math.log(situation.microseconds / (situation.bound_us or situation.microseconds))
        row = [
            *_place(situation.signature),
            math.log(situation.microseconds) / TIME_REACH,
            headroom / HEADROOM_REACH,
            situation.share / SHARE_REACH,
        ]
        words = (
            f"task {situation.task}", f"class {situation.op_class}", situation.dtype,
            _gpu(situation.gpu), situation.family,
        )  # fmt: skip
        codes = [self._words.setdefault(word, len(self._words)) for word in words]
        return row, [*codes, self._harness(situation), int(situation.simulated)]

    def _uses(self, action: Action) -> list[int]:
        """Return what is alike or not of what is done to it."""
        return [self._writer(action.writer), int(action.earlier is not None)]

    def _writer(self, name: str) -> int:
        return self._words.setdefault(f"writer {name}", len(self._words))

    def _harness(self, situation: Situation) -> int:
        name = situation.harness
        return self._words.setdefault(f"harness {name}", len(self._words)) if name else ANY


@functools.lru_cache(maxsize=64)
def _gpu(name: str) -> str:
    """Return one name for a GPU, simulated under ours and measured under the driver's."""
    known = known_gpu(name)
    return known.name if known else name


class Outlook:
    """What tries up to a number say; it stays the same whatever is added."""

    def __init__(self, told: Expectations, sequence: int, own: Collection[str]) -> None:
        self._told = told
        self._sequence = sequence
        self._own: dict[str, list[int]] = {}
        for name in own:
            if name in told._named:
                technique, place = told._named[name]
                self._own.setdefault(technique, []).append(place)
        self._seen: dict[str, Seen | None] = {}

    def refused(self, situation: Situation, action: Action) -> bool:
        """Say whether this very action failed on this very kernel: it is out."""
        gain = self._remembered(situation, action)
        return gain is not None and math.isnan(gain)

    def forecasts(self, asked: Sequence[Question]) -> list[Forecast]:
        """Return what to expect of each action, in the order asked."""
        if not asked:
            return []
        cases: dict[tuple[int, str, str], list[int]] = {}
        for place, (situation, action, _) in enumerate(asked):
            case = id(situation), action.technique, action.writer
            cases.setdefault(case, []).append(place)
        launches: dict[int, tuple[NDArray[np.float32], NDArray[np.int32]]] = {}
        lots = [[asked[place] for place in places] for places in cases.values()]
        known: dict[int, Case] = {}
        passing = [Reliability()] * len(lots)
        for number, ((key, technique, _), questions) in enumerate(zip(cases, lots, strict=True)):
            seen = self._of_technique(technique)
            if seen is not None:
                if key not in launches:
                    row, codes = self._told._launch(questions[0].situation)
                    launches[key] = np.array(row, np.float32), np.array(codes, np.int32)
                known[number], passing[number] = self._case(questions, seen, launches[key])
        answers = dict(zip(known, gains(list(known.values())), strict=True))
        found = self._forecasts(lots, [answers.get(number) for number in range(len(lots))], passing)
        places = itertools.chain.from_iterable(cases.values())
        return [forecast for _, forecast in sorted(zip(places, found, strict=True))]

    def _case(
        self,
        questions: Sequence[Question],
        seen: Seen,
        launch: tuple[NDArray[np.float32], NDArray[np.int32]],
    ) -> tuple[Case, Reliability]:
        """Return settings of a technique on one launch, by one writer, as they are asked, and
        whether what is tried passes."""
        count = len(launch[0])
        here = np.empty((len(questions), count + 2 * PARAMETERS), np.float32)
        here[:, :count] = launch[0]
        here[:, count:] = [numbers(each.action) for each in questions]
        marks = np.empty((len(questions), len(launch[1]) + 2), np.int32)
        marks[:, :-2] = launch[1]
        marks[:, -2:] = [self._told._uses(each.action) for each in questions]
        column = self._told._columns[questions[0].action.technique]
        builtin = self._told._writer(BUILTIN)
        which = column.nearest(seen, here[0], marks[0], builtin)
        near = seen.places[which]
        case = Case(
            here, marks, column.rows[near], column.codes[near], column.told[near, :2],
            seen.refuted[which],
        )  # fmt: skip
        return case, reliability(seen, marks[0], builtin)

    def _forecasts(
        self,
        lots: Sequence[Sequence[Question]],
        answers: Sequence[Gain | None],
        passing: Sequence[Reliability],
    ) -> Iterator[Forecast]:
        """Give the forecasts of lots of settings of a technique on one launch, by one writer."""
        none = [(np.zeros(len(lot)), np.full(len(lot), BEFORE), 0.0) for lot in lots]
        told = [answer or Gain(*given) for answer, given in zip(answers, none, strict=True)]
        caps = [most_gain(lot[0].situation) for lot in lots]
        priors = [
            min(each.prior, cap) for lot, cap in zip(lots, caps, strict=True) for each in lot
        ]
        means, spreads = with_priors(
            np.concatenate([gain.means for gain in told]),
            np.concatenate([gain.variances for gain in told]),
            np.array(priors),
        )
        said = zip(means, spreads, strict=True)
        for lot, gain, cap, passes in zip(lots, told, caps, passing, strict=True):
            done = self._told._places.get(_kernel(lot[0].situation))
            for question in lot:
                mean, spread = next(said)
                known = None if done is None else self._remembered(*question[:2])
                if known is None or math.isnan(known):
                    yield Forecast(min(mean, cap), spread, cap, passes, gain.tries)
                else:
                    yield Forecast(known, EXACT, cap, SURE, gain.tries)

    def _remembered(self, situation: Situation, action: Action) -> float | None:
        """Return what came of this very action on this very kernel last: NaN where it failed.

        None where nothing is known, or where what is known was refuted.
        """
        done = self._told._places.get(_kernel(situation))
        told = None if done is None else done.get(_deed(action))
        if told is None:
            return None
        seen = self._of_technique(action.technique)
        if seen is None:
            return None
        ranks = [int(seen.ranks[place]) for place in told if place < len(seen.ranks)]
        last = max(ranks, default=-1)
        if last < 0 or seen.refuted[last]:
            return None
        column, place = self._told._columns[action.technique], seen.places[last]
        harness = self._told._harness(situation)
        if harness not in (ANY, column.codes[place, OF_HARNESS]):
            return None
        return float(column.told[place, 0])

    def _of_technique(self, technique: str) -> Seen | None:
        """Return what is known here of a technique; None where nothing is."""
        if technique not in self._seen:
            column = self._told._columns.get(technique)
            own = self._own.get(technique, [])
            seen = column.seen(self._sequence, own) if column else None
            self._seen[technique] = seen if seen is not None and len(seen.places) else None
        return self._seen[technique]


@functools.lru_cache(maxsize=1024)
def _place(signature: tuple[float, ...]) -> tuple[float, ...]:
    """Return where a profile lies, in units of its reach: a kernel's many tries share it."""
    return tuple(value / REACH for value in embed(signature))


def _kernel(situation: Situation) -> tuple[object, ...]:
    """Return what says that a kernel is the same."""
    return situation.task, situation.source, situation.gpu, situation.simulated


def _deed(action: Action) -> tuple[object, ...]:
    """Return what says that the same was done to it."""
    return action.technique, action.launch, setting_name(action.setting), action.writer
