"""Operators whose every result is of all elements up to its place."""

from __future__ import annotations

from ..kernels.nests import Lazy, Results, Value, Writing, _Expression, _leaves
from ..kernels.pen import type_of
from ..program.arrays import FLOATING, expanded
from ..program.calls import Call
from ..program.values import ONE


def scan(write: Writing, call: Call) -> Value:
    """Return sums or products up to each place along an axis."""
    value = call.args[0]
    rank = len(value.dims)
    axis = call.axis(1, "dim", rank)
    if isinstance(value, Lazy) and value.leaves > 4:
        value = write.array(value)
    leaves = _leaves(value)
    out = write.new(call.name, value.dims, call.dtype or value.dtype)
    pen = write.pen(call.base)
    rest = [each for each in range(rank) if each != axis]
    here = pen.one_thread_each([value.dims[each] for each in rest] or [ONE],
                               ("a", "b", "c", "d", "e", "f")[: max(len(rest), 1)])  # fmt: skip
    adds = call.base == "cumsum"
    floats = value.dtype in FLOATING
    ctype = "float" if floats else "long long"
    start = ("0" if adds else "1") + (".0f" if floats else "")
    pen.line(f"{ctype} done = {start};")
    pen.line(f"{ctype} here = {start};")
    with pen.loops([value.dims[axis]], ["k"]) as (k,):
        if adds and floats:
            # Sums of blocks: the error of one long running sum would grow with its length.
            with pen.block(f"if ({k} % 128 == 0)"):
                pen.line("done += here;")
                pen.line("here = 0.0f;")
        spot = [k if each == axis else here[rest.index(each)] for each in range(rank)]
        spots = {id(leaf): (expanded(leaf, value.dims), spot) for leaf in leaves}
        text = _Expression(pen, spots).text(value)
        pen.line(f"here {'+' if adds else '*'}= {text};")
        pen.store(out, spot, f"done {'+' if adds else '*'} here")
    write.launch(pen)
    return out


def _exponential_scan(write: Writing, call: Call) -> Value:
    """The logarithm of the sum of exponentials up to each place."""
    value = write.array(call.args[0], call.name)
    out = write.new(call.name, value.dims, value.dtype)
    pen = write.pen(call.base)
    axis = call.axis(1, "dim", len(value.dims))
    rest = [each for each in range(len(value.dims)) if each != axis]
    here = pen.one_thread_each([value.dims[each] for each in rest] or [ONE],
                               ("a", "b", "c", "d", "e", "f")[: max(len(rest), 1)])  # fmt: skip
    pen.line("float largest = -INFINITY;")
    pen.line("float total = 0.0f;")
    with pen.loops([value.dims[axis]], ["k"]) as (k,):
        spot = [k if each == axis else here[rest.index(each)] for each in range(len(value.dims))]
        pen.line(f"const float value = {pen.load(value, spot)};")
        with pen.block("if (value > largest)"):
            pen.line("total = total * expf(largest - value) + 1.0f;")
            pen.line("largest = value;")
        with pen.block("else if (value != -INFINITY)"):
            pen.line("total += expf(value - largest);")
        pen.store(out, spot, "largest + logf(total)")
    write.launch(pen)
    return out


def _extreme_scan(write: Writing, call: Call) -> Results:
    value = write.array(call.args[0], call.name)
    rank = len(value.dims)
    axis = call.axis(1, "dim", rank)
    out = write.new(call.name, value.dims, value.dtype)
    places = write.new(f"{call.name}_places", value.dims, "int64")
    pen = write.pen(call.base)
    rest = [each for each in range(rank) if each != axis]
    here = pen.one_thread_each([value.dims[each] for each in rest] or [ONE],
                               ("a", "b", "c", "d", "e", "f")[: max(len(rest), 1)])  # fmt: skip
    ctype = type_of(value.dtype)
    pen.line(f"{ctype} best = 0;")
    pen.line("index_t place = 0;")
    with pen.loops([value.dims[axis]], ["k"]) as (k,):
        spot = [k if each == axis else here[rest.index(each)] for each in range(rank)]
        pen.line(f"const {ctype} value = {pen.load(value, spot)};")
        sign = ">=" if call.base == "cummax" else "<="
        with pen.block(f"if ({k} == 0 || value {sign} best || value != value)"):
            pen.line("best = value;")
            pen.line(f"place = {k};")
        pen.store(out, spot, "best")
        pen.store(places, spot, "place", "places")
    write.launch(pen)
    return out, places


OPERATORS = {
    "cumsum": scan, "cumprod": scan, "cummax": _extreme_scan, "cummin": _extreme_scan,
    "logcumsumexp": _exponential_scan,
}  # fmt: skip
