"""Operators that multiply matrices, or contract tensors as einsum says."""

from __future__ import annotations

import string
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from ..kernels.nests import Value, Writing
from ..program.arrays import Array, expanded, permuted, shape, unsqueezed, without
from ..program.calls import Call
from ..program.sizes import ZERO, plus
from ..program.values import CannotWrite, Dim, Dims, broadcast


def product(
    write: Writing, left: Array, right: Array, lead: Dims, name: str, dtype: str,
    finish: Any = None,
) -> Array:  # fmt: skip
    """Return lead... x [m, k] by [k, n], both batched views expanded to `lead`."""
    rows, terms, columns = left.dims[-2], left.dims[-1], right.dims[-1]
    if not terms.same_as(right.dims[-2]):
        raise CannotWrite(f"{write.title}: inner sizes {terms.full} and {right.dims[-2].full}")
    rank = len(lead)
    first = unsqueezed(expanded(left, (*lead, rows, terms)), rank + 1)
    second = permuted(expanded(right, (*lead, terms, columns)), [*range(rank), rank + 1, rank])
    second = unsqueezed(second, rank)
    value = write.apply("mul", first, second)
    outer = (*lead, rows, columns)
    return write.contract(
        "sum", value, range(rank + 3), outer, (terms,), name=name, dtype=dtype, finish=finish
    )


def _matmul(write: Writing, call: Call) -> Value:
    left, right = (write.array(each, call.name) for each in call.args[:2])
    dtype = call.dtype or left.dtype
    row, column = len(left.dims) == 1, len(right.dims) == 1
    write.title = f"{call.where}: {shape(left.dims)} by {shape(right.dims)}"
    left = unsqueezed(left, 0) if row else left
    right = unsqueezed(right, 1) if column else right
    lead = broadcast([left.dims[:-2], right.dims[:-2]])
    result = product(write, left, right, lead, call.name, dtype)
    dropped = [len(lead)] * row + [len(lead) + 1] * column
    return without(result, dropped) if dropped else result


def _linear(write: Writing, call: Call) -> Value:
    source, weight = write.array(call.args[0], call.name), write.array(call.args[1])
    bias = call.get(2, "bias")
    write.title = f"{call.where}: {shape(source.dims)} by {shape(weight.dims)} transposed"
    if len(source.dims) == 1:
        result = product(write, unsqueezed(source, 0), permuted(weight, (1, 0)), (), call.name,
                         source.dtype, _plus(write, bias))  # fmt: skip
        return without(result, [0])
    lead = source.dims[:-2]
    return product(write, source, permuted(weight, (1, 0)), lead, call.name,
                   call.dtype or source.dtype, _plus(write, bias))  # fmt: skip


def _plus(write: Writing, bias: Value | None, beta: Any = 1, alpha: Any = 1) -> Any:
    if bias is None and alpha == 1:
        return None

    def finish(result: Value) -> Value:
        scaled = result if alpha == 1 else write.apply("mul", result, alpha)
        if bias is None or beta == 0:
            return scaled
        return write.apply("add", scaled, bias if beta == 1 else write.apply("mul", bias, beta))

    return finish


def _addmm(write: Writing, call: Call) -> Value:
    bias, left, right = call.args[:3]
    beta, alpha = call.kwargs.get("beta", 1), call.kwargs.get("alpha", 1)
    finish = _plus(write, write.array(bias), beta, alpha)
    first, second = write.array(left), write.array(right)
    if call.base == "addmv":
        result = product(write, first, unsqueezed(second, 1), (), call.name, first.dtype)
        return write.array(finish(without(result, [1])), call.name)
    return product(write, first, second, first.dims[:-2], call.name, first.dtype, finish)


def _outer(write: Writing, call: Call) -> Value:
    left, right = (write.array(each) for each in call.args[:2])
    return write.apply("mul", unsqueezed(left, 1), unsqueezed(right, 0), dtype=call.dtype)


