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
import zlib
from bisect import bisect_right
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view
from numpy.typing import NDArray

from ...records.policy import setting_name
from ..states.signature import embed
from .failures import Reliability, believed
from .regression import (
    ANY,
    BEFORE,
    FAILURE_COST,
    NEAREST,
    OF_CLASS,
    OF_HARNESS,
    OF_KIND,
    OF_TASK,
    OF_WRITER,
    Case,
    Gain,
    foreign_to,
    gains,
    with_priors,
)

REACH = 0.2
"""Distance of signatures at which two kernels are 0.6 alike."""
TIME_REACH, HEADROOM_REACH, SHARE_REACH = 3.0, 1.2, 0.4
"""The same for the logarithms of time and of the time over its bound, and for shares of time."""
SETTING_REACH = 2.0
"""Doublings of a parameter's value at which two settings are 0.6 alike."""
ENOUGH, RECENT = 256, 2048
"""Tries on one class of operation from which on others are not looked for, and the newest results
among which those are that say whether the next one passes."""
USUAL_US = 100.0
"""Time of a program where nobody says it."""
BUILTIN = "builtin"
"""The writer whose failures others hear of: the library's rewrite is the same whoever asks."""
EXACT, SURE = 0.01, Reliability(99.0, 1.0)
"""Spread and reliability of what was done to this very kernel before, and passed."""
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
    harness: str = ""
    """Version of what measures: what another measured is worth one try at most. Empty: any."""


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
    child: str = ""
    """Name of the source that came of it: another one is another try."""
    made: tuple[Any, ...] = ()
    """What tries are ordered by, the later the greater; empty: by arrival."""


class Expectations:
    """All tries so far, in arrays; each is added once and asked for at near-constant cost."""

    def __init__(self) -> None:
        self._sequence = 0
        self._columns: dict[str, _Column] = {}
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
        column = self._columns.setdefault(action.technique, _Column())
        launch, marks = self._launch(situation)
        row, codes = [*launch, *_numbers(action)], [*marks, *self._uses(action)]
        place = column.append(row, codes, tried, self._sequence)
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
        return row, [*codes, self._harness(situation), int(situation.simulated)]

    def _uses(self, action: Action) -> list[int]:
        """Return what is alike or not of what is done to it."""
        return [self._writer(action.writer), int(action.earlier is not None)]

    def _writer(self, name: str) -> int:
        return self._words.setdefault(f"writer {name}", len(self._words))

    def _harness(self, situation: Situation) -> int:
        name = situation.harness
        return self._words.setdefault(f"harness {name}", len(self._words)) if name else ANY


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
        self._seen: dict[str, _Seen | None] = {}

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
        seen: _Seen,
        launch: tuple[NDArray[np.float32], NDArray[np.int32]],
    ) -> tuple[Case, Reliability]:
        """Return settings of a technique on one launch, by one writer, as they are asked, and
        whether what is tried passes."""
        count = len(launch[0])
        here = np.empty((len(questions), count + 2 * _PARAMETERS), np.float32)
        here[:, :count] = launch[0]
        here[:, count:] = [_numbers(each.action) for each in questions]
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
        return case, _reliability(seen, marks[0], builtin)

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

    def _of_technique(self, technique: str) -> _Seen | None:
        """Return what is known here of a technique; None where nothing is."""
        if technique not in self._seen:
            column = self._told._columns.get(technique)
            own = self._own.get(technique, [])
            seen = column.seen(self._sequence, own) if column else None
            self._seen[technique] = seen if seen is not None and len(seen.places) else None
        return self._seen[technique]


def writer_of(author: str) -> str:
    """Return who wrote what an author stands for: who stands in for a model says why in
    brackets."""
    return BUILTIN if author.startswith(f"{BUILTIN} (") else author


