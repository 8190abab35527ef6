"""Numbers that differ between the two variants of a task, as text over task.cuh's constants."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from contextlib import suppress

from ....harness.records.tasks import Task
from ....harness.task.names import constants_of
from .values import ONE, CannotWrite, Dim, Dims

ZERO = Dim("0", 0, 0)
_OFFSETS = tuple(sorted(range(-16, 17), key=abs))
_ARITHMETIC = re.compile(r"[\d\s()+*/-]+")
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


class Sizes:
    """The constants at hand: those of task.cuh, and those that the source declares from them."""

    def __init__(self, task: Task, beside: Task | None = None) -> None:
        """Know the constants of a task by their values in its two variants.

        Args:
            task: the task.
            beside: the same one, whose small variant is a third in which all holds.

        Raises:
            CannotWrite: a tensor has another number of axes in one of them.
        """
        self.declarations: list[str] = []
        self._known: dict[tuple[int, int], list[str]] = {}
        self._third: dict[str, int] = {}
        """What is known of them in the third variant."""
        small = {tensor.name: tensor.shape for tensor in task.verify.tensors}
        third = {tensor.name: tensor.shape for tensor in beside.verify.tensors} if beside else {}
        for tensor in task.full.tensors:
            name = tensor.name.upper()
            if len(small[tensor.name]) != len(tensor.shape):
                raise CannotWrite(f"tensor {tensor.name} changes its rank between the variants")
            also = third.get(tensor.name, small[tensor.name]) if beside else ()
            for axis, pair in enumerate(zip(tensor.shape, small[tensor.name], strict=True)):
                self._know(pair, f"{name}_SIZE_{axis}", also[axis] if also else None)
        names = constants_of(task.full).dimensions
        for dimension, full in task.full.dimensions.items():
            if dimension in task.verify.dimensions:
                size = beside.verify.dimensions.get(dimension) if beside else None
                self._know((full, task.verify.dimensions[dimension]), names[dimension], size)

    def of(self, full: int, verify: int, third: int | None = None) -> Dim:
        """Return the number with these values, by a constant of the task or one made of them.

        Raises:
            CannotWrite: only a third variant, in which its value is known, tells it from others.
        """
        if full == verify:
            if third not in (None, full):
                raise CannotWrite(f"a size is {full} in two variants, and {third} in a third")
            return literal(full)
        pair = (full, verify)
        known = self._known.get(pair, ())
        name = next((each for each in known if self._agrees(self._third.get(each), third)), None)
        if name is None:
            name = self._declare(self._formula(full, verify, third), pair, third)
        return Dim(name, full, verify)

    def named(self, dim: Dim) -> Dim:
        """Return a number that was computed, by a constant that has its value."""
        pair = (dim.full, dim.verify)
        if dim.full != dim.verify and pair not in self._known and dim.text.isidentifier():
            self._know(pair, dim.text)
        elif dim.full != dim.verify and pair not in self._known:
            self._declare(dim.text, pair)
        return self.of(*pair)

    def dims(
        self, full: Sequence[int], verify: Sequence[int], third: Sequence[int] | None = None
    ) -> Dims:
        """Return the shape that has these sizes in the variants.

        Raises:
            CannotWrite: it has another number of axes in either.
        """
        if len(full) != len(verify) or third is not None and len(third) != len(full):
            raise CannotWrite(f"a shape has {len(full)} axes, and {len(verify)} when shrunk")
        also = third if third is not None else [None] * len(full)
        return tuple(self.of(*each) for each in zip(full, verify, also, strict=True))

    def chosen(self, full: str, verify: str, third: str | None = None) -> str:
        """Return the text that is one literal in the full variant and another in the small one.

        Raises:
            CannotWrite: nothing tells the variants apart.
        """
        for (ours, theirs), names in self._known.items():
            for name in names:
                if ours == theirs:
                    continue
                if third is None:
                    return f"{name} == {ours} ? {full} : {verify}"
                if self._third.get(name, ours) not in (ours, theirs):
                    rest = f"{name} == {theirs} ? {verify} : {third}"
                    return f"{name} == {ours} ? {full} : ({rest})"
        raise CannotWrite(f"{full} becomes {verify} in a variant that has the same sizes")

    def _declare(self, formula: str, pair: tuple[int, int], third: int | None = None) -> str:
        name = f"SIZE_{len(self.declarations)}"
        self.declarations.append(f"constexpr long long {name} = {formula};")
        self._know(pair, name, self._in_third(formula) if third is None else third)
        return name

    def _know(self, pair: tuple[int, int], name: str, third: int | None = None) -> None:
        self._known.setdefault(pair, []).append(name)
        if third is not None:
            self._third[name] = third

    @staticmethod
    def _agrees(one: int | None, other: int | None) -> bool:
        return one is None or other is None or one == other

    def _in_third(self, formula: str) -> int | None:
        """Return the value of a formula in the third variant, where that is known of its parts."""
        if not self._third:
            return None
        text = re.sub(r"[A-Za-z_]\w*", lambda name: str(self._third.get(name[0], "?")), formula)
        if not _ARITHMETIC.fullmatch(text):
            return None
        with suppress(ZeroDivisionError):
            return int(eval(text.replace("/", "//")))
        return None

    def _formula(self, full: int, verify: int, third: int | None) -> str:
        for text, ours, theirs in self._formulas():
            if (ours, theirs) == (full, verify) and self._agrees(self._in_third(text), third):
                return text
        return self.chosen(str(full), str(verify), None if third is None else str(third))

    def _formulas(self) -> Iterator[tuple[str, int, int]]:
        """Yield formulas over the known constants, the plainest first."""
        known = [
            (name, *pair) for pair, names in self._known.items() if pair[0] != pair[1]
            for name in {self._third.get(name): name for name in reversed(names)}.values()
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
        for name, a, b in known:
            for factor in _FACTORS[:5]:
                for offset in _OFFSETS:
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
