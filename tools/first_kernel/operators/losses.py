"""Losses, and distances between the rows of two tensors."""

from __future__ import annotations

from ..kernels.nests import Lazy, Value, Writing
from ..program.arrays import FLOATING, Array
from ..program.calls import Call
from ..program.pointwise import number
from ..program.values import ONE, CannotWrite, broadcast
from .normalisations import along_channels, softmax
from .sums import terms_of


def _reduced_loss(write: Writing, call: Call, value: Value, place: int) -> Value:
    mode = call.get(place, "reduction", 1)
    axes = list(range(len(value.dims)))
    if mode == 0:
        return value
    terms = terms_of(write, value, axes)
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


OPERATORS = {
    **dict.fromkeys(("mse_loss", "l1_loss", "smooth_l1_loss", "huber_loss"), _difference_loss),
    "kl_div": _kl_div, "cross_entropy_loss": _cross_entropy, "nll_loss": _cross_entropy,
    "nll_loss_nd": _cross_entropy, "binary_cross_entropy": _binary_entropy,
    "binary_cross_entropy_with_logits": _binary_entropy, "triplet_margin_loss": _triplet,
    "cosine_similarity": _cosine,
}  # fmt: skip
