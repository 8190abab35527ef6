"""Where the values of a program lie: storages in device memory and strided views of them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from .sizes import ZERO, count, negative, plus, same_as_zero, times
from .values import ONE, CannotWrite, Dim, Dims

FLOATING = frozenset(("float64", "float32", "float16", "bfloat16"))
INTEGERS = frozenset(("int64", "int32", "int16", "int8", "uint8", "bool"))


@dataclass(eq=False)
class Storage:
    """Memory of one tensor: an argument of launch, or room in the workspace."""

    name: str
    """Of the pointer that launch has to it."""
    dtype: str
    size: Dim
    """In elements."""
    external: bool = False
    """Whether the pointer is an argument of launch."""
    launches: list[int] = field(default_factory=list)
    """Positions of the launches that touch it."""


@dataclass(frozen=True, eq=False)
class Array:
    """A strided view of a storage; a stride of 0 repeats the element."""

    storage: Storage
    dims: Dims
    strides: Dims
    offset: Dim = ZERO
    """In elements, from the start of the storage."""

    @property
    def dtype(self) -> str:
        """Type of an element."""
        return self.storage.dtype

    @property
    def is_contiguous(self) -> bool:
        """Whether its elements follow each other in order, without gaps."""
        wanted = row_major(self.dims)
        return all(
            dim.is_one or stride.same_as(expected)
            for dim, stride, expected in zip(self.dims, self.strides, wanted, strict=True)
        )

    @property
    def is_whole(self) -> bool:
        """Whether it is all of its storage, in order."""
        return (
            self.is_contiguous and same_as_zero(self.offset)
            and count(self.dims).same_as(self.storage.size)
        )  # fmt: skip


def row_major(dims: Sequence[Dim]) -> Dims:
    """Return the strides of a contiguous tensor."""
    strides: list[Dim] = []
    step = ONE
    for dim in reversed(dims):
        strides.append(step)
        step = times(step, dim)
    return tuple(reversed(strides))


def whole(storage: Storage, dims: Dims) -> Array:
    """Return all of a storage as a tensor of a shape."""
    return Array(storage, dims, row_major(dims))


def permuted(array: Array, order: Sequence[int]) -> Array:
    """Return a view with its axes in another order."""
    dims = tuple(array.dims[axis] for axis in order)
    return replace(array, dims=dims, strides=tuple(array.strides[axis] for axis in order))


def unsqueezed(array: Array, axis: int) -> Array:
    """Return a view with a new axis of size 1."""
    dims = (*array.dims[:axis], ONE, *array.dims[axis:])
    strides = (*array.strides[:axis], ZERO, *array.strides[axis:])
    return replace(array, dims=dims, strides=strides)


def without(array: Array, axes: Sequence[int]) -> Array:
    """Return a view without some axes: their first elements."""
    kept = [axis for axis in range(len(array.dims)) if axis not in axes]
    return permuted(array, kept)


def part(array: Array, axis: int, start: Dim, size: Dim, step: int = 1) -> Array:
    """Return the view of some positions along an axis."""
    stride = array.strides[axis]
    offset = plus(array.offset, times(start, stride))
    dims = (*array.dims[:axis], size, *array.dims[axis + 1 :])
    stepped = times(stride, Dim(str(step), step, step))
    strides = (*array.strides[:axis], stepped, *array.strides[axis + 1 :])
    return replace(array, dims=dims, strides=strides, offset=offset)


def flipped(array: Array, axis: int) -> Array:
    """Return the view that walks an axis backwards."""
    stride = array.strides[axis]
    last = plus(array.dims[axis], Dim("-1", -1, -1))
    strides = (*array.strides[:axis], negative(stride), *array.strides[axis + 1 :])
    return replace(array, strides=strides, offset=plus(array.offset, times(last, stride)))


def expanded(array: Array, dims: Dims) -> Array:
    """Return the view that repeats axes of size 1, and new leading axes, up to a shape.

    Raises:
        CannotWrite: an axis has another size, or is 1 in one variant only.
    """
    missing = len(dims) - len(array.dims)
    strides: list[Dim] = [ZERO] * missing
    for dim, stride, wanted in zip(array.dims, array.strides, dims[missing:], strict=True):
        if not dim.same_as(wanted) and not dim.is_one:
            raise CannotWrite(f"a size of {dim.full} cannot be repeated to {wanted.full}")
        strides.append(stride if dim.same_as(wanted) and not dim.is_one else ZERO)
    return replace(array, dims=dims, strides=tuple(strides))


def reshaped(array: Array, dims: Dims) -> Array | None:
    """Return the same elements in another shape, or None where that needs a copy."""
    if array.is_contiguous:
        return replace(array, dims=dims, strides=row_major(dims))
    runs = _runs(array)
    strides: list[Dim] = []
    left = [dim for dim in dims if not dim.is_one]
    for size, step in runs:
        taken: list[Dim] = []
        while left and not count(taken).same_as(size):
            taken.append(left.pop(0))
        if not count(taken).same_as(size):
            return None
        strides += [times(step, stride) for stride in row_major(taken)]
    if left:
        return None
    found = iter(strides)
    return replace(
        array, dims=dims, strides=tuple(ZERO if dim.is_one else next(found) for dim in dims)
    )


def _runs(array: Array) -> list[tuple[Dim, Dim]]:
    """Return (elements, stride) of each run of axes that lie in order, without sizes of 1."""
    runs: list[tuple[Dim, Dim]] = []
    for dim, stride in zip(array.dims, array.strides, strict=True):
        if dim.is_one:
            continue
        if runs and runs[-1][1].same_as(times(stride, dim)):
            runs[-1] = (times(runs[-1][0], dim), stride)
        else:
            runs.append((dim, stride))
    return runs


def merged_axes(
    dims: Sequence[Dim], strides: Sequence[Sequence[Dim]]
) -> tuple[list[Dim], list[list[Dim]]]:
    """Return the fewest axes over which all views walk as they do over `dims`.

    Args:
        strides: of each view, along each of the axes.
    """
    sizes: list[Dim] = []
    steps: list[list[Dim]] = [[] for _ in strides]
    for axis, dim in enumerate(dims):
        here = [view[axis] for view in strides]
        if dim.is_one:
            continue
        if sizes and all(
            view[-1].same_as(times(stride, dim)) for view, stride in zip(steps, here, strict=True)
        ):
            sizes[-1] = times(sizes[-1], dim)
            for view, stride in zip(steps, here, strict=True):
                view[-1] = stride
        else:
            sizes.append(dim)
            for view, stride in zip(steps, here, strict=True):
                view.append(stride)
    return sizes, steps


def shape(dims: Sequence[Dim]) -> str:
    """Return a shape at full dimensions, for comments."""
    return f"[{', '.join(str(dim.full) for dim in dims)}]"
