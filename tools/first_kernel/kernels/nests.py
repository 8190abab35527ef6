"""What operators are written with: elementwise values, and loops that reduce them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from ....harness.task.names import plain
from ..program.arrays import (
    FLOATING,
    Array,
    Storage,
    expanded,
    merged_axes,
    permuted,
    reshaped,
    shape,
    unsqueezed,
    whole,
    without,
)
from ..program.calls import Number
from ..program.pointwise import enclosed, number
from ..program.sizes import Sizes, ceil_div, count, same_as_zero
from ..program.values import ONE, CannotWrite, Dim, Dims, broadcast
from .accumulators import accumulate, begun
from .elementwise import render_of
from .missing import Unwritten
from .pen import INDEX, SQUARE, Pen, type_of

LONGEST_LOOP = 16384
"""Steps of one thread, and terms of one running sum, before work is split."""
SHARE = 4096
"""Steps of a thread where it is."""
LEAVES = 8
"""Arrays that one kernel reads."""
_ROUNDED = ("float32", "float16", "bfloat16")
_NARROW = ("int32", "int16", "int8", "uint8")
_AXES = ("a", "b", "c", "d", "e", "f", "g", "h")
_INNER = ("r", "s", "t", "u", "v", "w", "y", "z")
_LEAVES = ("x", "y", "z", "p", "q", "m", "n", "o", "k", "l")

Render = Callable[[Sequence[str]], str]


@dataclass(frozen=True, eq=False)
class Scalar:
    """A number that is known when compiling."""

    value: float | int | bool | Dim | Number

    dims: Dims = ()

    @property
    def dtype(self) -> str:
        """int64 for what is a whole number, else float32."""
        return "int64" if isinstance(self.value, int | Dim) else "float32"


@dataclass(frozen=True, eq=False)
class Lazy:
    """One element from one element of each operand, not computed until something needs it."""

    dims: Dims
    dtype: str
    operands: tuple[Value, ...]
    render: Render
    repeats: bool
    title: str
    origin: str = ""
    """The operation of the program that it is part of, for comments."""

    @property
    def leaves(self) -> int:
        """How many arrays it reads."""
        return sum(
            each.leaves if isinstance(each, Lazy) else isinstance(each, Array)
            for each in self.operands
        )


@dataclass(frozen=True, eq=False)
class Result:
    """In the last step of a reduction: what was reduced."""

    dims: Dims
    dtype: str = "float32"


Value = Array | Lazy | Scalar | Result
Results = Value | tuple[Value, ...]


class Writing:
    """The launches of a program as they come to be, and the tools that operators share."""

    def __init__(self, sizes: Sizes) -> None:
        self.known = sizes
        self.launches: list[Pen | Unwritten] = []
        self.title = ""
        """Of the operation at hand, for the comments of its kernels."""

    # Values

    def new(self, name: str, dims: Dims, dtype: str) -> Array:
        """Return room for a result in the workspace."""
        type_of(dtype)
        return whole(Storage(plain(name), dtype, count(dims)), dims)

    def apply(
        self,
        base: str,
        *operands: Value | Dim | float,
        dtype: str | None = None,
        options: Sequence[Any] = (),
        keywords: Mapping[str, Any] | None = None,
    ) -> Value:
        """Return an elementwise operation of values that broadcast together."""
        values = [each if isinstance(each, Array | Lazy | Scalar | Result) else Scalar(each)
                  for each in operands]  # fmt: skip
        if sum(each.leaves if isinstance(each, Lazy) else 1 for each in values) > LEAVES:
            values = [
                self.array(each) if isinstance(each, Lazy) and each.leaves > 1 else each
                for each in values
            ]
        dims = broadcast([each.dims for each in values])
        inner, render, repeats, result = render_of(
            base, [_kind(each.dtype) for each in values], dtype, options, keywords or {}
        )
        if dtype is None and result == "float32" and any(
            each.dtype == "float64" for each in values
        ):
            result = "float64"
        if result == "float64":
            # A kernel computes in one type: what is rounded to a narrower one is another's.
            values = [
                self.array(each) if isinstance(each, Lazy) and each.dtype in _ROUNDED else each
                for each in values
            ]
        converted = tuple(
            _converted(each, inner) for each in values
        )  # fmt: skip
        render = _whole(render, result, inner)
        return Lazy(dims, result, converted, render, repeats, base, self.title)

    def array(self, value: Value | None, name: str = "value", title: str | None = None) -> Array:
        """Return a value as an array; an elementwise one is computed by a kernel."""
        if value is None:
            raise CannotWrite(
                f"{self.title} reads what launch is not given, since no answer depends on it: read "
                "the reference with --mode eval where forward() changes that in training alone, or "
                "take it out of forward()"
            )
        if isinstance(value, Array):
            return value
        out = self.new(name, value.dims, value.dtype)
        self.assign(out, value, title)
        return out

    def assign(self, out: Array, value: Value, title: str | None = None) -> None:
        """Launch a kernel that writes a value, of its shape, into an array."""
        stem = "copy" if isinstance(value, Array) else "fill" if isinstance(value, Scalar) else (
            f"elementwise_{value.title}" if isinstance(value, Lazy) else "assign")  # fmt: skip
        origins = [*_origins(value), title or self.title]
        pen = self.pen(stem, f"{', '.join(dict.fromkeys(origins))}: {shape(out.dims)}")
        leaves = _leaves(value)
        views = [expanded(leaf, out.dims) for leaf in leaves]
        dims, strides = merged_axes(out.dims, [out.strides, *(view.strides for view in views)])
        here = pen.one_thread_each(dims or [ONE], _axis_names(dims) or ["i"])[: len(dims)]
        walk = _walk(dims, strides, [out, *views])
        texts = dict(zip(map(id, leaves), walk[1:], strict=True))
        result = _Expression(pen, {key: (view, here) for key, view in texts.items()}).text(value)
        pen.store(walk[0], here, result)
        self.launch(pen)

    def contiguous(self, value: Value, name: str = "value") -> Array:
        """Return a value as an array whose elements lie in order."""
        array = self.array(value, name)
        if array.is_contiguous:
            return array
        out = self.new(name, array.dims, array.dtype)
        self.assign(out, array, f"{self.title}, as a copy in order")
        return out

    def reshape(self, value: Value, dims: Dims, name: str = "value") -> Array:
        """Return a value in another shape, copied where that is needed."""
        array = self.array(value, name)
        if not count(array.dims).same_as(count(dims)):
            raise CannotWrite(f"{self.title}: another number of elements")
        view = reshaped(array, dims)
        return view or whole(self.contiguous(array, name).storage, dims)

    # Kernels

    def pen(self, stem: str, title: str | None = None) -> Pen:
        """Begin a kernel."""
        return Pen(stem, title or self.title)

    def launch(self, pen: Pen) -> None:
        """End a kernel: it is launched after those before it."""
        pen.tidy()
        self.launches.append(pen)

    # Reductions

    def reduce(
        self,
        kind: str,
        value: Value,
        axes: Sequence[int],
        *,
        keep: bool = False,
        name: str = "reduced",
        dtype: str | None = None,
        finish: Callable[[Value], Value] | None = None,
    ) -> Array:
        """Return the reduction of a value over axes; `finish` is what is made of each result.

        Args:
            kind: sum, prod, max, min, any, all, argmax, argmin; the last two give positions.
        """
        rank = len(value.dims)
        kept = [axis for axis in range(rank) if axis not in axes]
        outer = tuple(value.dims[axis] for axis in kept)
        inner = tuple(value.dims[axis] for axis in axes)
        result = self.contract(
            kind, value, [*kept, *axes], outer, inner, name=name, dtype=dtype, finish=finish
        )
        for axis in sorted(axes) if keep else ():
            result = unsqueezed(result, axis)
        return result

    def contract(
        self,
        kind: str,
        value: Value,
        order: Sequence[int],
        outer: Dims,
        inner: Dims,
        *,
        name: str = "reduced",
        dtype: str | None = None,
        finish: Callable[[Value], Value] | None = None,
    ) -> Array:
        """Reduce a value, whose axes in this order are `outer` and then `inner`, over `inner`."""
        terms = count(inner)
        if terms.full > LONGEST_LOOP and not kind.startswith("arg"):
            shares = self.known.named(ceil_div(terms, SHARE))
            partial = self._loop(
                kind, value, order, outer, inner, shares, f"{name}_shares", None, None
            )
            last = len(partial.dims) - 1
            return self.contract(
                kind, partial, range(last + 1), partial.dims[:-1], partial.dims[-1:],
                name=name, dtype=dtype, finish=finish,
            )  # fmt: skip
        return self._loop(kind, value, order, outer, inner, None, name, dtype, finish)

    def _loop(
        self, kind: str, value: Value, order: Sequence[int], outer: Dims, inner: Dims,
        shares: Dim | None, name: str, dtype: str | None,
        finish: Callable[[Value], Value] | None,
    ) -> Array:  # fmt: skip
        pen = self.pen(f"{kind}_shares" if shares else kind,
                       f"{self.title}: {kind} of shares" if shares else None)  # fmt: skip
        computed = "bool" if kind in ("any", "all") else value.dtype
        computed = "float32" if computed in ("float16", "bfloat16") else computed
        if kind in ("sum", "prod") and computed not in FLOATING:
            computed = "int64"
        result: Value = Result(outer, "int64" if kind.startswith("arg") else computed)
        final = finish(result) if finish else result
        out_dims = outer if shares is None else (*outer, shares)
        out = self.new(name, out_dims, dtype or final.dtype)
        leaves = _leaves(value)
        views = [permuted(expanded(leaf, value.dims), order) for leaf in leaves]
        rank = len(outer)
        extra = [leaf for leaf in _leaves(final)]
        extra_views = [expanded(leaf, outer) for leaf in extra]
        out_view = out if shares is None else without(out, [rank])
        walkers = [out_view, *extra_views]
        outer_dims, outer_strides = merged_axes(
            outer, [*(view.strides for view in walkers), *(view.strides[:rank] for view in views)]
        )
        inner_dims, inner_strides = merged_axes(inner, [view.strides[rank:] for view in views])
        names, steps = _axis_names(outer_dims), outer_strides[len(walkers) :]
        share = ""
        if in_squares := _is_product(outer_dims, steps):
            led = [shares, *outer_dims] if shares else outer_dims
            place = pen.one_thread_each_in_squares(led, ["share", *names] if shares else names)
            share, place = (place[0], place[1:]) if shares else ("", place)
        elif shares:
            *place, share = pen.one_thread_each([*outer_dims, shares], [*names, "share"])
        else:
            place = pen.one_thread_each(outer_dims or [ONE], names or ["i"])[: len(outer_dims)]
        accumulator = begun(pen, kind, computed)
        walk = [
            replace(view, dims=(*outer_dims, *inner_dims), strides=(*first, *second))
            for view, first, second in zip(
                views, steps, inner_strides, strict=True
            )
        ]

        def body(indices: Sequence[str]) -> None:
            spots = {
                id(leaf): (view, [*place, *indices])
                for leaf, view in zip(leaves, walk, strict=True)
            }
            text = _Expression(pen, spots).text(value)
            accumulate(pen, kind, accumulator, text, computed, indices, inner_dims)

        if shares is not None:
            every, total = pen.size(shares, "share_count"), pen.size(count(inner_dims), "terms")
            flat = pen.name("r")
            head = f"{flat} = {share}; {flat} < {total}; {flat} += {every}"
            if in_squares:  # The neighbours of a thread are at other elements, not other shares.
                end, length = pen.name("end"), f"(({total} + {every} - 1) / {every})"
                stop = f"{share} * {length} + {length}"
                pen.line(f"const {INDEX} {end} = {stop} < {total} ? {stop} : {total};")
                head = f"{flat} = {share} * {length}; {flat} < {end}; ++{flat}"
            with pen.block(f"for ({INDEX} {head})"):
                body(pen.split(flat, inner_dims, _INNER))
        else:
            with pen.loops(inner_dims, _INNER[: len(inner_dims)]) as indices:
                body(indices)
        spots = {
            id(leaf): (replace(view, dims=tuple(outer_dims), strides=tuple(strides)), place)
            for leaf, view, strides in zip(extra, extra_views, outer_strides[1:], strict=False)
        }
        text = _Expression(pen, spots, accumulator).text(final)
        strides = tuple(outer_strides[0])
        if shares is not None:
            target = replace(out, dims=(*outer_dims, shares), strides=(*strides, ONE))
        else:
            target = replace(out, dims=tuple(outer_dims), strides=strides)
        pen.store(target, [*place, share] if share else place, text)
        self.launch(pen)
        return out


def _is_product(dims: Sequence[Dim], strides: Sequence[Sequence[Dim]]) -> bool:
    """Say whether views walk as two operands of a matrix product do, none narrower than a square.

    Args:
        strides: of each view, along each of the axes.
    """
    if len(dims) < 2 or min(dims[-2].full, dims[-1].full) < SQUARE:
        return False
    alike = {tuple(same_as_zero(stride) for stride in view[-2:]) for view in strides}
    return alike == {(True, False), (False, True)}


class _Expression:
    """Writes a value as text, with a name for what is used more than once.

    Args:
        spots: by the identity of each array: the view that the kernel walks, and where it is.
    """

    def __init__(
        self, pen: Pen, spots: Mapping[int, tuple[Array, Sequence[str]]], result: str = ""
    ) -> None:
        self._pen = pen
        self._spots = spots
        self._result = result
        self._done: dict[int, str] = {}

    def text(self, value: Value) -> str:
        """Return the text of one element of a value; may write lines before it."""
        if isinstance(value, Result):
            return self._result
        if isinstance(value, Scalar):
            return self._number(value)
        self._pen.exact = self._pen.exact or value.dtype == "float64"
        if id(value) not in self._done:
            self._done[id(value)] = self._once(value)
        return self._done[id(value)]

    def _number(self, scalar: Scalar) -> str:
        value = scalar.value
        if isinstance(value, Dim):
            return self._pen.size(value, "count")
        if isinstance(value, Number):
            return self._pen.number(value.text, "factor")
        if isinstance(value, bool):
            return "true" if value else "false"
        return str(value) if isinstance(value, int) else number(value)

    def _once(self, value: Array | Lazy) -> str:
        if isinstance(value, Array):
            view, here = self._spots[id(value)]
            hint = _LEAVES[min(len(self._pen.pointers), len(_LEAVES) - 1)]
            return self._pen.load(view, here, hint)
        texts = [self.text(operand) for operand in value.operands]
        if value.repeats:
            texts = [
                text if isinstance(operand, Scalar) else self._named(text, operand.dtype)
                for text, operand in zip(texts, value.operands, strict=True)
            ]
        return value.render([enclosed(text) for text in texts])

    def _named(self, text: str, dtype: str) -> str:
        if text.isidentifier():
            return text
        name = self._pen.name("v")
        self._pen.line(f"const {type_of(dtype)} {name} = {text};")
        return name


def _leaves(value: Value) -> list[Array]:
    """Return the arrays that a value reads, each once, in order."""
    found: dict[int, Array] = {}

    def visit(each: Value) -> None:
        if isinstance(each, Array):
            found.setdefault(id(each), each)
        elif isinstance(each, Lazy):
            for operand in each.operands:
                visit(operand)

    visit(value)
    return list(found.values())


def _origins(value: Value) -> list[str]:
    """Return the operations that a value follows from, in order."""
    if not isinstance(value, Lazy):
        return []
    inner = [origin for operand in value.operands for origin in _origins(operand)]
    return [*inner, value.origin] if value.origin else inner


def _walk(
    dims: Sequence[Dim], strides: Sequence[Sequence[Dim]], views: Sequence[Array]
) -> list[Array]:
    return [
        replace(view, dims=tuple(dims), strides=tuple(steps))
        for view, steps in zip(views, strides, strict=True)
    ]


def _axis_names(dims: Sequence[Dim]) -> list[str]:
    return ["i"] if len(dims) == 1 else list(_AXES[: len(dims)])


def _kind(dtype: str) -> str:
    return "float32" if dtype in FLOATING else "bool" if dtype == "bool" else "int64"


def _whole(render: Render, dtype: str, computed: str | None) -> Render:
    """Return an expression that is of its type where that is of whole numbers, which wrap around.

    Args:
        computed: what its operands are converted to.
    """
    casts = ["long long"] * (computed == "float32" and dtype in ("int64", *_NARROW))
    casts += [type_of(dtype)] * (dtype in _NARROW)
    if not casts:
        return render
    opened = "".join(f"static_cast<{ctype}>(" for ctype in reversed(casts))
    return lambda texts: f"{opened}{render(texts)}{')' * len(casts)}"


def _converted(value: Value, wanted: str | None) -> Value:
    """Return a value as what an expression computes in; None leaves each as it is."""
    narrow = wanted == "int64" and value.dtype in _NARROW
    if wanted is None or (_kind(value.dtype) == wanted and not narrow):
        return value
    if isinstance(value, Scalar):
        if isinstance(value.value, Dim):
            return Lazy((), wanted, (value,), _as_float, False, "cast")
        return value if isinstance(value.value, Number) else Scalar(
            float(value.value) if wanted == "float32" else
            int(value.value) if float(value.value).is_integer() else value.value)  # fmt: skip
    ctype = {"float32": "float", "int64": "long long", "bool": "bool"}[wanted]
    return Lazy(value.dims, wanted, (value,), lambda texts: f"static_cast<{ctype}>({texts[0]})",
                False, "cast")  # fmt: skip


def _as_float(texts: Sequence[str]) -> str:
    return f"static_cast<float>({texts[0]})"
