"""The search for a small variant of a task: what scales is scaled, what must stay is kept.

A trial sets some sizes and sees what PyTorch makes of them with tensors that hold nothing. It does
where the task is the same but for its sizes (`Variant.is_like`). All sizes are shrunk together at
first, batches more than the rest; where that does not do, those of one value after the other, as
far as each goes. Integers in the classes, which most often are numbers of channels, are divided by
one number where they alone are too large.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass

from ...records.tasks import MOST_ELEMENTS, MOST_WORK
from ...task.dimensions import Dimension

SMALL_ELEMENTS = 1 << 20
"""Largest total of all tensors of a small variant: a case is checked in well under a second."""

SMALL_WORK = 1 << 26
"""Most multiply-adds and elements written on the way to the answers of a small variant."""

SCHEDULE = (
    (128, 128), (64, 64), (32, 32), (8, 32), (8, 16), (4, 16), (4, 8), (2, 8), (2, 4), (2, 2),
)  # fmt: skip
"""What batches and all other sizes are shrunk to, one after the other until that is small."""

LINE, LINE_ELEMENTS = 4096, 1 << 15
"""What a size is shrunk to where no other is, and most elements of all tensors then: of a line of
128 no second block of a kernel has anything to do."""

DIVISORS = (16, 8, 4, 2)

MOST_TRIALS = 120

MOST_FAILURES = 2
"""Times that shrinking a size fails before it is left alone."""
MOST_IN_VAIN = 6
"""Times in a row that shrinking all of them does, before each is tried for itself."""

KEPT = re.compile(
    r"kernel|stride|pad|dilat|group|head|\b(n|num)_?layer|window|patch|expan|ratio|scale|factor"
    r"|stage|repeat|seed|axis|block_len|chunk|step",
    re.IGNORECASE,
)
"""Sizes that mean another task where they are changed; those of 16 and more are, in the end."""

_BATCH = re.compile(r"batch|bs|b|n_?samples|num_samples", re.IGNORECASE)

Values = dict[str, int]


@dataclass(frozen=True)
class Cost:
    """What a variant takes to verify."""

    given: int
    """Elements of inputs and outputs."""
    kept: int
    """Elements of parameters and buffers."""
    work: int
    """Multiply-adds, and elements of all results on the way."""

    @property
    def small(self) -> bool:
        """Whether no smaller one is looked for."""
        return self.given + self.kept <= SMALL_ELEMENTS and self.work <= SMALL_WORK

    @property
    def possible(self) -> bool:
        """Whether cases are kept of it; see `TaskVariant.is_large`."""
        return self.given + self.kept <= MOST_ELEMENTS and self.work <= MOST_WORK

    @property
    def size(self) -> float:
        """One number to compare by."""
        return max((self.given + self.kept) / SMALL_ELEMENTS, self.work / SMALL_WORK)


Trial = Callable[[Values], Cost | None]
"""Returns what sizes cost, or None where they do not do."""


def shrunk(value: int, base: int = 128) -> int:
    """Return a dimension small enough to be checked quickly.

    The remainder modulo `base` is kept, so that vector widths and partial tiles behave as at full
    size; what is not much larger than `base` stays.
    """
    return value if value <= base + base // 4 else base + value % base


def shrunk_apart(dimensions: Mapping[str, int], base: int = 128) -> Values:
    """Shrink all dimensions such that different ones stay different, in the same order.

    Otherwise a kernel that takes rows for columns would pass on a matrix that became square. What
    would coincide is moved on by whole multiples of `base`, so remainders are kept.
    """
    found: dict[int, int] = {}
    for value in sorted(set(dimensions.values())):
        small = shrunk(value, base)
        while small in found.values() and small < value:
            small = min(small + base, value)
        found[value] = small
    return {name: found[value] for name, value in dimensions.items()}


class Search:
    """One search; `best` is the smallest variant found so far."""

    def __init__(
        self,
        dimensions: Mapping[str, Dimension],
        literals: Mapping[str, Dimension],
        chosen: Mapping[str, int],
        full: Cost,
        trial: Trial,
    ) -> None:
        """Prepare to search; `chosen` sizes are a person's and stay, `full` is the cost as written.

        `trial` is asked at most MOST_TRIALS times.
        """
        self._own = {name: each.value for name, each in dimensions.items()}
        self._literals = {name: each.value for name, each in literals.items()}
        self._chosen = dict(chosen)
        self._batches = {
            name for name, each in dimensions.items()
            if _BATCH.fullmatch(name) or "batch" in name.lower() or each.axis == 0
        }  # fmt: skip
        self._trial = trial
        self._seen: dict[tuple[tuple[str, int], ...], Cost | None] = {}
        self.values: Values = {}
        """The sizes of the best: those that differ from what is written."""
        self.cost = full

    def run(self) -> None:
        """Search until something small is found, or nothing more can be tried."""
        if self._chosen:
            # What a person chose is taken at its word, the rest shrunk beside it if that does.
            cost = self._ask(self._chosen)
            if cost is not None:
                self.values, self.cost = dict(self._chosen), cost
        # Where a person chose all of them, as whoever evaluates on another host does, no more.
        if self.cost.small or all(n in self._chosen or v < 1 for n, v in self._own.items()):
            return
        self._shrink_line()
        self._shrink(lambda cost: cost.small or (bool(self._literals) and _few_given(cost)))
        if not self.cost.small and self._literals:
            self._divide_literals()
        if not self.cost.small:
            self._shrink(lambda cost: cost.small)

    def _shrink_line(self) -> None:
        """Where a single size can be shrunk, shrink it less than one of several would be."""
        movable = {name: value for name, value in self._movable().items() if shrunk(value) < value}
        if len({*movable.values()}) != 1 or self.values:
            return
        less = {name: shrunk(value, LINE) for name, value in movable.items()}
        cost = self._ask(less)
        if cost and cost.small and cost.given + cost.kept <= LINE_ELEMENTS:
            self.values, self.cost = less, cost

    def _shrink(self, done: Callable[[Cost], bool]) -> None:
        """Shrink all sizes together; where that does not do, one group after the other."""
        if done(self.cost):
            return
        movable = self._movable()
        in_vain = 0
        for batch, base in SCHEDULE:
            for together in self._all_shrunk(movable, batch, base):
                if in_vain < MOST_IN_VAIN and self._changes(together):
                    better = self._better(together)
                    in_vain = 0 if better else in_vain + 1
                    if better and done(self.cost):
                        return
        failures: dict[tuple[str, ...], int] = {}
        for batch, base in SCHEDULE:
            for group in self._groups(movable):
                if failures.get(group, 0) < MOST_FAILURES:
                    first = group not in failures
                    if not self._shrink_group(group, batch, base, divide=first):
                        failures[group] = failures.get(group, 0) + 1
                    if done(self.cost):
                        return
        for names in self._groups({n: v for n, v in self._own.items() if v >= 16}):
            for divisor in DIVISORS:
                if self._better(self._divided(names, divisor)) and done(self.cost):
                    return

    def _movable(self) -> Values:
        return {
            name: value for name, value in self._own.items()
            if value > 2 and not KEPT.search(name) and name not in self._chosen
        }  # fmt: skip

    def _all_shrunk(self, own: Values, batch: int, base: int) -> Iterator[Values]:
        rest = {name: value for name, value in own.items() if name not in self._batches}
        batches = {name: value for name, value in own.items() if name in self._batches}
        if batch == base:
            yield shrunk_apart(own, base)
        yield shrunk_apart(rest, base) | {n: shrunk(v, batch) for n, v in batches.items()}
        # A relation between dimensions (one divides another) may hold only where they are equal.
        yield {n: shrunk(v, batch if n in self._batches else base) for n, v in own.items()}

    def _groups(self, own: Values) -> Iterator[tuple[str, ...]]:
        """Yield the names of one value together, the largest first, then each alone."""
        for value in sorted(set(own.values()), reverse=True):
            names = tuple(name for name, each in own.items() if each == value)
            yield names
            if len(names) > 1:
                yield from ((name,) for name in names)

    def _shrink_group(
        self, names: tuple[str, ...], batch: int, base: int, *, divide: bool
    ) -> bool:
        """Shrink sizes of one value; say whether they are as small as was wanted, or divided."""
        values = {
            name: shrunk(self._now(name), batch if name in self._batches else base)
            for name in names
        }
        if all(values[name] == self._now(name) for name in names) or self._better(values):
            return True
        for divisor in DIVISORS if divide else ():
            divided = self._divided(names, divisor)
            if all(value >= base // 2 for value in divided.values()) and self._better(divided):
                return True
        return False

    def _divided(self, names: tuple[str, ...], divisor: int) -> Values:
        now = {name: self._now(name) for name in names}
        return {name: v // divisor for name, v in now.items() if v % divisor == 0 and v > divisor}

    def _divide_literals(self) -> None:
        """Divide the integers in the classes, all by one number, else those of one value."""
        together = False
        for divisor in reversed(DIVISORS):
            divided = {n: v // divisor for n, v in self._literals.items() if v % divisor == 0}
            together = self._better(self._beside(divided, divisor)) or together
            if self.cost.small:
                return
        if together:
            return
        failures = dict.fromkeys(self._literals, 0)
        for divisor in reversed(DIVISORS):
            for name in sorted(self._literals, key=lambda each: -self._literals[each]):
                value = self._literals[name]
                if value % divisor or failures[name] >= MOST_FAILURES:
                    continue
                divided = {name: value // divisor}
                if not self._better(self._beside(divided, divisor)):
                    failures[name] += 1
                elif self.cost.small:
                    return

    def _beside(self, divided: Values, divisor: int) -> Values:
        """Return divided literals with the sizes that are as large: widths that inputs have too."""
        values = {self._literals[name] for name in divided}
        same = {
            name: value // divisor for name, value in self._own.items()
            if value in values and name not in self._chosen and not KEPT.search(name)
        }  # fmt: skip
        return divided | same if same and self._ask(self._with(divided)) is None else divided

    def _now(self, name: str) -> int:
        own = self._own.get(name, self._literals.get(name, 0))
        return self.values.get(name, own)

    def _changes(self, values: Values) -> bool:
        return any(value != self._now(name) for name, value in values.items())

    def _better(self, changed: Values) -> bool:
        """Try some other sizes beside the best; say whether they do, and cost less."""
        values = self._with(changed)
        if values == self.values:
            return False
        cost = self._ask(values)
        if cost is None or cost.size >= self.cost.size:
            return False
        self.values, self.cost = values, cost
        return True

    def _with(self, changed: Values) -> Values:
        """Return all sizes that differ from what is written, with some other ones."""
        written = self._own | self._literals
        values = self.values | changed | self._chosen
        return {
            name: value for name, value in values.items()
            if name in self._chosen or value != written[name]
        }  # fmt: skip

    def _ask(self, values: Values) -> Cost | None:
        key = tuple(sorted(values.items()))
        if key not in self._seen:
            if len(self._seen) >= MOST_TRIALS:
                return None
            self._seen[key] = self._trial(values)
        return self._seen[key]


def _few_given(cost: Cost) -> bool:
    return cost.given <= SMALL_ELEMENTS // 2