def most_gain(situation: Situation) -> float:
    """Return the log gain that no action on a launch can exceed: by its share, by the bound."""
    by_share = math.inf if situation.share >= 1.0 else -math.log1p(-situation.share)
    if situation.bound_us is None:
        return by_share
    return min(by_share, max(0.0, math.log(situation.microseconds / situation.bound_us)))


_PARAMETERS = 8
"""Places for the numbers of a setting; which is whose follows from the parameter's name."""
_NEVER = np.iinfo(np.int64).max
def _reliability(seen: _Seen, mark: NDArray[np.int32], builtin: int) -> Reliability:
    """Return whether a technique's next try passes: of what was seen elsewhere as one case, then of
    the library's rewrite, then of the writer at hand; of each on all classes of operation, then on
    this one."""
    asked = tuple(mark[[OF_CLASS, OF_HARNESS, OF_KIND, OF_WRITER]].tolist())
    if asked not in seen.passing:
        codes, passed = seen.codes[-RECENT:], ~seen.failed[-RECENT:]
        foreign = foreign_to(codes, mark)
        same = codes[:, OF_CLASS] == mark[OF_CLASS]
        cases = [foreign]
        for writer in dict.fromkeys((builtin, int(mark[OF_WRITER]))):
            by = (codes[:, OF_WRITER] == writer) & ~foreign
            cases += [by, by & same]
        seen.passing[asked] = believed(passed[case] for case in cases)
    return seen.passing[asked]


def _numbers(action: Action) -> tuple[float, ...]:
    """Return the numbers of a setting, and by how much they are others than before, as logarithms,
    in units of their reach."""
    return _doublings(_of(action.setting), _of(action.earlier or action.setting))


def _of(setting: Mapping[str, Any]) -> tuple[tuple[str, float], ...]:
    return tuple((name, each) for name, each in setting.items() if isinstance(each, int | float))


@functools.lru_cache(maxsize=4096)
def _doublings(
    given: tuple[tuple[str, float], ...], before: tuple[tuple[str, float], ...]
) -> tuple[float, ...]:
    values, earlier = _in_places(given), _in_places(before)
    moved = (new - old for new, old in zip(values, earlier, strict=True))
    return tuple(each / SETTING_REACH for each in (*values, *moved))


def _in_places(given: tuple[tuple[str, float], ...]) -> list[float]:
    """Return logarithms of numbers, each parameter's in a place of its own."""
    found = [0.0] * _PARAMETERS
    for name, value in given:
        if value > 0:
            found[zlib.crc32(name.encode()) % _PARAMETERS] += math.log2(value)
    return found


def _kernel(situation: Situation) -> tuple[object, ...]:
    """Return what says that a kernel is the same."""
    return situation.task, situation.source, situation.gpu, situation.simulated


def _deed(action: Action) -> tuple[object, ...]:
    """Return what says that the same was done to it."""
    return action.technique, action.launch, setting_name(action.setting), action.writer


class _Seen(NamedTuple):
    """The tries of one technique that an outlook knows, the earliest made first."""

    places: NDArray[np.intp]
    """Where they stand in the column."""
    ranks: NDArray[np.int64]
    """Of each in the column, which of these it is; -1: none."""
    codes: NDArray[np.int32]
    """Of each of these, what is alike or not."""
    failed: NDArray[np.bool_]
    """Of each of these."""
    refuted: NDArray[np.bool_]
    """Of each of these, whether it counts no more."""
    passing: dict[tuple[int, ...], Reliability]
    """Whether the next try passes, where it was asked before."""
    heard: dict[tuple[int, ...], _Heard]
    """Those that bear on a question, where it was asked before."""


class _Heard(NamedTuple):
    """The tries that bear on questions on one class of operation, by one writer, measured in one
    way."""

    which: NDArray[np.intp]
    """Of those seen."""
    places: NDArray[np.intp]
    """Where they stand in the column."""
    tasks: NDArray[np.int32]
    other: NDArray[np.bool_]
    """Of each, whether it was on another class."""
    foreign: NDArray[np.bool_]
    """Of each, whether it was measured otherwise."""


