"""Operations that a program's operators are defined by, and how few of them an algorithm needs."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from fractions import Fraction
from itertools import combinations
from typing import Literal

from ..records.tensors import DTYPE_BYTES
from .flow import MOVES, PARTS, SPLITS, Flow, Operation
from .needs import LOOKUPS, Needs
from .windows import convolution_of

Kind = Literal["matrix product", "convolution", "attention", "recurrence", "element"]

_PRODUCTS = frozenset({"mm", "bmm", "matmul", "linear", "mv", "dot", "vdot", "addmm", "baddbmm",
                       "addbmm", "addmv", "inner"})  # fmt: skip
_GATES = {"lstm": 4, "gru": 3, "rnn_tanh": 1, "rnn_relu": 1}
_STATES = {"lstm": 2}
_SUMS = frozenset({"sum", "mean", "avg_pool1d", "avg_pool2d", "avg_pool3d", "adaptive_avg_pool1d",
                   "adaptive_avg_pool2d", "adaptive_avg_pool3d"})  # fmt: skip
_LINEAR = MOVES | PARTS | SPLITS | frozenset({
    "add", "sub", "rsub", "mul", "div", "neg", "cat", "stack", "getitem",
})  # fmt: skip
_FREE = MOVES | PARTS | SPLITS | frozenset({
    *LOOKUPS, "getitem", "cat", "stack", "pad", "constant_pad_nd", "written_over", "copy",
    "zeros", "ones", "full", "arange", "empty", "zeros_like", "ones_like", "full_like",
    "empty_like", "new_zeros", "new_ones", "new_full", "new_empty", "tril", "triu", "diag",
    "diag_embed", "where", "masked_fill", "linspace", "eye", "scalar_tensor",
})  # fmt: skip
"""Operators that compute nothing."""


@dataclass(frozen=True)
class Count:
    """Operations of one operator, an addition and a multiplication being two."""

    kind: Kind
    dtype: str
    """Of what is multiplied or added."""
    defined: int
    """As the operator's definition has them, of the elements that are needed."""
    fewest: int
    """Those that remain where sums, padding and sliding windows spare some."""


def count_operations(flow: Flow, needs: Needs) -> Iterator[Count]:
    """Yield the operations of each operator that an output depends on."""
    for operation in flow.operations:
        wanted = needs.count(operation.name)
        if not wanted or operation.op in _FREE:
            continue
        made = _product(operation, flow, needs, wanted)
        if made is None:
            # One operation for each element that is made or read; what is linear goes into
            # products or sums beside it.
            elements = max([wanted, *(needs.count(name) for name in operation.values[:1])])
            least = 0 if operation.op in _LINEAR else wanted
            yield Count("element", flow.dtypes[operation.name], elements, least)
            continue
        kind, defined, fewest = made
        operands = operation.values[1:3] if operation.op.startswith("add") else operation.values
        for name in operands:
            fewest *= needs.nonzero.get(name, Fraction(1))
        fewest *= _left_of_sums(operation, flow)
        yield Count(kind, _dtype(operands[0], flow), int(defined), int(fewest))


def _dtype(name: str, flow: Flow) -> str:
    """Return the type that a factor's values had before they were made longer, where they were."""
    widths = [flow.dtypes[name]]
    while name in flow.by_name and flow.by_name[name].op in MOVES:
        name = flow.by_name[name].values[0]
        widths.append(flow.dtypes[name])
    return min(widths, key=lambda dtype: DTYPE_BYTES.get(dtype, 8))


def _product(
    operation: Operation, flow: Flow, needs: Needs, wanted: int
) -> tuple[Kind, Fraction, Fraction] | None:
    """Return kind and operations of a product of any kind; None of another operator."""
    whole = flow.numel(operation.name)
    share = Fraction(wanted, whole)
    convolution = convolution_of(operation, flow)
    if convolution is not None:
        axes = convolution.axes
        pairs = 2 * convolution.channels * math.prod(axis.pairs for axis in axes)
        spared = math.prod((Fraction(axis.phases, axis.taps) for axis in axes), start=Fraction(1))
        return "convolution", pairs * share, pairs * share * spared
    op = operation.op
    if op in _PRODUCTS:
        place = 1 if op in ("addmm", "baddbmm", "addbmm", "addmv") else 0
        operands = operation.values[place : place + 2]
        defined = Fraction(2 * flow.shapes[operands[0]][-1] * wanted)
        if op == "addbmm":
            defined *= flow.shapes[operands[0]][0]
        return "matrix product", defined, defined
    if op == "einsum":
        defined = 2 * _einsum(operation, flow) * share
        return "matrix product", defined, defined
    if op == "scaled_dot_product_attention":
        return _attention(operation, flow, share)
    if op in _GATES:
        return _recurrence(operation, flow, needs)
    return None


