"""The tries of one technique: which of them count, and which are near a kernel."""

from __future__ import annotations

import functools
import math
import zlib
from bisect import bisect_right
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view
from numpy.typing import NDArray

from .actions import Action, Tried
from .failures import Reliability, believed
from .regression import (
    ANY,
    FAILURE_COST,
    NEAREST,
    OF_CLASS,
    OF_HARNESS,
    OF_KIND,
    OF_TASK,
    OF_WRITER,
    foreign_to,
)

SETTING_REACH = 2.0
"""Doublings of a parameter's value at which two settings are 0.6 alike."""
ENOUGH, RECENT = 256, 2048
"""Tries on one class of operation from which on others are not looked for, and the newest results
among which those are that say whether the next one passes."""
SHORT, RESULTS = 0.12, 3
"""So many results of a technique and writer in a row, each so far below its forecast, refute what
they were forecast by: earlier gains as far above all of them count no more."""
PARAMETERS = 8
"""Places for the numbers of a setting; which is whose follows from the parameter's name."""
_NEVER = np.iinfo(np.int64).max


class Seen(NamedTuple):
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
    runs: NDArray[np.int32]
    """Of each of these, which run tells it."""
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


class Tries:
    """The tries of one technique, in arrays that grow by a quarter."""

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
        self._runs = np.empty((0, 1), np.int32)
        self._ended: list[int] = []
        """Numbers from which on tries count no more, in order."""
        self._latest: tuple[tuple[int, int], Seen] | None = None
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

    def append(
        self, row: list[float], codes: list[int], tried: Tried, sequence: int, run: int = ANY
    ) -> int:
        """Add a try, told by a run; return its place."""
        if self.count == len(self._rows):
            length = max(16, self.count * 5 // 4)
            self._rows = _grown(self._rows, length, len(row))
            self._codes = _grown(self._codes, length, len(codes))
            self._squares = _grown(self._squares, length, 1)
            self._told = _grown(self._told, length, 3)
            self._runs = _grown(self._runs, length, 1)
            self._since = _grown(self._since, length, 3)
            self._order = _grown(self._order, length, 1)
        place = self.count
        self._rows[place], self._codes[place] = row, codes
        launch = self._rows[place, : len(row) - 2 * PARAMETERS]
        self._squares[place] = launch @ launch
        self._told[place] = [
            math.nan if value is None else value
            for value in (tried.log_gain, tried.standard_error, tried.expected)
        ]
        self._since[place] = sequence, _NEVER, place
        self._runs[place] = run
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

    def seen(self, sequence: int, own: Sequence[int]) -> Seen:
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
        refuted, runs = self._refuted(places), self._runs[places, 0]
        found = Seen(places, ranks, codes, failed, refuted, runs, {}, {})
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
        self, seen: Seen, here: NDArray[np.float32], mark: NDArray[np.int32], builtin: int
    ) -> NDArray[np.intp]:
        """Return which tries were made on the launches nearest to one, the earliest made first."""
        asked = tuple(mark[[OF_CLASS, OF_HARNESS, OF_KIND, OF_WRITER]].tolist())
        if asked not in seen.heard:
            seen.heard[asked] = _heard(seen, mark, builtin)
        which, places, tasks, other, foreign = seen.heard[asked]
        if len(which) <= NEAREST:
            return which
        launch = here.copy()
        launch[-2 * PARAMETERS :] = 0.0
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


def _heard(seen: Seen, mark: NDArray[np.int32], builtin: int) -> _Heard:
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


def reliability(seen: Seen, mark: NDArray[np.int32], builtin: int) -> Reliability:
    """Return whether a technique's next try passes: of what was seen elsewhere as one case, then of
    the library's rewrite, then of the writer at hand; of each on all classes of operation, then on
    this one, then on this very task. Of a run that is told of elsewhere each result more counts
    half: many rows of one run are few witnesses. What was tried on the task counts each."""
    asked = tuple(mark[[OF_CLASS, OF_HARNESS, OF_KIND, OF_WRITER, OF_TASK]].tolist())
    if asked not in seen.passing:
        codes, passed, runs = seen.codes[-RECENT:], ~seen.failed[-RECENT:], seen.runs[-RECENT:]
        foreign = foreign_to(codes, mark)
        same = codes[:, OF_CLASS] == mark[OF_CLASS]
        cases = [foreign]
        for writer in dict.fromkeys((builtin, int(mark[OF_WRITER]))):
            by = (codes[:, OF_WRITER] == writer) & ~foreign
            cases += [by, by & same]
        own = cases[-1] & (codes[:, OF_TASK] == mark[OF_TASK])
        told = [(passed[case], runs[case]) for case in cases]
        told.append((passed[own], np.full(np.count_nonzero(own), ANY, np.int32)))
        seen.passing[asked] = believed(told)
    return seen.passing[asked]


def numbers(action: Action) -> tuple[float, ...]:
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
    found = [0.0] * PARAMETERS
    for name, value in given:
        if value > 0:
            found[zlib.crc32(name.encode()) % PARAMETERS] += math.log2(value)
    return found
