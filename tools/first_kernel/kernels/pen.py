"""The text of one kernel as it is written: threads, loops, loads and stores by named sizes.

A size in the text is a name. Kernels whose texts are the same become one, to which the sizes that
differ are arguments; see source.py.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace

from ..program.arrays import Array, Storage
from ..program.sizes import ceil_div, count, same_as_zero
from ..program.values import CannotWrite, Dim, same

INDEX = "index_t"
SQUARE = 16
"""Rows and columns of what a block of THREADS threads covers of a product."""
C_TYPES = {
    "float64": "double", "float32": "float", "float16": "__half", "bfloat16": "__nv_bfloat16",
    "int64": "long long", "int32": "int", "int16": "short", "int8": "signed char",
    "uint8": "unsigned char", "bool": "bool",
}  # fmt: skip
_LOADED = {"float16": "__half2float({})", "bfloat16": "__bfloat162float({})"}
_STORED = {
    "float16": "__float2half({})", "bfloat16": "__float2bfloat16({})",
    "int64": "static_cast<long long>({})", "int32": "static_cast<int>({})",
    "int16": "static_cast<short>({})", "int8": "static_cast<signed char>({})",
    "uint8": "static_cast<unsigned char>({})", "bool": "static_cast<bool>({})",
}  # fmt: skip


_INDEX_LINE = re.compile(rf" *const {INDEX} (\w+) = [^;]*;$")
_SINGLE = re.compile(
    r"\b(?!isinf\b)([a-z][a-z0-9]*)f(?=\()|\b(float)\b|(\d[\d.]*(?:e[-+]?\d+)?)f\b"
)
"""What of a kernel's text is of single precision: functions, the type, numbers."""


@dataclass(frozen=True)
class Pointer:
    """One pointer parameter of a kernel and what a launch passes for it."""

    name: str
    array: Array
    written: bool

    @property
    def ctype(self) -> str:
        """Declaration of the parameter, without its name."""
        return f"{'' if self.written else 'const '}{C_TYPES[self.array.dtype]}*"


@dataclass(frozen=True)
class Hole:
    """A number of a kernel by its name, and its text in one launch."""

    name: str
    ctype: str
    text: str


