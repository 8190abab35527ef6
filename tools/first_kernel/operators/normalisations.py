"""Operators that scale by what they add up: softmax, and norms of layers, batches and groups."""

from __future__ import annotations

from typing import Any

from ..kernels.nests import Results, Value, Writing
from ..program.arrays import Array, unsqueezed
from ..program.calls import Call
from ..program.sizes import as_dim, divided
from ..program.values import ONE, Dim
from .sums import moments, terms_of

_LOWEST, _LEAST = -3.4e38, 1e-30
"""Above -inf, and below every sum of exponentials of which one is 1."""


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
        terms = terms_of(write, value, axes)
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


OPERATORS = {
    **dict.fromkeys(("softmax", "_softmax", "log_softmax", "_log_softmax"), _softmax),
    **dict.fromkeys(("layer_norm", "native_layer_norm", "rms_norm", "_fused_rms_norm"),
                    _layer_norm),
    "batch_norm": _batch_norm, "instance_norm": _batch_norm, "group_norm": _group_norm,
}  # fmt: skip