class _Column:
    """The tries of one technique, in arrays that grow by doubling."""

    def __init__(self) -> None:
        self.count = 0
        self.different = 0
        """Tries, each once however often it was told."""
        self._children: list[str] = []
        self._made: list[tuple[Any, ...]] = []
        """Of each in order of when it was made."""
        self._order = np.empty((0, 1), np.int32)
        """Places in that order."""
        self._rows = np.empty((0, 0), np.float32)
        self._codes = np.empty((0, 0), np.int32)
        self._squares = np.empty((0, 1), np.float32)
        self._told = np.empty((0, 3))
        self._ended: list[int] = []
        """Numbers from which on tries count no more, in order."""
        self._latest: tuple[tuple[int, int], _Seen] | None = None
        """Of the newest question: how many tries and ends it knew, and what it saw."""
        self._since = np.empty((0, 3), np.int64)
        """Number of the try, from which number on it counts no more, and place of the first that
        told the same."""

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
        """Log gain (NaN where it failed), its standard error, and its forecast (NaN: none)."""
        return self._told[: self.count]

    def append(self, row: list[float], codes: list[int], tried: Tried, sequence: int) -> int:
        """Add a try; return its place."""
        if self.count == len(self._rows):
            length = max(16, 2 * self.count)
            self._rows = _grown(self._rows, length, len(row))
            self._codes = _grown(self._codes, length, len(codes))
            self._squares = _grown(self._squares, length, 1)
            self._told = _grown(self._told, length, 3)
            self._since = _grown(self._since, length, 3)
            self._order = _grown(self._order, length, 1)
        place = self.count
        self._rows[place], self._codes[place] = row, codes
        launch = self._rows[place, : len(row) - 2 * _PARAMETERS]
        self._squares[place] = launch @ launch
        self._told[place] = [
            math.nan if value is None else value
            for value in (tried.log_gain, tried.standard_error, tried.expected)
        ]
        self._since[place] = sequence, _NEVER, place
        made = tried.made or (sequence,)
        rank = bisect_right(self._made, made)
        self._made.insert(rank, made)
        self._order[rank + 1 : place + 1] = self._order[rank:place].copy()
        self._order[rank] = place
        self._children.append(tried.child)
        self.count += 1
        self.different += 1
        return place

    def repeat(self, place: int, told: Sequence[int]) -> None:
        """Note that a try says what one of some others said before, where it does."""
        for other in told:
            if self._children[other] == self._children[place] and np.allclose(
                self._told[other, 0], self._told[place, 0], rtol=0.0, atol=1e-6, equal_nan=True
            ):
                if self._codes[other, OF_HARNESS] == self._codes[place, OF_HARNESS]:
                    self._since[place, 1:] = self._since[other, 1:]
                    self.different -= 1
                    return

    def end(self, place: int, sequence: int) -> None:
        """Let a try, whoever told it, count no more from a number on."""
        since = self._since[: self.count]
        since[since[:, 2] == since[place, 2], 1] = sequence
        self._ended.append(sequence)

    def seen(self, sequence: int, own: Sequence[int]) -> _Seen:
        """Return the tries up to a number and some more, each once."""
        numbers, ends, firsts = self._since[: self.count].T
        count = int(np.searchsorted(numbers, sequence, "right"))
        known = count, bisect_right(self._ended, sequence)
        if not own and self._latest and self._latest[0] == known:
            return self._latest[1]
        visible = numbers <= sequence
        visible[list(own)] = True
        visible &= ends > sequence
        order = self._order[: self.count, 0]
        places = order[visible[order]].astype(np.intp)
        if self.different < self.count:  # Of what says the same, what was made first stands.
            places = places[np.sort(np.unique(firsts[places], return_index=True)[1])]
        ranks = np.full(self.count, -1)
        ranks[places] = np.arange(len(places))
        failed = np.isnan(self.told[places, 0])
        codes = np.asfortranarray(self.codes[places])
        found = _Seen(places, ranks, codes, failed, self._refuted(places), {}, {})
        if not own:
            self._latest = known, found
        return found

    def _refuted(self, places: NDArray[np.intp]) -> NDArray[np.bool_]:
        """Say which tries, in the order in which they were made, count no more.

        A few results of one writer in a row, each far below its forecast, refute what was told
        before them and lies as far above.
        """
        gains, _, expected = self.told[places].T
        values = np.where(np.isnan(gains), -FAILURE_COST, gains)
        found = np.zeros(len(places), np.bool_)
        writers = np.where(np.isnan(expected), -1, self.codes[places, OF_WRITER])
        for writer in np.unique(writers[expected - values >= SHORT]):
            rows = np.flatnonzero(writers == writer)
            if len(rows) < RESULTS:
                continue
            missed = expected[rows] - values[rows] >= SHORT
            short = sliding_window_view(missed, RESULTS).min(axis=1)
            highest = sliding_window_view(values[rows], RESULTS).max(axis=1)
            levels = np.full(len(places) + 1, np.inf)
            levels[rows[: len(highest)][short]] = highest[short] + SHORT
            lowest_after = np.minimum.accumulate(levels[::-1])[::-1][1:]
            same = self.codes[places, OF_WRITER] == writer
            found |= same & (values > lowest_after)
        return found

    def nearest(
        self, seen: _Seen, here: NDArray[np.float32], mark: NDArray[np.int32], builtin: int
    ) -> NDArray[np.intp]:
        """Return which tries were made on the launches nearest to one, the earliest made first."""
        asked = tuple(mark[[OF_CLASS, OF_HARNESS, OF_KIND, OF_WRITER]].tolist())
        if asked not in seen.heard:
            seen.heard[asked] = _heard(seen, mark, builtin)
        which, places, tasks, other, foreign = seen.heard[asked]
        if len(which) <= NEAREST:
            return which
        launch = here.copy()
        launch[-2 * _PARAMETERS :] = 0.0
        away = self._squares[places, 0] - np.float32(2.0) * (self._rows[places] @ launch)
        away += np.float32(2.0) * other
        away += np.float32(8.0) * foreign
        away -= np.float32(8.0) * (tasks == mark[OF_TASK])
        # Rounded: where a row lies in memory moves the last bits. Of equals the newest count.
        ranked = np.round(away, 3)[::-1]
        least = np.partition(ranked, NEAREST - 1)[NEAREST - 1]
        within = np.flatnonzero(ranked < least)
        ties = np.flatnonzero(ranked == least)[: NEAREST - len(within)]
        chosen: NDArray[np.intp] = which[len(which) - 1 - np.concatenate([within, ties])]
        return np.sort(chosen)


def _heard(seen: _Seen, mark: NDArray[np.int32], builtin: int) -> _Heard:
    writers = seen.codes[:, OF_WRITER]
    # Another model's failures are its own.
    heard = ~seen.failed | (writers == mark[OF_WRITER]) | (writers == builtin)
    alike = heard & (seen.codes[:, OF_CLASS] == mark[OF_CLASS])
    which = np.flatnonzero(alike if np.count_nonzero(alike) >= ENOUGH else heard)
    codes = seen.codes[which]
    other: NDArray[np.bool_] = codes[:, OF_CLASS] != mark[OF_CLASS]
    tasks = codes[:, OF_TASK].copy()
    return _Heard(which, seen.places[which], tasks, other, foreign_to(codes, mark))


def _grown(array: NDArray[Any], length: int, width: int) -> NDArray[Any]:
    grown = np.zeros((length, width), array.dtype, order="F" if array.dtype == np.int32 else "C")
    if len(array):
        grown[: len(array)] = array
    return grown
