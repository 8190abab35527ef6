"""Builds values so that whatever one stage computes fits one kernel; the rest is stored first."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ....harness.task.names import plain
from ..program.free_names import free_name
from ..program.pointwise import pointwise_of
from ..program.values import (
    ONE,
    Buffer,
    Dims,
    Load,
    Product,
    Reduced,
    Scalar,
    Value,
    broadcast,
    load_of,
    products,
    reductions,
    same,
)


@dataclass(frozen=True)
class Stage:
    """What one kernel computes: values and the buffers that take them, all of one shape of work."""

    results: tuple[tuple[Value, Buffer], ...]


@dataclass(frozen=True, eq=False)
class Squeezed(Value):
    """A per-row value seen without its trailing dimensions of 1."""

    inner: Value = Scalar("", ())

    @property
    def operands(self) -> tuple[Value, ...]:
        return (self.inner,)


class Builder:
    """Makes values from values; where they cannot share a kernel, it closes a stage in between.

    Args:
        taken: names that are not free for locals.
    """

    def __init__(self, taken: set[str]) -> None:
        self.stages: list[Stage] = []
        self.stored: dict[int, Load] = {}
        """By the identity of a value: where the workspace holds it."""
        self._reduced: dict[tuple[str, int, tuple[int, ...]], Value] = {}
        # identities stay unique only while the values live
        self._alive: list[Value] = []
        self._names = taken

    def materialise(self, value: Value) -> Load:
        """Store a value in the workspace by a stage of its own, and return the view of it."""
        if isinstance(value, Load):
            return value
        if id(value) not in self.stored:
            name = f"scratch{len(self.stages)}"
            buffer = Buffer(name, "float32", value.dims)
            self.stages.append(Stage(((unwrapped(value), buffer),)))
            self.stored[id(value)] = load_of(buffer)
            self._alive.append(value)
        return self.stored[id(value)]

    def apply(
        self,
        base: str,
        operands: Sequence[Value],
        name: str,
        options: Sequence[Any] = (),
        keywords: Mapping[str, Any] | None = None,
    ) -> Value:
        """Return the elementwise operation, with operands stored first where they cannot fuse."""
        squeezed = [value for value in operands if isinstance(value, Squeezed)]
        if squeezed:
            dims = squeezed[0].dims
            if all(
                isinstance(value, Squeezed)
                and same(value.dims, dims)
                and same(value.inner.dims, squeezed[0].inner.dims)
                or not isinstance(value, Squeezed)
                and not value.dims
                for value in operands
            ):
                inner = self.apply(
                    base, [unwrapped(value) for value in operands], name, options, keywords
                )
                return Squeezed(inner.name, dims, inner=inner)
            operands = [
                self.materialise(value) if isinstance(value, Squeezed) else value
                for value in operands
            ]
        dims = broadcast([value.dims for value in operands])
        operands = self._compatible(operands, dims)
        return pointwise_of(base, self.name(name), dims, operands, options, keywords or {})

    def _compatible(self, operands: Sequence[Value], dims: Dims) -> list[Value]:
        """Return operands that one kernel over `dims` can compute, the others stored first."""
        kept: list[Value] = []
        geometry: Reduced | None = None
        matrix: Product | None = None
        for operand in operands:
            sums, matrices = reductions(operand), products(operand)
            fits = True
            if matrices:
                fits = not geometry and same(operand.dims, dims) and (
                    matrix is None or matrix is matrices[0])  # fmt: skip
            if sums:
                fits = (
                    not matrices and matrix is None and _row_shape(sums[0], dims)
                    and (geometry is None or same_geometry(geometry, sums[0]))
                )  # fmt: skip
            if not fits:
                kept.append(self.materialise(operand))
                continue
            geometry = sums[0] if sums else geometry
            matrix = matrices[0] if matrices else matrix
            kept.append(operand)
        return kept

    def reduce(self, kind: str, source: Value, axes: Sequence[int], name: str) -> Value:
        """Reduce over axes, keeping them as 1; leading axes are permuted to the end first."""
        key = (kind, id(source), tuple(axes))
        if key not in self._reduced:
            self._alive.append(source)
            self._reduced[key] = self._reduce_once(kind, source, axes, name)
        return self._reduced[key]

    def _reduce_once(self, kind: str, source: Value, axes: Sequence[int], name: str) -> Value:
        rank = len(source.dims)
        if isinstance(source, Squeezed) or products(source):
            source = self.materialise(source)
        kept = [axis for axis in range(rank) if axis not in axes]
        trailing = all(source.dims[axis].is_one for axis in kept if axis > min(axes, default=0))
        first = min(axes, default=0)
        if not trailing:
            source = permuted(self.materialise(source), [*kept, *axes])
            first = len(kept)
        rows, columns = source.dims[:first], source.dims[first:]
        if any(not _same_shape(found, rows, columns) for found in reductions(source)):
            source = self.materialise(source)
        ones = (ONE,) * len(columns)
        reduced = Reduced(
            self.name(name), rows + ones, source=source, kind=kind, rows=rows, columns=columns
        )
        if trailing:
            return reduced
        view = self.materialise(Squeezed(reduced.name, rows, inner=reduced))
        dims, strides = list(view.dims), list(view.strides)
        for axis in axes:
            dims.insert(axis, ONE)
            strides.insert(axis, ONE)
        return Load(view.name, tuple(dims), buffer=view.buffer, strides=tuple(strides))

    def squeeze(self, value: Value, axes: Sequence[int]) -> Value:
        """Drop axes of size 1."""
        dims = tuple(dim for axis, dim in enumerate(value.dims) if axis not in axes)
        if isinstance(value, Load):
            strides = tuple(s for axis, s in enumerate(value.strides) if axis not in axes)
            return Load(value.name, dims, buffer=value.buffer, strides=strides)
        return Squeezed(value.name, dims, inner=value)

    def name(self, wanted: str) -> str:
        """Return a C identifier close to the wanted one that is not taken."""
        base = plain(wanted) or "value"
        if base in RESERVED:
            base += "_value"
        return free_name(base, self._names)


def unwrapped(value: Value) -> Value:
    """Return a per-row value with its trailing dimensions of 1."""
    return value.inner if isinstance(value, Squeezed) else value


def _same_shape(found: Reduced, rows: Dims, columns: Dims) -> bool:
    return same(found.rows, rows) and same(found.columns, columns)


def same_geometry(left: Reduced, right: Reduced) -> bool:
    """Whether two reductions are over the same rows and columns."""
    return _same_shape(left, right.rows, right.columns)


def _row_shape(reduced: Reduced, dims: Dims) -> bool:
    """Whether a shape is that of the rows, with all columns or none."""
    rank = len(reduced.rows)
    if len(dims) != rank + len(reduced.columns) or not same(dims[:rank], reduced.rows):
        return False
    tail = dims[rank:]
    return all(dim.is_one for dim in tail) or same(tail, reduced.columns)


def permuted(view: Load, order: Sequence[int]) -> Load:
    """Return a view with its axes in another order."""
    dims = tuple(view.dims[axis] for axis in order)
    strides = tuple(view.strides[axis] for axis in order)
    return Load(view.name, dims, buffer=view.buffer, strides=strides)


RESERVED = frozenset(
    """
    float double int long short char bool new delete default switch case for while do if else
    return row col k c i sum exp log div abs max min sqrt rsqrt pow tanh erf and or not xor
    auto const static inline template class struct acc signed unsigned void wchar_t char8_t
    char16_t char32_t register volatile mutable extern thread_local constexpr consteval
    constinit decltype typedef typename typeid enum union namespace using this nullptr
    operator public private protected friend virtual explicit export break continue goto try
    catch throw noexcept sizeof alignas alignof true false asm requires concept const_cast
    static_cast dynamic_cast reinterpret_cast static_assert and_eq or_eq xor_eq not_eq bitand
    bitor compl half
    """.split()
)
"""Words of C++, and names that a kernel's text has: no value has one of these."""