def _einsum(operation: Operation, flow: Flow) -> Fraction:
    """Return the multiplications of the best order of pairs; 0 where nothing is summed."""
    equation = str(operation.args[0]).replace(" ", "")
    if "..." in equation:
        return Fraction(0)
    left, _, result = equation.partition("->")
    names = left.split(",")
    sizes = {
        letter: size
        for letters, name in zip(names, operation.values, strict=True)
        for letter, size in zip(letters, flow.shapes[name], strict=True)
    }

    def best(terms: tuple[str, ...]) -> int:
        if len(terms) == 1:
            return 0
        costs = []
        for one, other in combinations(range(len(terms)), 2):
            rest = [term for place, term in enumerate(terms) if place not in (one, other)]
            together = set(terms[one]) | set(terms[other])
            kept = together & set("".join([*rest, result]))
            cost = math.prod(sizes[letter] for letter in together)
            costs.append(cost + best((*rest, "".join(sorted(kept)))))
        return min(costs)

    return Fraction(best(tuple(names)))


def _attention(
    operation: Operation, flow: Flow, share: Fraction
) -> tuple[Kind, Fraction, Fraction]:
    query, key, value = (flow.shapes[name] for name in operation.values[:3])
    queries, keys = query[-2], key[-2]
    pairs = queries * keys
    if operation.argument(5, "is_causal", False):
        pairs = sum(min(keys, row + 1) for row in range(queries))
    both = math.prod(query[:-2]) * pairs * (query[-1] + value[-1])
    defined = 2 * both * share
    masked = operation.argument(3, "attn_mask") is not None
    return "attention", defined, Fraction(0) if masked else defined


def _recurrence(
    operation: Operation, flow: Flow, needs: Needs
) -> tuple[Kind, Fraction, Fraction]:
    """Return the products of a recurrent layer; steps that nothing depends on are left out."""
    given, op = flow.shapes[operation.values[0]], operation.op
    states = _STATES.get(op, 1)
    weights = [flow.shapes[name] for name in operation.values[1 + states :]]
    each = [2 * math.prod(shape) for shape in weights if len(shape) == 2]
    layers, both_ways, batch_first = (operation.args[place] for place in (4, 7, 8))
    time = 1 if batch_first and len(given) == 3 else 0
    steps = given[time]
    batch = math.prod(given[:-1]) // steps
    start, stop, states_in_part = _steps(operation, flow, needs, (time, steps))
    total = batch * steps * sum(each)
    if not both_ways:
        return "recurrence", Fraction(total), Fraction(batch * stop * sum(each))
    # Earlier layers feed both directions of the last.
    one_way = Fraction(batch * sum(each[-(len(each) // layers) :]), 2)
    spared = steps - 1 if states_in_part else steps - stop + start
    return "recurrence", Fraction(total), total - one_way * spared


def _steps(
    operation: Operation, flow: Flow, needs: Needs, time: tuple[int, int]
) -> tuple[int, int, bool]:
    """Return from which step to which the answers of a recurrent layer are needed, and whether
    only a part of its last states is."""
    dimension, steps = time
    items = {each.args[1]: each.name for each in flow.readers.get(operation.name, ())
             if each.op == "getitem" and needs.count(each.name)}  # fmt: skip
    states = [name for index, name in items.items() if index > 0]
    if states:
        in_part = 0 not in items and any(needs.count(name) < flow.numel(name) for name in states)
        return 0, steps, in_part
    start, stop = needs.reach(items.get(0, operation.name), dimension)
    return start, stop, False


def _left_of_sums(operation: Operation, flow: Flow) -> Fraction:
    """Return the share of a product that is left where all of it ends in a sum.

    Sums and products change places: the sum of A B over its columns is A times the sum of B over
    its columns. Between the two may be what is linear. 1 where a way leads elsewhere.
    """
    shares: list[Fraction] = []
    waiting, seen = [operation.name], {operation.name}
    while waiting:
        name = waiting.pop()
        if name in flow.outputs or not flow.readers.get(name):
            return Fraction(1)
        for reader in flow.readers[name]:
            if reader.op in _SUMS:
                shares.append(Fraction(flow.numel(reader.name), flow.numel(name)))
            elif not _is_linear(reader, seen):
                return Fraction(1)
            elif reader.name not in seen:
                seen.add(reader.name)
                waiting.append(reader.name)
    return max(shares)


def _is_linear(reader: Operation, seen: set[str]) -> bool:
    """Say whether an operator is linear in what has been seen; or in none of it with the rest."""
    if reader.op == "dropout":
        return not reader.argument(2, "train", False)
    if reader.op == "batch_norm":
        return reader.values[0] in seen and not reader.argument(5, "training", False)
    if reader.op == "div":
        return not (len(reader.values) > 1 and reader.values[1] in seen)
    if reader.op == "mul":
        return sum(name in seen for name in reader.values) < 2
    return reader.op in _LINEAR
