"""The little algebra between ATen and CUDA text: symbolic dimensions and the values of a program.

A value is described, not computed. What is stored somewhere is a `Load` (a strided view of a
buffer); everything else says how one element follows from the elements of its operands.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field

from ....harness.records.tensors import DType


class CannotWrite(Exception):
    """The program uses something outside the built-in writer's reach; the text is the reason."""


class IsRandom(CannotWrite):
    """No kernel of whoever writes it can be compared with an operation that draws numbers."""


@dataclass(frozen=True)
class Dim:
    """A dimension as text over the constants of task.cuh, with its value in both variants."""

    text: str
    full: int
    verify: int
    others: tuple[int, ...] = ()
    """Its values in further variants; nothing where they are not known, or it is a number."""

    def same_as(self, other: Dim) -> bool:
        """Whether the two dimensions are equal in all variants, as far as both are known."""
        if (self.full, self.verify) != (other.full, other.verify):
            return False
        here, there = (each.among(len(self.others or other.others)) for each in (self, other))
        return here == there or not here or not there

    def is_always(self, value: int) -> bool:
        """Whether the dimension has a value in all variants."""
        return all(each == value for each in (self.full, self.verify, *self.others))

    def among(self, variants: int) -> tuple[int, ...]:
        """Return its values in so many further variants; nothing where they are not known."""
        return self.others or ((self.full,) * variants if self.is_number else ())

    @property
    def is_number(self) -> bool:
        """Whether it depends on no size."""
        return self.text.lstrip("-").isdigit()

    @property
    def is_one(self) -> bool:
        """Whether the dimension is 1 in all variants."""
        return self.is_always(1)


ONE = Dim("1", 1, 1)
Dims = tuple[Dim, ...]


def product(dims: Sequence[Dim]) -> Dim:
    """Return the product of the dimensions; 1 for none."""
    factors = [dim for dim in dims if not dim.is_one]
    if not factors:
        return ONE
    full = verify = 1
    for dim in factors:
        full *= dim.full
        verify *= dim.verify
    return Dim(" * ".join(dim.text for dim in factors), full, verify)


def same(left: Sequence[Dim], right: Sequence[Dim]) -> bool:
    """Whether two shapes are equal in both variants."""
    return len(left) == len(right) and all(a.same_as(b) for a, b in zip(left, right, strict=True))


def broadcast(shapes: Sequence[Dims]) -> Dims:
    """Return the shape that the shapes broadcast to.

    Raises:
        CannotWrite: two sizes differ, or one is 1 in a single variant only.
    """
    rank = max((len(shape) for shape in shapes), default=0)
    result = []
    for position in range(rank):
        chosen = ONE
        for shape in shapes:
            index = position - (rank - len(shape))
            if index < 0 or shape[index].is_one:
                continue
            if chosen.is_one:
                chosen = shape[index]
            elif not chosen.same_as(shape[index]):
                raise CannotWrite(
                    f"broadcast of sizes {chosen.full} and {shape[index].full} that are not equal "
                    "in both variants of the task"
                )
        result.append(chosen)
    return tuple(result)


@dataclass(frozen=True)
class Buffer:
    """A contiguous tensor in device memory, by the name of its pointer."""

    name: str
    dtype: DType
    dims: Dims


@dataclass(frozen=True, eq=False)
class Value:
    """Base of all values; `name` is the ATen node's, made a C identifier."""

    name: str
    dims: Dims

    @property
    def operands(self) -> tuple[Value, ...]:
        """The values it follows from."""
        return ()


@dataclass(frozen=True, eq=False)
class Scalar(Value):
    """A number known when compiling: its text, or a number of elements less `correction`."""

    text: str = ""
    count: Dim | None = None
    correction: int = 0


@dataclass(frozen=True, eq=False)
class Load(Value):
    """A strided view of a buffer; a stride of None repeats the element (broadcast)."""

    buffer: Buffer = field(kw_only=True)
    strides: tuple[Dim | None, ...] = ()

    @property
    def is_contiguous(self) -> bool:
        """Whether the view walks the buffer in order."""
        expected = contiguous_strides(self.dims)
        return all(
            dim.is_one or (stride is not None and stride.same_as(wanted))
            for dim, stride, wanted in zip(self.dims, self.strides, expected, strict=True)
        )


@dataclass(frozen=True, eq=False)
class Pointwise(Value):
    """One element from one element of each operand: `render` turns their texts into an expression.

    `repeats` says that a text occurs more than once in the expression, so it must be a name.
    """

    inputs: tuple[Value, ...] = ()
    render: Callable[[Sequence[str]], str] = field(default=lambda texts: texts[0])
    repeats: bool = False

    @property
    def operands(self) -> tuple[Value, ...]:
        return self.inputs


