"""Operators whose every result looks for its values: searches in sorted rows, bags of rows."""

from __future__ import annotations

from typing import Any

from ..kernels.accumulators import counted_in
from ..kernels.nests import Results, Value, Writing
from ..program.calls import Call
from ..program.sizes import minus
from ..program.values import ONE, CannotWrite
from .gathers import index_at
from .movement import axis_names


def _search(write: Writing, call: Call) -> Value:
    """How many of a row of sorted numbers come before each value."""
    value, edges = (write.array(each) for each in call.args[:2])
    if call.base == "searchsorted":
        value, edges = edges, value
    if call.kwargs.get("sorter") is not None:
        raise CannotWrite(f"{call.where} with a sorter is not written")
    right = call.kwargs.get("right") or call.kwargs.get("side") == "right"
    out = write.new(call.name, value.dims, call.dtype or "int64")
    pen = write.pen(call.base)
    rank = len(value.dims)
    here = pen.one_thread_each(value.dims or (ONE,), axis_names(max(rank, 1)))[:rank]
    rows = here[: len(edges.dims) - 1]
    pen.line(f"const {counted_in(value.dtype)} value = {pen.load(value, here)};")
    pen.line("index_t before = 0;")
    with pen.loops(edges.dims[-1:], ["k"]) as (k,):
        compare = "<=" if right else "<"
        pen.line(f"if ({pen.load(edges, [*rows, k], 'edges')} {compare} value) ++before;")
    pen.store(out, here, "before")
    write.launch(pen)
    return out


def _bag(write: Writing, call: Call) -> Results:
    """Sums, means or largest of the rows that a bag names."""
    table, index, begins = (write.array(each, call.name) for each in call.args[:3])
    mode, weights = call.get(4, "mode", 0), call.get(6, "per_sample_weights")
    left_out = call.get(8, "padding_idx")
    left_out = None if left_out is None or int(left_out) < 0 else int(left_out)
    bags = begins.dims[0]
    if call.flag(7, "include_last_offset"):
        bags = write.known.named(minus(bags, ONE))
    dims = (bags, table.dims[1])
    out = write.new(call.name, dims, table.dtype)
    pen = write.pen("embedding_bag")
    bag, column = pen.one_thread_each(dims, ("bag", "column"))
    total = pen.size(index.dims[0], "terms")
    many = pen.size(begins.dims[0], "offsets")
    pen.line(f"const index_t first = {pen.load(begins, [bag], 'begins')};")
    after = pen.load(begins, [f"{bag} + 1"], "begins")
    pen.line(f"const index_t last = {bag} + 1 < {many} ? {after} : {total};")
    pen.line(f"float value = {'-INFINITY' if mode == 2 else '0.0f'};")
    pen.line("index_t found = 0;")
    with pen.block("for (index_t k = first; k < last; ++k)"):
        row = index_at(pen, index, ["k"], None)
        if left_out is not None:
            pen.line(f"if ({row} == {left_out}) continue;")
        taken = pen.load(table, [row, column], "table")
        if weights is not None:
            taken += f" * {pen.load(write.array(weights), ['k'], 'weights')}"
        pen.line(f"value = fmaxf(value, {taken});" if mode == 2 else f"value += {taken};")
        pen.line("++found;")
    text = "value / found" if mode == 1 else "value"
    pen.store(out, [bag, column], f"found > 0 ? {text} : 0.0f")
    write.launch(pen)
    return out, _Unused(), _Unused(), _Unused()  # type: ignore[return-value]


class _Unused:
    """A result that serves the gradient alone."""


OPERATORS: dict[str, Any] = {
    "bucketize": _search, "searchsorted": _search, "embedding_bag": _bag,
    "_embedding_bag": _bag,
}  # fmt: skip
