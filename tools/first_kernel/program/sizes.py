"""Numbers that differ between the two variants of a task, as text over task.cuh's constants."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

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


def made(text: str, full: int, verify: int) -> Dim:
    """Return a dimension; where both variants agree, its text is the number."""
    return literal(full) if full == verify else Dim(text, full, verify)


def times(left: Dim, right: Dim) -> Dim:
    """Return the product of two dimensions."""
    if left.is_one or right.is_one:
        return right if left.is_one else left
    text = f"{atom(left)} * {atom(right)}"
    return made(text, left.full * right.full, left.verify * right.verify)


def plus(left: Dim, right: Dim) -> Dim:
    """Return the sum of two dimensions."""
    if same_as_zero(left) or same_as_zero(right):
        return right if same_as_zero(left) else left
    text = f"{atom(left)} + {atom(right)}"
    return made(text, left.full + right.full, left.verify + right.verify)


def negative(dim: Dim) -> Dim:
    """Return a dimension with the other sign."""
    return made(f"-{atom(dim)}", -dim.full, -dim.verify)


def ceil_div(dim: Dim, by: int) -> Dim:
    """Return a dimension divided by a number, rounded up."""
    text = f"({atom(dim)} + {by - 1}) / {by}"
    return made(text, -(-dim.full // by), -(-dim.verify // by))


def minus(left: Dim, right: Dim) -> Dim:
    """Return the difference of two dimensions."""
    text = f"{atom(left)} - {atom(right)}"
    return made(text, left.full - right.full, left.verify - right.verify)


def divided(left: Dim, right: Dim) -> Dim:
    """Return the quotient of two dimensions, rounded down."""
    if right.is_one:
        return left
    text = f"{atom(left)} / {atom(right)}"
    return made(text, left.full // right.full, left.verify // right.verify)


def count(dims: Sequence[Dim]) -> Dim:
    """Return the number of elements of a shape."""
    result = ONE
    for dim in dims:
        result = times(result, dim)
    return result


def same_as_zero(dim: Dim) -> bool:
    """Whether a number is 0 in both variants."""
    return dim.full == 0 and dim.verify == 0


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
        self.declarations: list[str] = []
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

    def of(self, full: int, verify: int, others: Values = ()) -> Dim:
        """Return the number with these values, by a constant of the task or one made of them.

        Args:
            full: its value in the full variant.
            verify: in the small one.
            others: in the other variants; nothing where that is not known.

        Raises:
            CannotWrite: only these others tell it from numbers.
        """
        if full == verify:
            if any(each != full for each in others):
                raise CannotWrite(f"a size is {full} in two variants, and {others} in others")
            return literal(full)
        name = self._named((full, verify), others)
        if name is None:
            formula = self._formula(full, verify, others)
            name = self._declare(formula, (full, verify), others)
        return Dim(name, full, verify)

    def named(self, dim: Dim) -> Dim:
        """Return a number that was computed, by a constant that has its value."""
        pair = (dim.full, dim.verify)
        if dim.full == dim.verify:
            return literal(dim.full)
        others = self.elsewhere(dim.text)
        name = self._named(pair, others)
        if name is None and dim.text.isidentifier():
            self._know(pair, name := dim.text, others)
        return Dim(name or self._declare(dim.text, pair, others), *pair)

    def dims(self, full: Sequence[int], verify: Sequence[int], *others: Sequence[int]) -> Dims:
        """Return the shape that has these sizes in the variants, the other ones where known.

        Raises:
            CannotWrite: it has another number of axes in either.
        """
        if any(len(each) != len(full) for each in (verify, *others)):
            raise CannotWrite(f"a shape has {len(full)} axes, and {len(verify)} when shrunk")
        return tuple(
            self.of(ours, theirs, tuple(rest))
            for ours, theirs, *rest in zip(full, verify, *others, strict=True)
        )

    def chosen(self, full: str, verify: str, *others: str) -> str:
        """Return the text that is another literal in each of the variants.

        Raises:
            CannotWrite: nothing tells the variants apart.
        """
        texts = (full, verify, *others)
        for (ours, theirs), names in self._known.items():
            for name in names if ours != theirs else ():
                sizes = (ours, theirs, *self._elsewhere.get(name, ()))
                told = dict(zip(sizes, texts, strict=False))
                if len(sizes) >= len(texts) and all(
                    told[size] == text for size, text in zip(sizes, texts, strict=False)
                ):
                    *first, (_, last) = told.items()
                    tests = " : ".join(f"{name} == {size} ? {text}" for size, text in first)
                    return f"{tests} : {last}"
        raise CannotWrite(f"{full} becomes {verify} in a variant that has the same sizes")

    def _declare(self, formula: str, pair: Pair, others: Values) -> str:
        name = f"SIZE_{len(self.declarations)}"
        self.declarations.append(f"constexpr long long {name} = {formula};")
        self._know(pair, name, others or self.elsewhere(formula))
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
        values = self.elsewhere(formula) if others else ()
        return not values or not others or values == others

    def elsewhere(self, formula: str) -> Values:
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
            (name, *pair) for pair, names in self._known.items() if pair[0] != pair[1]
            for name in {self._elsewhere.get(name): name for name in reversed(names)}.values()
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
