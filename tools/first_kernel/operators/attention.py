"""Attention: two products with a softmax between them."""

from __future__ import annotations

from ..kernels.nests import Results, Scalar, Value, Writing
from ..program.arrays import Array, expanded, permuted, shape, unsqueezed
from ..program.calls import Call, Number
from ..program.sizes import divided
from ..program.values import Dim, IsRandom, broadcast
from .normalisations import softmax
from .products import product


def _attention(write: Writing, call: Call) -> Results:
    query, key, value = (write.array(each, call.name) for each in call.args[:3])
    mask, dropped = call.get(3, "attn_mask"), call.get(4, "dropout_p", 0.0)
    causal, scale = call.flag(5, "is_causal"), call.kwargs.get("scale")
    if dropped:
        raise IsRandom(f"{call.where} with dropout is random")
    width = query.dims[-1]
    if scale is None:
        scale = width.full**-0.5 if width.is_number else (
            Number(f"(1.0f / sqrtf(static_cast<float>({width.text})))"))  # fmt: skip
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


OPERATORS = {
    "scaled_dot_product_attention": _attention,
}  # fmt: skip
