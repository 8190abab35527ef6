"""Numbers that differ between the two variants of a task, as text over task.cuh's constants."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from operator import add, floordiv, mul, neg, sub

from ....harness.records.tasks import Task, TaskVariant
from ....harness.task.names import constants_of
from .values import ONE, CannotWrite, Dim, Dims

Pair = tuple[int, int]
"""Values in the full variant and in the small one."""
Values = tuple[int, ...]
"""Values in further variants."""
ZERO = Dim("0", 0, 0)
_OFFSETS = tuple(sorted(range(-16, 17), key=abs))
_NAME = re.compile(r"[A-Za-z_]\w*")
_FACTORS = (2, 3, 4, 6, 8, 5, 7, 9, 12, 16, 32, 64)


def literal(value: int) -> Dim:
    """Return a number that is the same in both variants."""
    return Dim(str(value), value, value)


def as_dim(value: int | Dim) -> Dim:
    """Return a size that an operation was given, as a dimension."""
    return value if isinstance(value, Dim) else literal(value)


def made(text: str, rule: Callable[..., int], *dims: Dim, rounded: bool = False) -> Dim:
    """Return what a rule makes of dimensions; where all variants agree, its text is the number.

    Args:
        text: the same in C.
        rule: gives the value of one variant.
        dims: what it is given.
        rounded: whether other sizes may give the same: that variants agree says nothing then.
    """
    full, verify, *others = values(rule, *dims)
    if all(each.is_number for each in dims) or (
        not rounded and all(each == full for each in (verify, *others))
    ):
        return literal(full)
    return Dim(text, full, verify, tuple(others))


def values(rule: Callable[..., int], *dims: Dim) -> Values:
    """Return what a rule makes of dimensions in each of the variants in which all are known."""
    further = max(len(each.others) for each in dims)
    known = zip(*(each.among(further) for each in dims), strict=False)
    return (
        rule(*(each.full for each in dims)), rule(*(each.verify for each in dims)),
        *(rule(*each) for each in known),
    )  # fmt: skip


def times(left: Dim, right: Dim) -> Dim:
    """Return the product of two dimensions."""
    if ONE in (left, right):
        return right if left == ONE else left
    text = f"{atom(left)} * {atom(right)}"
    return made(text, mul, left, right)


def plus(left: Dim, right: Dim) -> Dim:
    """Return the sum of two dimensions."""
    if same_as_zero(left) or same_as_zero(right):
        return right if same_as_zero(left) else left
    text = f"{atom(left)} + {atom(right)}"
    return made(text, add, left, right)


def negative(dim: Dim) -> Dim:
    """Return a dimension with the other sign."""
    return made(f"-{atom(dim)}", neg, dim)


def ceil_div(dim: Dim, by: int) -> Dim:
    """Return a dimension divided by a number, rounded up."""
    text = f"({atom(dim)} + {by - 1}) / {by}"
    return made(text, lambda size: -(-size // by), dim, rounded=True)


def minus(left: Dim, right: Dim) -> Dim:
    """Return the difference of two dimensions."""
    if same_as_zero(right):
        return left
    text = f"{atom(left)} - {atom(right)}"
    return made(text, sub, left, right)


def slid(size: Dim, window: Dim, offset: int, stride: int) -> Dim:
    """Return how many places a window has: (size - window + offset) / stride, rounded down."""
    if window.is_number:
        offset, window = offset - window.full, ZERO
    wide = minus(size, window)
    text = _offset(atom(wide), offset)
    if stride > 1:
        text = f"{f'({text})' if ' ' in text else text} / {stride}"
    return made(text, lambda each: (each + offset) // stride, wide, rounded=stride > 1)


def divided(left: Dim, right: Dim) -> Dim:
    """Return the quotient of two dimensions, of which one divides the other."""
    if right.is_one:
        return left
    return made(f"{atom(left)} / {atom(right)}", floordiv, left, right)


def count(dims: Sequence[Dim]) -> Dim:
    """Return the number of elements of a shape."""
    result = ONE
    for dim in dims:
        result = times(result, dim)
    return result


def same_as_zero(dim: Dim) -> bool:
    """Whether a number is 0 in all variants."""
    return dim.is_always(0)


def atom(dim: Dim) -> str:
    """Return the text of a dimension so that it may stand beside any operator."""
    return f"({dim.text})" if " " in dim.text or dim.text.startswith("-") else dim.text


def shapes_of(variant: TaskVariant) -> dict[str, tuple[int, ...]]:
    """Return the shape of each tensor by name."""
    return {tensor.name: tensor.shape for tensor in variant.tensors}


class Sizes:
    """The constants at hand: those of task.cuh, and those that the source declares from them."""

    def __init__(self, task: Task, beside: Sequence[Task] = ()) -> None:
        """Know the constants of a task by their values in its two variants.

        Args:
            task: the task.
            beside: the same one, with other small variants in which all holds, too.

        Raises:
            CannotWrite: a tensor has another number of axes in one of them.
        """
        self.formulas: dict[str, str] = {}
        """What the constants that the source declares are made of."""
        self._known: dict[Pair, list[str]] = {}
        self._elsewhere: dict[str, Values] = {}
        """What is known of them in the other variants."""
        shapes = [shapes_of(each.verify) for each in (task, *beside)]
        for tensor in task.full.tensors:
            found = [tensor.shape, *(each[tensor.name] for each in shapes)]
            if any(len(each) != len(tensor.shape) for each in found):
                raise CannotWrite(f"tensor {tensor.name} changes its rank between the variants")
            for axis, (full, small, *others) in enumerate(zip(*found, strict=True)):
                self._know((full, small), f"{tensor.name.upper()}_SIZE_{axis}", tuple(others))
        names = constants_of(task.full).dimensions
        smaller = [each.verify.dimensions for each in (task, *beside)]
        for dimension, full in task.full.dimensions.items():
            if all(dimension in each for each in smaller):
                small, *others = (each[dimension] for each in smaller)
                self._know((full, small), names[dimension], tuple(others))

    @property
    def declarations(self) -> list[str]:
        """The lines that declare constants, in order."""
        return [f"constexpr long long {name} = {text};" for name, text in self.formulas.items()]

    def of(self, full: int, verify: int, others: Values = ()) -> Dim:
        """Return the number with these values, by a constant of the task or one made of them.

        Args:
            full: its value in the full variant.
            verify: in the small one.
            others: in the other variants; nothing where that is not known.

        Raises:
            CannotWrite: nothing tells the variants apart.
        """
        if all(each == full for each in (verify, *others)):
            return literal(full)
        name = self._named((full, verify), others)
        if name is None:
            formula = self._formula(full, verify, others)
            name = self._declare(formula, (full, verify), others)
        return Dim(name, full, verify, others)

    def following(self, rule: Callable[..., int], *dims: Dim) -> Dim:
        """Return what a rule makes of dimensions, by a constant that has these values."""
        full, verify, *others = values(rule, *dims)
        return self.of(full, verify, tuple(others))

    def named(self, dim: Dim) -> Dim:
        """Return a number that was computed, by a constant that has its value."""
        if dim.is_number:
            return dim
        pair, others = (dim.full, dim.verify), dim.others
        # What is the same in all variants is no other number that is.
        name = None if dim.is_always(dim.full) else self._named(pair, others)
        if name is None and dim.text.isidentifier():
            self._know(pair, name := dim.text, others)
        return Dim(name or self._declare(dim.text, pair, others), *pair, others)

    def dims(
        self, full: Sequence[int], verify: Sequence[int], *others: Sequence[int],
        likely: Sequence[Dim] = (),
    ) -> Dims:  # fmt: skip
        """Return the shape that has these sizes in the variants, the other ones where known.

        Args:
            full: its sizes in the full variant.
            verify: in the small one.
            others: in the other variants.
            likely: what the last of them follow from, where they come to that.

        Raises:
            CannotWrite: it has another number of axes in either.
        """
        if any(len(each) != len(full) for each in (verify, *others)):
            raise CannotWrite(f"a shape has {len(full)} axes, and {len(verify)} when shrunk")
        found = []
        expected = [None] * (len(full) - len(likely)) + [*likely]
        for each, (ours, theirs, *rest) in zip(
            expected, zip(full, verify, *others, strict=True), strict=True
        ):
            same = each and each.same_as(Dim("", ours, theirs, tuple(rest)))
            found.append(self._ruled(each) if each and same else self.of(ours, theirs, tuple(rest)))
        return tuple(found)

    def _ruled(self, dim: Dim) -> Dim:
        """Return a number by a constant of the task, or by one made of them as its rule says."""
        if dim.is_number or dim.text.isidentifier():
            return dim
        pair, others = (dim.full, dim.verify), dim.others
        declared = (name for name, text in self.formulas.items() if text == dim.text)
        given = (
            name for name in self._known.get(pair, ())
            if name not in self.formulas and self._agrees(name, others)
        )  # fmt: skip
        name = next(declared, None) or (None if dim.is_always(dim.full) else next(given, None))
        return Dim(name or self._declare(dim.text, pair, others), *pair, others)

    def chosen(self, full: str, verify: str, *others: str) -> str:
        """Return the text that is another literal in each of the variants.

        Raises:
            CannotWrite: nothing tells the variants apart.
        """
        texts = (full, verify, *others)
        for (ours, theirs), names in self._known.items():
            for name in names:
                sizes = (ours, theirs, *self._elsewhere.get(name, ()))
                told = dict(zip(sizes, texts, strict=False))
                if len(sizes) >= len(texts) and len(told) > 1 and all(
                    told[size] == text for size, text in zip(sizes, texts, strict=False)
                ):
                    *first, (_, last) = told.items()
                    tests = " : ".join(f"{name} == {size} ? {text}" for size, text in first)
                    return f"{tests} : {last}"
        raise CannotWrite(f"{full} becomes {verify} in a variant that has the same sizes")

    def _declare(self, formula: str, pair: Pair, others: Values) -> str:
        name = f"SIZE_{len(self.formulas)}"
        self.formulas[name] = formula
        self._know(pair, name, others or self._elsewhere_of(formula))
        return name

    def _know(self, pair: Pair, name: str, others: Values) -> None:
        self._known.setdefault(pair, []).append(name)
        if others:
            self._elsewhere[name] = others

    def _named(self, pair: Pair, others: Values) -> str | None:
        known = self._known.get(pair, ())
        return next((each for each in known if self._agrees(each, others)), None)

    def _agrees(self, formula: str, others: Values) -> bool:
        """Whether a formula has some values in the other variants, as far as both are known."""
        found = self._elsewhere_of(formula) if others else ()
        return not found or not others or found == others

    def _elsewhere_of(self, formula: str) -> Values:
        """Return what a formula comes to in the other variants; nothing where that is not known."""
        names = {name: self._elsewhere.get(name, ()) for name in _NAME.findall(formula)}
        if not names or not all(names.values()) or "?" in formula:
            return ()
        found = []
        for each in range(len(next(iter(names.values())))):
            text = _NAME.sub(lambda name, at=each: str(names[name[0]][at]), formula)  # type: ignore[misc]
            try:
                found.append(int(eval(text.replace("/", "//"))))
            except ZeroDivisionError:
                return ()
        return tuple(found)

    def _formula(self, full: int, verify: int, others: Values) -> str:
        for text, ours, theirs in self._formulas():
            if (ours, theirs) == (full, verify) and self._agrees(text, others):
                return text
        return self.chosen(str(full), str(verify), *map(str, others))

    def _formulas(self) -> Iterator[tuple[str, int, int]]:
        """Yield formulas over the known constants, the plainest first."""
        known = [
            (name, *pair) for pair, names in self._known.items()
            for others, name in {
                self._elsewhere.get(name, ()): name for name in reversed(names)
            }.items()
            if any(each != pair[0] for each in (pair[1], *others))
        ]  # fmt: skip
        for name, a, b in known:
            for factor in _FACTORS:
                yield f"{name} * {factor}", a * factor, b * factor
                if a % factor == 0 and b % factor == 0:
                    yield f"{name} / {factor}", a // factor, b // factor
        for name, a, b in known:
            for offset in _OFFSETS:
                yield _offset(name, offset), a + offset, b + offset
        for first, a, b in known:
            for second, c, d in known:
                yield f"{first} * {second}", a * c, b * d
                if c and d and a % c == 0 and b % d == 0:
                    yield f"{first} / {second}", a // c, b // d
        # What is halved most often follows from what was halved before.
        for factor in _FACTORS[:5]:
            for offset in _OFFSETS:
                for name, a, b in reversed(known):
                    text = f"({_offset(name, offset)}) / {factor}"
                    yield text, (a + offset) // factor, (b + offset) // factor
        for first, a, b in known:
            for second, c, d in known:
                yield f"{first} + {second}", a + c, b + d
                yield f"{first} - {second}", a - c, b - d
        for name, a, b in known:
            for factor in range(2, 2049):
                yield f"{name} * {factor}", a * factor, b * factor
        for name, a, b in known:
            for factor in _FACTORS:
                for offset in _OFFSETS:
                    text = f"{name} * {factor} {'-' if offset < 0 else '+'} {abs(offset)}"
                    yield text, a * factor + offset, b * factor + offset
        for first, a, b in known:
            for second, c, d in known:
                for factor in _FACTORS:
                    yield f"{first} * {second} * {factor}", a * c * factor, b * d * factor
                    if a * c % factor == 0 and b * d % factor == 0:
                        text = f"{first} * {second} / {factor}"
                        yield text, a * c // factor, b * d // factor


def _offset(name: str, offset: int) -> str:
    if offset == 0:
        return name
    return f"{name} {'-' if offset < 0 else '+'} {abs(offset)}"
