"""Operators that add up: products of matrices, reductions, norms, scans, attention, losses."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from ..kernels.nests import Lazy, Scalar, Value, Writing, _Expression, _leaves
from ..kernels.pen import type_of
from ..program.arrays import FLOATING, Array, expanded, part, permuted, shape, unsqueezed, without
from ..program.calls import Call, Number
from ..program.pointwise import number
from ..program.sizes import ZERO, as_dim, count, divided, minus, plus
from ..program.values import ONE, CannotWrite, Dim, Dims, IsRandom, broadcast

Results = Value | tuple[Value, ...]
_LOWEST, _LEAST = -3.4e38, 1e-30
"""Above -inf, and below every sum of exponentials of which one is 1."""


# Products


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
    equation, values = call.args[0].replace(" ", ""), call.args[1]
    if "." in equation:
        raise CannotWrite(f"{call.where} with an ellipsis is not written")
    inputs, _, output = equation.partition("->")
    terms = inputs.split(",")
    letters = list(dict.fromkeys("".join(terms)))
    if "->" not in equation:
        output = "".join(sorted(each for each in letters if inputs.count(each) == 1))
    sizes: dict[str, Dim] = {}
    views: list[tuple[str, Array]] = []
    for term, value in zip(terms, values, strict=True):
        array = write.array(value)
        for letter, dim in zip(term, array.dims, strict=True):
            sizes.setdefault(letter, dim)
        strides = dict.fromkeys(term, ZERO)
        for letter, stride in zip(term, array.strides, strict=True):
            strides[letter] = plus(strides[letter], stride)
        dims = tuple(sizes[each] for each in strides)
        views.append(("".join(strides),
                      replace(array, dims=dims, strides=tuple(strides.values()))))  # fmt: skip
    while len(views) > 2:
        # Two at a time, as PyTorch does: all at once would be as many products as letters allow.
        first, second, *rest = views
        wanted = output + "".join(term for term, _ in rest)
        kept = "".join(each for each in dict.fromkeys(first[0] + second[0]) if each in wanted)
        views = [(kept, write.array(_contracted(write, call, [first, second], kept, sizes))), *rest]
    return _contracted(write, call, views, output, sizes)


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


# Reductions


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
        base, terms = "sum", _terms(write, value, axes)
        finish = lambda result: write.apply("div", result, terms)  # noqa: E731
    if base == "sum" and call.dtype in FLOATING and value.dtype not in FLOATING:
        value = write.apply("copy", value, dtype="float32")
    return write.reduce(base, value, axes, keep=keep, name=call.name, dtype=call.dtype,
                        finish=finish)  # fmt: skip


def _terms(write: Writing, value: Value, axes: Sequence[int]) -> Dim:
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
    terms = _terms(write, value, axes)
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


# Norms and softmax


def _softmax(write: Writing, call: Call) -> Value:
    axis = call.axis(1, "dim", len(call.args[0].dims))
    return softmax(write, write.array(call.args[0], call.name), axis, "log" in call.base)


def softmax(
    write: Writing, value: Array, axis: int, log: bool = False, masked: bool = False
) -> Value:
    """Return softmax along an axis, or its logarithm.

    Of a row of -inf alone that is nothing; where values are `masked` it is 0, as attention has it.
    """
    title = write.title
    write.title = f"{title}: maximum"
    finish = (lambda result: write.apply("maximum", result, _LOWEST)) if masked else None
    largest = write.reduce("max", value, [axis], keep=True, name="largest", finish=finish)
    write.title = f"{title}: sum of exponentials"
    shifted = write.apply("sub", value, largest)
    finish = (lambda result: write.apply("maximum", result, _LEAST)) if masked else None
    total = write.reduce(
        "sum", write.apply("exp", shifted), [axis], keep=True, name="total", finish=finish
    )
    write.title = title
    shifted = write.apply("sub", value, largest)
    if log:
        return write.apply("sub", shifted, write.apply("log", total))
    return write.apply("div", write.apply("exp", shifted), total)


def _normalised(
    write: Writing, value: Array, mean: Value | None, spread: Value, eps: Any,
    weight: Value | None, bias: Value | None,
) -> Value:  # fmt: skip
    centred: Value = value if mean is None else write.apply("sub", value, mean)
    scale = write.apply("rsqrt", write.apply("add", spread, eps))
    result = write.apply("mul", centred, scale)
    if weight is not None:
        result = write.apply("mul", result, weight)
    return result if bias is None else write.apply("add", result, bias)


def _layer_norm(write: Writing, call: Call) -> Results:
    value = write.array(call.args[0], call.name)
    axes = list(range(len(value.dims) - len(call.args[1]), len(value.dims)))
    weight = call.get(2, "weight")
    if "rms" in call.base:
        eps = call.get(3, "eps")
        terms = _terms(write, value, axes)
        spread = write.reduce(
            "sum", write.apply("square", value), axes, keep=True, name="mean_square",
            finish=lambda result: write.apply("div", result, terms))  # fmt: skip
        least = 2.220446049250313e-16 if value.dtype == "float64" else 1.1920928955078125e-07
        eps = least if eps is None else eps
        return _normalised(write, value, None, spread, eps, weight, None)
    mean, spread = moments(write, value, axes)
    result = _normalised(
        write, value, mean, spread, call.get(4, "eps", 1e-5), weight, call.get(3, "bias")
    )
    return (result, mean, spread) if "native" in call.base else result


def along_channels(value: Value | None, write: Writing, rank: int) -> Value | None:
    """Return one number a channel as a view that broadcasts with a tensor of some rank."""
    if value is None:
        return None
    array = write.array(value)
    for _ in range(rank - 2):
        array = unsqueezed(array, len(array.dims))
    return array


def _batch_norm(write: Writing, call: Call) -> Value:
    value = write.array(call.args[0], call.name)
    rank = len(value.dims)
    weight, bias = (along_channels(call.get(place, ""), write, rank) for place in (1, 2))
    eps = call.get(7, "eps", 1e-5)
    axes = [axis for axis in range(rank) if axis != 1]
    if call.base == "instance_norm":
        axes = axes[1:]
    mean, spread = call.get(3, "running_mean"), call.get(4, "running_var")
    # Of an instance norm this says whether it uses the input's own, of a batch norm the batch's.
    if call.get(5, "training") or mean is None or spread is None:
        mean, spread = moments(write, value, axes)
    else:
        mean, spread = (along_channels(each, write, rank) for each in (mean, spread))
    return _normalised(write, value, mean, spread, eps, weight, bias)


def _group_norm(write: Writing, call: Call) -> Value:
    value = write.contiguous(call.args[0], call.name)
    groups = as_dim(call.args[1])
    rank = len(value.dims)
    each = write.known.named(divided(value.dims[1], groups))
    split = write.array(write.reshape(value, (value.dims[0], groups, each, *value.dims[2:])))
    mean, spread = moments(write, split, range(2, rank + 1))
    weight, bias = (
        None if given is None else _split_channels(write, given, groups, each, rank)
        for given in (call.get(2, "weight"), call.get(3, "bias"))
    )
    result = _normalised(write, split, mean, spread, call.get(4, "eps", 1e-5), weight, bias)
    return write.reshape(result, value.dims, call.name)


def _split_channels(write: Writing, given: Value, groups: Dim, each: Dim, rank: int) -> Array:
    return write.array(write.reshape(given, (groups, each, *[ONE] * (rank - 2))))


# Scans


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


# Attention


def _attention(write: Writing, call: Call) -> Results:
    query, key, value = (write.array(each, call.name) for each in call.args[:3])
    mask, dropped = call.get(3, "attn_mask"), call.get(4, "dropout_p", 0.0)
    causal, scale = call.flag(5, "is_causal"), call.kwargs.get("scale")
    if dropped:
        raise IsRandom(f"{call.where} with dropout is random")
    width = query.dims[-1]
    if scale is None:
        scale = Number(f"(1.0f / sqrtf(static_cast<float>({width.text})))") if (
            width.full != width.verify) else width.full**-0.5  # fmt: skip
    if call.kwargs.get("enable_gqa"):
        key, value = (_for_groups(write, each, query.dims[-3]) for each in (key, value))
    lead = broadcast([query.dims[:-2], key.dims[:-2], value.dims[:-2]])
    rank = len(lead)
    exact = "float64" if query.dtype == "float64" else "float32"
    title = write.title
    write.title = f"{title}: {shape(query.dims)} by {shape(key.dims)} transposed"
    swapped = permuted(key, [*range(len(key.dims) - 2), len(key.dims) - 1, len(key.dims) - 2])
    scores: Value = product(
        write, query, swapped, lead, f"{call.name}_scores", exact,
        lambda result: write.apply("mul", result, Scalar(scale)),
    )  # fmt: skip
    write.title = title
    if causal:
        scores = _causal(write, write.array(scores))
    if mask is not None:
        if mask.dtype == "bool":
            scores = write.apply("where", mask, scores, float("-inf"), dtype=exact)
        else:
            scores = write.apply("add", scores, mask)
    shares = softmax(write, write.array(scores), rank + 1, masked=mask is not None)
    weights = write.array(shares, f"{call.name}_weights")
    write.title = f"{title}: {shape(weights.dims)} by {shape(value.dims)}"
    return product(write, weights, value, lead, call.name, call.dtype or value.dtype)


def _for_groups(write: Writing, array: Array, heads: Dim) -> Array:
    """Return keys or values with each head once for every query head of its group."""
    *lead, own, terms, width = array.dims
    if own.same_as(heads):
        return array
    each = write.known.named(divided(heads, own))
    many = expanded(unsqueezed(array, len(lead) + 1), (*lead, own, each, terms, width))
    return write.array(write.reshape(many, (*lead, heads, terms, width)))


def _causal(write: Writing, scores: Array) -> Array:
    out = write.new("causal", scores.dims, scores.dtype)
    pen = write.pen("causal")
    here = pen.one_thread_each(scores.dims, (*("a", "b", "c", "d")[: len(scores.dims) - 2],
                                             "row", "column"))  # fmt: skip
    pen.store(out, here, f"{here[-1]} <= {here[-2]} ? {pen.load(scores, here)} : -INFINITY")
    write.launch(pen)
    return out


# Losses


def _reduced_loss(write: Writing, call: Call, value: Value, place: int) -> Value:
    mode = call.get(place, "reduction", 1)
    axes = list(range(len(value.dims)))
    if mode == 0:
        return value
    terms = _terms(write, value, axes)
    finish = (lambda result: write.apply("div", result, terms)) if mode == 1 else None
    return write.reduce("sum", value, axes, name=call.name, dtype=call.dtype, finish=finish)


def _difference_loss(write: Writing, call: Call) -> Value:
    left, right = call.args[:2]
    gap = write.apply("sub", left, right)
    if call.base == "mse_loss":
        return _reduced_loss(write, call, write.apply("square", gap), 2)
    if call.base == "l1_loss":
        return _reduced_loss(write, call, write.apply("abs", gap), 2)
    edge = call.number(3, "beta" if "smooth" in call.base else "delta", 1.0)
    text = f"{{0}} < {edge}f ? 0.5f * {{0}} * {{0}} / {edge}f : {{0}} - 0.5f * {edge}f"
    if "huber" in call.base:
        text = f"{{0}} < {edge}f ? 0.5f * {{0}} * {{0}} : {edge}f * ({{0}} - 0.5f * {edge}f)"
    size = write.apply("abs", gap)
    loss = Lazy(size.dims, size.dtype, (size,), lambda t: text.format(*t), True, call.base)
    return _reduced_loss(write, call, loss, 2)


def _kl_div(write: Writing, call: Call) -> Value:
    given, target = call.args[:2]
    if call.kwargs.get("log_target"):
        loss = write.apply("mul", write.apply("exp", target), write.apply("sub", target, given))
    else:
        weighted = write.apply("mul", target, given)
        loss = write.apply("sub", write.apply("xlogy", target, target), weighted)
    return _reduced_loss(write, call, loss, 2)


def _cross_entropy(write: Writing, call: Call) -> Value:
    """Of logits, or (nll_loss) of logarithms; each with a class for each sample."""
    logits, target = write.array(call.args[0], call.name), write.array(call.args[1])
    axis = 1 if len(logits.dims) > 1 else 0
    rank = len(logits.dims)
    weight, smoothing = call.get(2, "weight"), call.number(5, "label_smoothing", 0.0)
    logs = logits
    if call.base.startswith("cross"):
        logs = write.array(softmax(write, logits, axis, log=True), "logarithms")
    mode, ignored = call.get(3, "reduction", 1), call.get(4, "ignore_index", -100)
    across: Value = logs
    if weight is not None:
        own = along_channels(weight, write, rank) or weight
        across = write.apply("mul", logs, own)
    if target.dtype in FLOATING:
        return _of_probabilities(write, call, across, target, axis, smoothing)
    loss, counts = (write.new(name, target.dims, logs.dtype) for name in ("losses", "counted"))
    pen = write.pen("chosen_class")
    here = pen.one_thread_each(target.dims or (ONE,), ("n", "a", "b", "c"))
    here = here if target.dims else []
    pen.line(f"const long long chosen = {pen.load(target, here, 'target')};")
    spot = [*here[:axis], "chosen", *here[axis:]]
    counted = f"chosen != {ignored}"
    one = "1.0f" if weight is None else pen.load(write.array(weight), ["chosen"], "weight")
    text = f"-{pen.load(logs, spot, 'logarithms')}"
    text = text if weight is None else f"{text} * {one}"
    if smoothing:
        every = write.reduce("sum", across, [axis], name="all_classes")
        terms = pen.size(logits.dims[axis], "classes")
        share = f"{pen.load(every, here, 'every')} * {number(smoothing)} / {terms}"
        text = f"{text} * {number(1.0 - smoothing)} - {share}"
    pen.store(loss, here, f"{counted} ? {text} : 0.0f")
    pen.store(counts, here, f"{counted} ? {one} : 0.0f", "counted")
    write.launch(pen)
    axes = list(range(len(target.dims)))
    if mode == 0:
        return loss
    total = write.reduce("sum", loss, axes, name=call.name)
    if mode == 2:
        return total
    count_of = write.reduce("sum", counts, axes, name="count")
    return write.apply("div", total, count_of, dtype=call.dtype)


def _of_probabilities(
    write: Writing, call: Call, across: Value, target: Array, axis: int, smoothing: float
) -> Value:
    """Return the cross entropy with a probability for each class; `across` are the logarithms."""
    shares: Value = target
    terms = target.dims[axis]
    if smoothing:
        even = write.apply("div", smoothing, terms)
        shares = write.apply("add", write.apply("mul", target, 1.0 - smoothing), even)
    loss = write.reduce("sum", write.apply("neg", write.apply("mul", across, shares)), [axis],
                        name="losses")  # fmt: skip
    return _reduced_loss(write, call, loss, 3)


def _binary_entropy(write: Writing, call: Call) -> Value:
    given, target = operands = call.args[:2]
    weight = call.get(2, "weight")
    if call.base == "binary_cross_entropy_with_logits":
        text = "(1.0f - {1}) * {0} + fmaxf(-{0}, 0.0f) + log1pf(expf(-fabsf({0})))"
        place = 4
        if (positive := call.get(3, "pos_weight")) is not None:
            operands = (given, target, positive)
            text = ("(1.0f - {1}) * {0} + (({2} - 1.0f) * {1} + 1.0f) * "
                    "(fmaxf(-{0}, 0.0f) + log1pf(expf(-fabsf({0}))))")  # fmt: skip
    else:
        text = ("-({1} * fmaxf(logf({0}), -100.0f) + "
                "(1.0f - {1}) * fmaxf(log1pf(-{0}), -100.0f))")  # fmt: skip
        place = 3
    dims = broadcast([each.dims for each in operands])
    loss: Value = Lazy(
        dims, given.dtype, operands, lambda t: text.format(*t), True, call.base
    )
    if weight is not None:
        loss = write.apply("mul", loss, weight)
    return _reduced_loss(write, call, loss, place)


def _triplet(write: Writing, call: Call) -> Value:
    anchor, positive, negative = call.args[:3]
    margin, power = call.number(3, "margin", 1.0), call.number(4, "p", 2.0)
    eps, swap = call.number(5, "eps", 1e-6), call.flag(6, "swap")
    near = _distance(write, anchor, positive, power, eps)
    far: Value = _distance(write, anchor, negative, power, eps)
    if swap:
        far = write.apply("minimum", far, _distance(write, positive, negative, power, eps))
    loss = write.apply("relu", write.apply("add", write.apply("sub", near, far), margin))
    return _reduced_loss(write, call, loss, 7)


def _distance(write: Writing, left: Value, right: Value, power: float, eps: float) -> Array:
    if power != 2:
        raise CannotWrite(f"{write.title}: only Euclidean distances are written")
    gap = write.apply("add", write.apply("sub", left, right), eps)
    return write.reduce(
        "sum", write.apply("square", gap), [len(gap.dims) - 1], name="distance",
        finish=lambda result: write.apply("sqrt", result),
    )  # fmt: skip


def _cosine(write: Writing, call: Call) -> Value:
    left, right = (write.array(each) for each in call.args[:2])
    dims = broadcast([left.dims, right.dims])
    axis, eps = call.axis(2, "dim", len(dims), 1), call.number(3, "eps", 1e-8)
    inner = write.reduce("sum", write.apply("mul", left, right), [axis], name="inner")
    lengths = [
        write.reduce("sum", write.apply("square", each), [axis], name="length",
                     finish=lambda result: write.apply("sqrt", result))
        for each in (left, right)
    ]  # fmt: skip
    floors = [write.apply("maximum", length, eps) for length in lengths]
    return write.apply("div", inner, write.apply("mul", *floors), dtype=call.dtype)


def _bounded(write: Writing, call: Call) -> Value:
    """Clamp by tensors."""
    value = call.args[0]
    low, high = call.get(1, "min"), call.get(2, "max")
    if low is not None:
        value = write.apply("maximum", value, low, dtype=call.dtype)
    return value if high is None else write.apply("minimum", value, high, dtype=call.dtype)


def _masked_fill(write: Writing, call: Call) -> Value:
    value, mask, fill = call.args[:3]
    return write.apply("where", mask, fill, value, dtype=call.dtype or value.dtype)


def _glu(write: Writing, call: Call) -> Value:
    array = write.array(call.args[0], call.name)
    axis = call.axis(1, "dim", len(array.dims), -1)
    half = write.known.named(divided(array.dims[axis], as_dim(2)))
    gate = write.apply("sigmoid", part(array, axis, half, half))
    return write.apply("mul", part(array, axis, ZERO, half), gate)


OPERATORS = {
    "mm": _matmul, "bmm": _matmul, "matmul": _matmul, "mv": _matmul, "linear": _linear,
    "addmm": _addmm, "baddbmm": _addmm, "addmv": _addmm, "outer": _outer, "ger": _outer,
    "dot": _dot, "vdot": _dot, "inner": _dot, "einsum": _einsum,
    **dict.fromkeys(("sum", "mean", "amax", "amin", "max", "min", "prod", "argmax", "argmin",
                     "any", "all"), _reduction),
    **dict.fromkeys(("var", "std", "var_mean", "std_mean"), _variance),
    "cdist": _distances, "_cdist_forward": _distances,
    "logsumexp": _logsumexp, "linalg_vector_norm": _norm, "norm": _norm,
    **dict.fromkeys(("softmax", "_softmax", "log_softmax", "_log_softmax"), _softmax),
    **dict.fromkeys(("layer_norm", "native_layer_norm", "rms_norm", "_fused_rms_norm"),
                    _layer_norm),
    "batch_norm": _batch_norm, "instance_norm": _batch_norm, "group_norm": _group_norm,
    "cumsum": scan, "cumprod": scan, "cummax": _extreme_scan, "cummin": _extreme_scan,
    "logcumsumexp": _exponential_scan,
    "scaled_dot_product_attention": _attention,
    **dict.fromkeys(("mse_loss", "l1_loss", "smooth_l1_loss", "huber_loss"), _difference_loss),
    "kl_div": _kl_div, "cross_entropy_loss": _cross_entropy, "nll_loss": _cross_entropy,
    "nll_loss_nd": _cross_entropy, "binary_cross_entropy": _binary_entropy,
    "binary_cross_entropy_with_logits": _binary_entropy, "triplet_margin_loss": _triplet,
    "cosine_similarity": _cosine, "masked_fill": _masked_fill, "glu": _glu,
    "clamp_by_tensors": _bounded,
}  # fmt: skip
