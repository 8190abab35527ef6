"""Writes the statements of a kernel body: values as expressions and named locals."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field

from ..program.free_names import free_name
from ..program.values import (
    Buffer,
    Dim,
    Dims,
    Load,
    Pointwise,
    Product,
    Reduced,
    Scalar,
    Value,
    factor,
    load_of,
    offset,
)

_INLINE_LIMIT = 56
"""A single-use expression up to this many characters is written where it is used."""
_INTERMEDIATE = re.compile(r"\bscratch\d+\b")
_NUMBER = re.compile(r"(?<=[A-Za-z])_?\d+(?:_\d+)*(?=\b|_)")


def _length(text: str) -> int:
    """Return its characters as it would have them in the first of several equal layers."""
    return len(_NUMBER.sub("", _INTERMEDIATE.sub("x", text)))


def loaded(buffer: Buffer, element: str) -> str:
    """Return the fp32 value of an element of the buffer."""
    text = f"{buffer.name}[{element}]"
    convert = {"float16": "__half2float", "bfloat16": "__bfloat162float"}.get(buffer.dtype)
    return f"{convert}({text})" if convert else text


def stored(buffer: Buffer, element: str, text: str) -> str:
    """Return the statement that stores an fp32 value in an element of the buffer."""
    convert = {"float16": "__float2half", "bfloat16": "__float2bfloat16"}.get(buffer.dtype)
    return f"{buffer.name}[{element}] = {f'{convert}({text})' if convert else text};"


@dataclass
class Body:
    """Statements under one indentation, with the values that already have a name in them.

    `dims` is the index space, `axes` the index variables over it (name, dimensions flattened),
    `names` the constants to prefer in offsets. In a row program `columns` counts the trailing
    dimensions of a row and `width` names their product and
    `column` the index over them; the body of a loop over a row has `outer`,
    which computes what there is once a row.
    """

    dims: Dims
    axes: Sequence[tuple[str, int]]
    names: Sequence[Dim]
    taken: set[str]
    columns: int = 0
    width: str = ""
    column: str = "c"
    outer: Body | None = None
    lines: list[str] = field(default_factory=list)
    texts: dict[int, str] = field(default_factory=dict)
    uses: dict[int, int] = field(default_factory=dict)

    def expect(self, roots: Sequence[Value]) -> None:
        """Count how often each value is used on the way to the roots, to name the repeated."""
        seen: set[int] = set()
        waiting = list(roots)
        while waiting:
            value = waiting.pop()
            elsewhere = self.outer is not None and self.outer.computes(value)
            if id(value) in seen or elsewhere or isinstance(value, Reduced):
                continue
            seen.add(id(value))
            waiting += value.operands
            for operand in value.operands:
                self.uses[id(operand)] = self.uses.get(id(operand), 0) + 1

    def text(self, value: Value, *, named: bool = False) -> str:
        """Return the value as an expression, writing statements before it where needed."""
        known = self.texts.get(id(value))
        if known is not None:
            return known
        if self.outer is not None and self.outer.computes(value):
            text = self.outer.text(value, named=not isinstance(value, (Scalar, Load)))
            self.texts[id(value)] = text
            return text
        if isinstance(value, Scalar):
            return value.text if value.count is None else self._count(value)
        if isinstance(value, Load):
            text = loaded(value.buffer, offset(value, self.dims, self.axes, self.names))
        elif isinstance(value, Pointwise):
            operands = [
                self.text(operand, named=value.repeats and not isinstance(operand, Scalar))
                for operand in value.inputs
            ]
            text = value.render(operands)
        else:
            assert isinstance(value, Reduced), "products are named by their kernel"
            text = self.reduced(value)
        repeated = self.uses.get(id(value), 0) > 1
        if named or repeated or _length(text) > _INLINE_LIMIT:
            text = self._named(value, text)
        return text

    def computes(self, value: Value) -> bool:
        """Whether the value has one element a row, so that it is computed outside the loops."""
        if isinstance(value, (Scalar, Reduced)):
            return True
        tail = value.dims[max(0, len(value.dims) - self.columns) :]
        return not isinstance(value, Product) and all(dim.is_one for dim in tail)

    def reduced(self, value: Reduced) -> str:
        """Write the loop of a reduction over the columns of a row, and return its accumulator."""
        name = self.fresh(value.name)
        start, update = {
            "sum": ("0.0f", "{name} += {text};"),
            "max": ("-INFINITY", "{name} = fmaxf({name}, {text});"),
            "min": ("INFINITY", "{name} = fminf({name}, {text});"),
        }[value.kind]
        inner = self.inside()
        inner.expect([value.source])
        text = inner.text(value.source)
        inner.lines.append(update.format(name=name, text=text))
        self.lines.append(f"float {name} = {start};")
        self.loop(inner)
        self.texts[id(value)] = name
        return name

    def inside(self) -> Body:
        """Return the body of a loop over the columns of a row."""
        axes = (*self.axes, (self.column, self.columns))
        return Body(
            self.dims, axes, self.names, self.taken, self.columns, self.width, self.column, self
        )

    def loop(self, inner: Body) -> None:
        """Write the loop over the columns of a row round the lines of the inner body."""
        self.lines += [
            f"for (int {self.column} = 0; {self.column} < {self.width}; ++{self.column}) {{",
            *("    " + line for line in inner.lines),
            "}",
        ]

    def store(self, value: Value, buffer: Buffer) -> None:
        """Write the statement that stores the value at this body's position."""
        view = load_of(Buffer(buffer.name, buffer.dtype, value.dims))
        element = offset(view, self.dims, self.axes, self.names)
        self.lines.append(stored(buffer, element, self.text(value)))

    def fresh(self, wanted: str) -> str:
        """Return a local name that is not taken in this kernel."""
        return free_name(wanted, self.taken)

    def _named(self, value: Value, text: str) -> str:
        if text.isidentifier():
            self.texts[id(value)] = text
            return text
        wanted = f"{value.buffer.name}_value" if isinstance(value, Load) else value.name
        name = self.fresh(wanted)
        self.lines.append(f"const float {name} = {text};")
        self.texts[id(value)] = name
        return name

    def _count(self, value: Scalar) -> str:
        assert value.count is not None
        text = factor(value.count, self.names)
        return f"{text} - {value.correction}" if value.correction else text