class Pen:
    """Writes the body of one kernel.

    Args:
        stem: what the kernel is called, before `_kernel`.
        title: the comment above it.
    """

    def __init__(self, stem: str, title: str) -> None:
        self.stem = stem
        self.title = title
        self.lines: list[str] = []
        self.holes: list[Hole] = []
        self.pointers: list[Pointer] = []
        self.threads = Dim("1", 1, 1)
        self.block_per: Dim | None = None
        """Number of blocks, where a kernel counts blocks and not threads."""
        self.exact = False
        """Whether something between what is read and written is of double precision."""
        self.wide = False
        """Whether an index may pass 2^31."""
        self._depth = 1
        self._names: dict[str, int] = {}
        self._sizes: dict[int, tuple[str, Dim]] = {}
        self._flat: tuple[str, list[str], Sequence[Dim]] | None = None
        """The number of the thread, the indices made of it, and the shape that they are of."""

    # Names

    def name(self, wanted: str) -> str:
        """Return a name that is free in this kernel."""
        taken = self._names.get(wanted, 0)
        self._names[wanted] = taken + 1
        return wanted if not taken else self.name(f"{wanted}_{taken + 1}")

    def size(self, dim: Dim, hint: str = "size") -> str:
        """Return the name of a number in this kernel; 0 and 1 are themselves."""
        if dim.is_number and dim.full in (0, 1):
            return str(dim.full)
        # One and the same size, for whatever it is used: equal sizes may differ in other launches.
        if id(dim) in self._sizes:
            return self._sizes[id(dim)][0]
        name = self.name(hint)
        self._sizes[id(dim)] = (name, dim)
        self.holes.append(Hole(name, INDEX, dim.text))
        return name

    def number(self, text: str, hint: str) -> str:
        """Return the name of a floating point number in this kernel."""
        name = self.name(hint)
        self.holes.append(Hole(name, "float", text))
        return name

    def pointer(self, array: Array, hint: str, written: bool = False) -> str:
        """Return the name of a pointer to a view's first element."""
        for known in self.pointers:
            if known.array is array and known.written == written:
                return known.name
        name = self.name(hint)
        self.pointers.append(Pointer(name, array, written))
        self.wide = self.wide or max(array.storage.size.full, count(array.dims).full) >= 2**31 - 512
        return name

    @property
    def storages(self) -> list[Storage]:
        """What the kernel reads and writes."""
        return [pointer.array.storage for pointer in self.pointers]

    def tidy(self) -> None:
        """Take out indices and sizes that nothing uses, once all is written.

        A kernel that touches numbers of double precision computes in it.
        """
        if self.exact or any(pointer.array.dtype == "float64" for pointer in self.pointers):
            self.lines = [_SINGLE.sub(_doubled, line) for line in self.lines]
            self.holes = [
                replace(hole, ctype="double", text=_SINGLE.sub(_doubled, hole.text))
                if hole.ctype == "float" else hole for hole in self.holes
            ]  # fmt: skip
        while True:
            used = Counter(re.findall(r"\w+", "\n".join(self.lines)))
            kept = [
                line for line in self.lines
                if (found := _INDEX_LINE.match(line)) is None or used[found[1]] > 1
            ]  # fmt: skip
            if len(kept) == len(self.lines):
                self.holes = [hole for hole in self.holes if used[hole.name]]
                return
            self.lines = kept

    # Text

    def line(self, text: str) -> None:
        """Add a line at the present depth."""
        self.lines.append("    " * self._depth + text)

    @contextmanager
    def block(self, head: str) -> Iterator[None]:
        """Write a statement with a block, whose lines are written inside."""
        self.line(f"{head} {{")
        self._depth += 1
        yield
        self._depth -= 1
        self.line("}")

    @contextmanager
    def loops(self, dims: Sequence[Dim], names: Sequence[str]) -> Iterator[list[str]]:
        """Write nested loops; yields the names of their variables, "0" for an axis of 1."""
        variables, opened = [], 0
        for dim, wanted in zip(dims, names, strict=True):
            if dim.is_one:
                variables.append("0")
                continue
            bound, variable = self.size(dim, f"{wanted}_size"), self.name(wanted)
            self.line(f"for ({INDEX} {variable} = 0; {variable} < {bound}; ++{variable}) {{")
            self._depth += 1
            opened += 1
            variables.append(variable)
        yield variables
        for _ in range(opened):
            self._depth -= 1
            self.line("}")

    def one_thread_each(self, dims: Sequence[Dim], names: Sequence[str]) -> list[str]:
        """Begin a kernel with a thread for each element of a shape; returns its indices."""
        self.threads = count(dims)
        self.wide = self.wide or self.threads.full >= 2**31 - 512
        live = [axis for axis, dim in enumerate(dims) if not dim.is_one]
        if not live:
            self.line("if (blockIdx.x * blockDim.x + threadIdx.x > 0) return;")
            return ["0"] * len(dims)
        if len(live) == 1:
            variable = self.name(names[live[0]])
            bound = self.size(dims[live[0]], f"{variable}_size")
            first = f"static_cast<{INDEX}>(blockIdx.x)"
            self.line(f"const {INDEX} {variable} = {first} * blockDim.x + threadIdx.x;")
            self.line(f"if ({variable} >= {bound}) return;")
            return [variable if axis in live else "0" for axis in range(len(dims))]
        flat = self.name("i")
        variables = {axis: self.name(names[axis]) for axis in live}
        sizes = {axis: self.size(dims[axis], f"{variables[axis]}_size") for axis in live}
        first = f"static_cast<{INDEX}>(blockIdx.x)"
        self.line(f"const {INDEX} {flat} = {first} * blockDim.x + threadIdx.x;")
        self.line(f"if ({flat} >= {' * '.join(sizes[axis] for axis in live)}) return;")
        self._decode(flat, live, variables, sizes)
        indices = [variables.get(axis, "0") for axis in range(len(dims))]
        self._flat = (flat, indices, dims)
        return indices

    def one_block_each(self, dims: Sequence[Dim], names: Sequence[str]) -> list[str]:
        """Begin a kernel with a block for each element of a shape; returns its indices."""
        self.block_per = count(dims)
        number = self.name(names[0] if len(dims) == 1 else "row")
        self.line(f"const {INDEX} {number} = blockIdx.x;")
        return self.split(number, dims, names)

    def one_thread_each_in_squares(self, dims: Sequence[Dim], names: Sequence[str]) -> list[str]:
        """Begin a kernel whose blocks cover squares of the last two axes; returns its indices.

        A product reads one operand by its row and the other by its column: a block of 16 by 16
        elements reads 16 rows of each, one of 256 by 1 reads 257.
        """
        *lead, rows, columns = dims
        down, across = ceil_div(rows, SQUARE), ceil_div(columns, SQUARE)
        self.block_per = count([*lead, down, across])
        self.threads = count(dims)
        self.wide = self.wide or self.threads.full >= 2**31 - 512
        row, column = (self.name(name) for name in names[-2:])
        height, width = self.size(rows, f"{row}_size"), self.size(columns, f"{column}_size")
        tile, of_rows = self.name("tile"), self.name("tiles_of_rows")
        of_columns = self.name("tiles_of_columns")
        for tiles, size in ((of_rows, height), (of_columns, width)):
            self.line(f"const {INDEX} {tiles} = ({size} + {SQUARE - 1}) / {SQUARE};")
        first = f"{tile} / {of_columns}{f' % {of_rows}' if lead else ''} * {SQUARE}"
        self.line(f"const {INDEX} {tile} = blockIdx.x;")
        self.line(f"const {INDEX} {row} = {first} + threadIdx.x / {SQUARE};")
        first = f"{tile} % {of_columns} * {SQUARE}"
        self.line(f"const {INDEX} {column} = {first} + threadIdx.x % {SQUARE};")
        self.line(f"if ({row} >= {height} || {column} >= {width}) return;")
        if not lead:
            return [row, column]
        number = self.name(names[0] if len(lead) == 1 else "i")
        self.line(f"const {INDEX} {number} = {tile} / ({of_rows} * {of_columns});")
        return [*self.split(number, lead, names[:-2]), row, column]

    def split(self, flat: str, dims: Sequence[Dim], names: Sequence[str]) -> list[str]:
        """Write the indices that a flat index over a shape stands for; returns their names."""
        live = [axis for axis, dim in enumerate(dims) if not dim.is_one]
        if len(live) <= 1:
            return [flat if axis in live else "0" for axis in range(len(dims))]
        variables = {axis: self.name(names[axis]) for axis in live}
        sizes = {axis: self.size(dims[axis], f"{variables[axis]}_size") for axis in live[1:]}
        self._decode(flat, live, variables, sizes)
        return [variables.get(axis, "0") for axis in range(len(dims))]

    def _decode(
        self, flat: str, live: Sequence[int], variables: dict[int, str], sizes: dict[int, str]
    ) -> None:
        for position, axis in enumerate(reversed(live)):
            below = [sizes[other] for other in live[len(live) - position :]]
            text = flat if not below else f"{flat} / {below[0]}" if len(below) == 1 else (
                f"{flat} / ({' * '.join(below)})")  # fmt: skip
            if position < len(live) - 1:
                text += f" % {sizes[axis]}"
            self.line(f"const {INDEX} {variables[axis]} = {text};")

    # Elements

    def element(
        self, array: Array, indices: Sequence[str], hint: str, written: bool = False
    ) -> str:
        """Return the text of one element, of the type that it has in memory."""
        name = self.pointer(array, hint, written)
        terms = []
        if self._flat and array.is_contiguous and list(indices) == self._flat[1] and same(
            array.dims, self._flat[2]
        ):
            return f"{name}[{self._flat[0]}]"
        if array.is_contiguous and sum(not dim.is_one for dim in array.dims) > 1:
            text = ""
            for dim, index in zip(array.dims, indices, strict=True):
                if dim.is_one:
                    continue
                if text:
                    text = f"{_enclosed(text)} * {self.size(dim, f'{name}_size')} + "
                text += _enclosed(index)
            return f"{name}[{text}]"
        for dim, stride, index in zip(array.dims, array.strides, indices, strict=True):
            if dim.is_one or index == "0" or same_as_zero(stride):
                continue
            if stride.is_one:
                terms.append(_enclosed(index))
            else:
                terms.append(f"{_enclosed(index)} * {self.size(stride, f'{name}_stride')}")
        return f"{name}[{' + '.join(terms) or '0'}]"

    def load(self, array: Array, indices: Sequence[str], hint: str = "x") -> str:
        """Return the text of one element, as a float where it is a number of 16 bits."""
        return _LOADED.get(array.dtype, "{}").format(self.element(array, indices, hint))

    def store(self, array: Array, indices: Sequence[str], value: str, hint: str = "out") -> None:
        """Write one element."""
        text = _STORED.get(array.dtype, "{}").format(value)
        self.line(f"{self.element(array, indices, hint, written=True)} = {text};")


def _doubled(found: re.Match[str]) -> str:
    function, word, literal = found.groups()
    return "double" if word else str(function or literal)


def type_of(dtype: str) -> str:
    """Return the C type that a value is computed in. Raises CannotWrite for other dtypes."""
    if dtype not in C_TYPES:
        raise CannotWrite(f"values of {dtype} are not written")
    return "float" if dtype in _LOADED else C_TYPES[dtype]


def _enclosed(text: str) -> str:
    return f"({text})" if any(char in text for char in " ?") else text