def _dot(write: Writing, call: Call) -> Value:
    left, right = (write.array(each) for each in call.args[:2])
    return write.reduce("sum", write.apply("mul", left, right), [0], name=call.name)


def _einsum(write: Writing, call: Call) -> Value:
    arrays = [write.array(value) for value in call.args[1]]
    terms, output = spelled_out(call.args[0], [len(each.dims) for each in arrays])
    sizes: dict[str, Dim] = {}
    views: list[tuple[str, Array]] = []
    for term, array in zip(terms, arrays, strict=True):
        for letter, dim in zip(term, array.dims, strict=True):
            # An axis of 1 is repeated along that of others.
            if letter not in sizes or sizes[letter].is_one:
                sizes[letter] = dim
    for term, array in zip(terms, arrays, strict=True):
        strides = dict.fromkeys(term, ZERO)
        for letter, stride in zip(term, array.strides, strict=True):
            strides[letter] = plus(strides[letter], stride)
        own = dict(zip(term, array.dims, strict=True))
        dims = tuple(own[each] for each in strides)
        views.append(("".join(strides),
                      replace(array, dims=dims, strides=tuple(strides.values()))))  # fmt: skip
    while len(views) > 2:
        # Two at a time, as PyTorch does: all at once would be as many products as letters allow.
        first, second, *rest = views
        wanted = output + "".join(term for term, _ in rest)
        kept = "".join(each for each in dict.fromkeys(first[0] + second[0]) if each in wanted)
        views = [(kept, write.array(_contracted(write, call, [first, second], kept, sizes))), *rest]
    return _contracted(write, call, views, output, sizes)


def spelled_out(equation: str, ranks: Sequence[int]) -> tuple[list[str], str]:
    """Return a term for each operand, and that of the result, without an ellipsis.

    It stands for the axes that have no letter: those of all operands are aligned at the right.
    """
    inputs, arrow, output = equation.replace(" ", "").partition("->")
    terms = inputs.split(",")
    counts = Counter(inputs)
    widths = [rank - len(term.replace("...", "")) if "..." in term else 0
              for rank, term in zip(ranks, terms, strict=True)]  # fmt: skip
    unused = [each for each in string.ascii_letters if each not in equation]
    axes = "".join(unused[: max(widths)])
    if not arrow:
        once = [each for each in sorted(counts) if counts[each] == 1 and each.isalpha()]
        output = f"...{''.join(once)}"
    terms = [term.replace("...", axes[len(axes) - width :])
             for term, width in zip(terms, widths, strict=True)]  # fmt: skip
    return terms, output.replace("...", axes)


def _contracted(
    write: Writing, call: Call, operands: Sequence[tuple[str, Array]], output: str,
    sizes: Mapping[str, Dim],
) -> Value:  # fmt: skip
    """Return the product of operands, whose axes are letters, summed over all not in `output`."""
    letters = dict.fromkeys("".join(term for term, _ in operands))
    summed = [each for each in letters if each not in output]
    order = [*output, *summed]
    product_of: Value | None = None
    for term, array in operands:
        view = permuted(array, [term.index(each) for each in order if each in term])
        for axis, letter in enumerate(order):
            if letter not in term:
                view = unsqueezed(view, axis)
        view = expanded(view, tuple(sizes[each] for each in order))
        product_of = view if product_of is None else write.apply("mul", product_of, view)
    if product_of is None:
        raise CannotWrite(f"{call.where} of nothing")
    if not summed:
        return product_of
    return write.contract(
        "sum", product_of, range(len(order)), tuple(sizes[each] for each in output),
        tuple(sizes[each] for each in summed), name=call.name, dtype=call.dtype,
    )  # fmt: skip


OPERATORS = {
    "mm": _matmul, "bmm": _matmul, "matmul": _matmul, "mv": _matmul, "linear": _linear,
    "addmm": _addmm, "baddbmm": _addmm, "addmv": _addmm, "outer": _outer, "ger": _outer,
    "dot": _dot, "vdot": _dot, "inner": _dot, "einsum": _einsum,
}  # fmt: skip
