"""Operators that reduce axes: sums, extremes, variances, norms of vectors."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from ..kernels.nests import Results, Value, Writing
from ..program.arrays import FLOATING, Array, unsqueezed, without
from ..program.calls import Call
from ..program.sizes import as_dim, count, minus
from ..program.values import Dim


def _reduction(write: Writing, call: Call) -> Results:
    value = call.args[0]
    base = {"amax": "max", "amin": "min"}.get(call.base, call.base)
    rank = len(value.dims)
    if base in ("max", "min") and call.op.endswith(".other"):
        return write.apply(f"{base}imum", value, call.args[1], dtype=call.dtype)
    if base in ("max", "min") and call.op.endswith(".dim"):
        return _with_places(write, call, base)
    axes = call.axes(1, "dim", rank)
    keep = call.flag(2, "keepdim")
    if base in ("any", "all"):
        value = write.apply("copy", value, dtype="bool") if value.dtype == "bool" else (
            write.apply("ne", value, 0))  # fmt: skip
    if base in ("argmax", "argmin"):
        if call.get(1, "dim") is None:
            value = write.reshape(value, (count(value.dims),))
            axes = [0]
        return write.reduce(base, value, axes, keep=keep, name=call.name, dtype="int64")
    finish = None
    if base in ("mean", "nanmean"):
        base, terms = "sum", terms_of(write, value, axes)
        finish = lambda result: write.apply("div", result, terms)  # noqa: E731
    if base == "sum" and call.dtype in FLOATING and value.dtype not in FLOATING:
        value = write.apply("copy", value, dtype="float32")
    return write.reduce(base, value, axes, keep=keep, name=call.name, dtype=call.dtype,
                        finish=finish)  # fmt: skip


def terms_of(write: Writing, value: Value, axes: Sequence[int]) -> Dim:
    """Return over how many elements axes go."""
    return write.known.named(count([value.dims[axis] for axis in axes]))


def _with_places(write: Writing, call: Call, base: str) -> Results:
    value = write.array(call.args[0], call.name)
    axis, keep = call.axis(1, "dim", len(value.dims)), call.flag(2, "keepdim")
    best = write.reduce(base, value, [axis], keep=keep, name=call.name)
    return best, Later(
        lambda: write.reduce(f"arg{base}", value, [axis], keep=keep, name=f"{call.name}_places")
    )  # type: ignore[return-value]


class Later:
    """A result that is only computed where something reads it."""

    def __init__(self, make: Any) -> None:
        self.make = make


def _variance(write: Writing, call: Call) -> Results:
    value = write.array(call.args[0], call.name)
    rank = len(value.dims)
    axes, keep = call.axes(1, "dim", rank), call.flag(3, "keepdim")
    correction = call.kwargs.get("correction", 1)
    if call.op.endswith((".dim", ".default")) and len(call.args) > 1:
        place = 2 if call.op.endswith(".dim") else 1
        correction = int(call.flag(place, "unbiased", True))
        axes = axes if place == 2 else list(range(rank))
    mean, spread = moments(write, value, axes, 1 if correction is None else correction)
    if not keep:
        mean, spread = without(mean, axes), without(spread, axes)
    final: Value = write.apply("sqrt", spread) if "std" in call.base else spread
    return (final, mean) if "mean" in call.base else final


def moments(
    write: Writing, value: Array, axes: Sequence[int], correction: float = 0
) -> tuple[Array, Array]:
    """Return mean and variance, with the axes kept as 1: in two passes, for precision."""
    terms = terms_of(write, value, axes)
    title = write.title
    write.title = f"{title}: mean"
    mean = write.reduce("sum", value, axes, keep=True, name="mean",
                        finish=lambda result: write.apply("div", result, terms))  # fmt: skip
    write.title = f"{title}: variance"
    centred = write.apply("sub", value, mean)
    left = write.known.named(minus(terms, as_dim(int(correction))))
    spread = write.reduce(
        "sum", write.apply("square", centred), axes, keep=True, name="variance",
        finish=lambda result: write.apply("div", result, left),
    )  # fmt: skip
    write.title = title
    return mean, spread


def _logsumexp(write: Writing, call: Call) -> Value:
    value = write.array(call.args[0], call.name)
    axes, keep = call.axes(1, "dim", len(value.dims)), call.flag(2, "keepdim")
    largest = write.reduce("max", value, axes, keep=True, name="largest")
    shifted = write.apply("exp", write.apply("sub", value, largest))
    total = write.reduce("sum", shifted, axes, keep=True, name="total")
    result = write.array(write.apply("add", write.apply("log", total), largest), call.name)
    return result if keep else without(result, axes)


def _norm(write: Writing, call: Call) -> Value:
    value = call.args[0]
    order = call.get(1, "ord" if "linalg" in call.base else "p", 2)
    order = 2 if order is None else order
    axes, keep = call.axes(2, "dim", len(value.dims)), call.flag(3, "keepdim")
    size = write.apply("abs", value)
    if order in (float("inf"), float("-inf")):
        return write.reduce("max" if order > 0 else "min", size, axes, keep=keep, name=call.name)
    if order == 1:
        return write.reduce("sum", size, axes, keep=keep, name=call.name, dtype=call.dtype)
    power = write.apply("square", value) if order == 2 else (
        write.apply("pow", size, options=(float(order),)))  # fmt: skip
    root = "sqrt" if order == 2 else "pow"
    options = () if order == 2 else (1.0 / float(order),)
    return write.reduce(
        "sum", power, axes, keep=keep, name=call.name, dtype=call.dtype,
        finish=lambda result: write.apply(root, result, options=options),
    )  # fmt: skip


def _distances(write: Writing, call: Call) -> Value:
    """Of each row of one tensor to each of another."""
    left, right = (write.array(each, call.name) for each in call.args[:2])
    rank = len(left.dims)
    gap = write.apply("sub", unsqueezed(left, rank - 1), unsqueezed(right, rank - 2))
    order = call.number(2, "p", 2.0)
    norm = replace(call, op="aten.norm.ScalarOpt_dim", args=(gap, order, (rank,)), kwargs={})
    return _norm(write, norm)


OPERATORS = {
    **dict.fromkeys(("sum", "mean", "amax", "amin", "max", "min", "prod", "argmax", "argmin",
                     "any", "all"), _reduction),
    **dict.fromkeys(("var", "std", "var_mean", "std_mean"), _variance),
    "cdist": _distances, "_cdist_forward": _distances,
    "logsumexp": _logsumexp, "linalg_vector_norm": _norm, "norm": _norm,
}  # fmt: skip