@dataclass(frozen=True, eq=False)
class Reduced(Value):
    """A sum, maximum or minimum over the trailing dimensions `columns` of its operand."""

    source: Value = field(kw_only=True)
    kind: str = "sum"
    rows: Dims = ()
    columns: Dims = ()

    @property
    def operands(self) -> tuple[Value, ...]:
        return (self.source,)


@dataclass(frozen=True, eq=False)
class Product(Value):
    """A matrix product: left (rows, depth) times right (depth, columns), rows flattened."""

    left: Load = field(kw_only=True)
    right: Load = field(kw_only=True)

    @property
    def operands(self) -> tuple[Value, ...]:
        return (self.left, self.right)


def contiguous_strides(dims: Sequence[Dim]) -> tuple[Dim, ...]:
    """Return the row-major strides of a shape, in elements."""
    return tuple(product(dims[position + 1 :]) for position in range(len(dims)))


def load_of(buffer: Buffer, name: str | None = None) -> Load:
    """Return the whole buffer as a value."""
    return Load(
        name or buffer.name, buffer.dims, buffer=buffer, strides=contiguous_strides(buffer.dims)
    )


def walk(value: Value) -> Iterator[Value]:
    """Yield the value and everything it follows from, operands first, each once."""
    seen: set[int] = set()

    def visit(current: Value) -> Iterator[Value]:
        if id(current) in seen:
            return
        seen.add(id(current))
        for operand in current.operands:
            yield from visit(operand)
        yield current

    yield from visit(value)


def reductions(value: Value) -> list[Reduced]:
    """Return the reductions that the value follows from, in order of computation."""
    return [found for found in walk(value) if isinstance(found, Reduced)]


def products(value: Value) -> list[Product]:
    """Return the matrix products that the value follows from."""
    return [found for found in walk(value) if isinstance(found, Product)]


def offset(load: Load, dims: Dims, axes: Sequence[tuple[str, int]], names: Sequence[Dim]) -> str:
    """Return the element offset of a view inside an index space, as C text.

    Args:
        load: the view, broadcast against `dims` from the right.
        dims: shape of the index space.
        axes: index variables, outermost first, each with the number of dimensions it flattens.
        names: named constants to prefer for strides, for example COLS.
    """
    padding = len(dims) - len(load.dims)
    strides = (None,) * padding + tuple(
        None if size.is_one else stride
        for size, stride in zip(load.dims, load.strides, strict=True)
    )
    terms: list[str] = []
    first = 0
    for variable, count in axes:
        terms += _axis_terms(variable, dims[first : first + count], strides[first : first + count],
                             names)  # fmt: skip
        first += count
    terms.sort(key=lambda term: term.isidentifier())
    return " + ".join(terms) or "0"


def _axis_terms(
    variable: str, dims: Dims, strides: Sequence[Dim | None], names: Sequence[Dim]
) -> list[str]:
    """Return the terms of an offset that follow from one flattened index variable."""
    terms = []
    position = 0
    while position < len(dims):
        end = position + 1
        if strides[position] is None:
            position = end
            continue
        while end < len(dims) and _continues(dims, strides, end):
            end += 1
        inner = product(dims[end:])
        size = product(dims[position:end])
        text = variable
        if not inner.is_one:
            text = f"{text} / {factor(inner, names)}"
        if not product(dims[:position]).is_one:
            text = f"{text} % {factor(size, names)}"
        # A size of 1 at the end of the run has no stride of its own.
        step = next(each for each in reversed(strides[position:end]) if each is not None)
        if not step.is_one:
            text = f"{text} * {factor(step, names)}" if text == variable else (
                f"({text}) * {factor(step, names)}")  # fmt: skip
        terms.append(text)
        position = end
    return terms


def _continues(dims: Dims, strides: Sequence[Dim | None], position: int) -> bool:
    """Whether the dimension at `position` is contiguous with the one before it."""
    before, here = strides[position - 1], strides[position]
    if dims[position].is_one:
        return True
    return (
        before is not None and here is not None and before.same_as(product((dims[position], here)))
    )


def factor(dim: Dim, names: Sequence[Dim]) -> str:
    """Return the text of a dimension as a factor, by a named constant where one is equal."""
    for name in names:
        if name.same_as(dim):
            return name.text
    return f"({dim.text})" if "*" in dim.text else dim.text
