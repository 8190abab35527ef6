"""The elementwise operations that every form of a first kernel knows, as C in fp32."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from .values import CannotWrite, Dims, Pointwise, Value

Render = Callable[[Sequence[str]], str]

POINTWISE: Mapping[str, int] = {
    "add": 2, "sub": 2, "rsub": 2, "mul": 2, "div": 2, "true_divide": 2, "maximum": 2,
    "minimum": 2, "neg": 1, "exp": 1, "log": 1, "sqrt": 1, "rsqrt": 1, "abs": 1, "pow": 1,
    "relu": 1, "relu6": 1, "gelu": 1, "sigmoid": 1, "silu": 1, "tanh": 1, "erf": 1, "clamp": 1,
    "clamp_min": 1, "clamp_max": 1, "hardtanh": 1, "leaky_relu": 1, "elu": 1, "softplus": 1,
    "square": 1, "reciprocal": 1, "sin": 1, "cos": 1, "log1p": 1, "expm1": 1, "exp2": 1,
    "hardswish": 1, "hardsigmoid": 1, "mish": 1, "log_sigmoid": 1,
}  # fmt: skip
"""How many of the leading arguments are operands; the others are options known when writing."""

_CALLS: Mapping[str, str] = {
    "exp": "expf", "log": "logf", "sqrt": "sqrtf", "rsqrt": "rsqrtf", "abs": "fabsf",
    "tanh": "tanhf", "erf": "erff", "maximum": "fmaxf", "minimum": "fminf", "sin": "sinf",
    "cos": "cosf", "log1p": "log1pf", "expm1": "expm1f", "exp2": "exp2f",
}  # fmt: skip
_INFIX: Mapping[str, str] = {"mul": "*", "div": "/", "true_divide": "/", "add": "+", "sub": "-"}
_FIXED: Mapping[str, str] = {
    "neg": "-{0}",
    "square": "{0} * {0}",
    "reciprocal": "1.0f / {0}",
    "relu": "{0} < 0.0f ? 0.0f : {0}",
    "relu6": "fminf(fmaxf({0}, 0.0f), 6.0f)",
    "sigmoid": "1.0f / (1.0f + expf(-{0}))",
    "silu": "{0} / (1.0f + expf(-{0}))",
    "hardswish": "{0} * fminf(fmaxf({0} + 3.0f, 0.0f), 6.0f) / 6.0f",
    "hardsigmoid": "fminf(fmaxf({0} + 3.0f, 0.0f), 6.0f) / 6.0f",
    "mish": "{0} * tanhf({0} > 20.0f ? {0} : log1pf(expf({0})))",
    "log_sigmoid": "fminf({0}, 0.0f) - log1pf(expf(-fabsf({0})))",
}
_GELU = "0.5f * {0} * (1.0f + erff({0} * 0.70710678f))"
_GELU_TANH = "0.5f * {0} * (1.0f + tanhf(0.79788456f * ({0} + 0.044715f * {0} * {0} * {0})))"


def number(value: float) -> str:
    """Return a Python number as a C float literal."""
    if math.isnan(value):
        return "NAN"
    if math.isinf(value):
        return "INFINITY" if value > 0 else "-INFINITY"
    text = repr(float(value))
    return f"{text}f"


def enclosed(text: str) -> str:
    """Return an expression in parentheses, unless it is a name, a number, a call or a subscript."""
    if re.fullmatch(r"[\w.]+|[\d.]+e[-+]?\d+f", text):
        return text
    opening = re.match(r"\w*(<\w+>)?[(\[]", text)
    if opening is not None:
        depth = 0
        for position, char in enumerate(text[opening.end() - 1 :]):
            depth += (char in "([") - (char in ")]")
            if depth == 0:
                if opening.end() + position == len(text):
                    return text
                break
    return f"({text})"


def pointwise_of(
    base: str,
    name: str,
    dims: Dims,
    operands: Sequence[Value],
    options: Sequence[Any],
    keywords: Mapping[str, Any],
) -> Pointwise:
    """Return the elementwise value of one ATen operation.

    Args:
        base: name of the operation without overload, a key of `POINTWISE`.
        options: positional arguments after the operands.

    Raises:
        CannotWrite: an option asks for something that is not written.
    """
    if base in _CALLS:
        return Pointwise(name, dims, tuple(operands), _call(_CALLS[base]))
    if base in ("sub", "add", "rsub"):
        alpha = keywords.get("alpha", 1)
        if base == "rsub":
            operands, base = list(operands)[::-1], "sub"
        if alpha != 1:
            scaled = _pattern(f"{{0}} {_INFIX[base]} {number(float(alpha))} * {{1}}")
            return Pointwise(name, dims, tuple(operands), scaled)
    if base in ("div", "true_divide") and keywords.get("rounding_mode"):
        raise CannotWrite("division with rounding is not written")
    if base in _INFIX:
        return Pointwise(name, dims, tuple(operands), _pattern(f"{{0}} {_INFIX[base]} {{1}}"))
    text = _FIXED.get(base) or _with_options(base, options, keywords)
    return Pointwise(name, dims, tuple(operands), _pattern(text), text.count("{0}") > 1)


def _call(function: str) -> Render:
    return lambda texts: f"{function}({', '.join(texts)})"


def _pattern(text: str) -> Render:
    return lambda texts: text.format(*(enclosed(operand) for operand in texts))


def _with_options(base: str, options: Sequence[Any], keywords: Mapping[str, Any]) -> str:
    """Return the expression of an operation that has options, with {0} for its operand."""

    def option(position: int, keyword: str, default: float | None) -> float | None:
        value = options[position] if len(options) > position else keywords.get(keyword, default)
        if isinstance(value, Mapping) and "float" in value:
            value = float(value["float"])
        if value is None or isinstance(value, (int, float)):
            return value
        raise CannotWrite(f"option {keyword} of {base} is no number")

    if base == "gelu":
        return _GELU_TANH if keywords.get("approximate") == "tanh" else _GELU
    if base == "pow":
        return _power(option(0, "exponent", None))
    if base == "leaky_relu":
        slope = number(option(0, "negative_slope", 0.01) or 0.0)
        return f"{{0}} > 0.0f ? {{0}} : {slope} * {{0}}"
    if base == "elu":
        alpha, scale, inside = (
            option(index, word, 1.0) or 0.0
            for index, word in enumerate(("alpha", "scale", "input_scale"))
        )
        positive = "{0}" if scale == 1 else f"{number(scale)} * {{0}}"
        argument = "{0}" if inside == 1 else f"{number(inside)} * {{0}}"
        factor = "" if alpha * scale == 1 else f"{number(alpha * scale)} * "
        return f"{{0}} > 0.0f ? {positive} : {factor}expm1f({argument})"
    if base == "softplus":
        beta, threshold = option(0, "beta", 1.0) or 1.0, option(1, "threshold", 20.0) or 0.0
        inner = "{0}" if beta == 1 else f"({number(beta)} * {{0}})"
        soft = f"log1pf(expf({inner}))" + ("" if beta == 1 else f" / {number(beta)}")
        return f"{inner} > {number(threshold)} ? {{0}} : {soft}"
    return _clamped(
        option(0, "max" if base == "clamp_max" else "min", None),
        option(1, "max", None),
        base,
    )


def _clamped(first: float | None, second: float | None, base: str) -> str:
    low, high = (None, first) if base == "clamp_max" else (first, second)
    if base == "hardtanh":
        low, high = (-1.0 if low is None else low), (1.0 if high is None else high)
    text = "{0}"
    if low is not None:
        text = f"fmaxf({text}, {number(low)})"
    if high is not None:
        text = f"fminf({text}, {number(high)})"
    if text == "{0}":
        raise CannotWrite("clamp by tensors is not written")
    return text


def _power(exponent: float | None) -> str:
    if exponent is None:
        raise CannotWrite("power with a tensor exponent is not written")
    special = {2: "{0} * {0}", 3: "{0} * {0} * {0}", 0.5: "sqrtf({0})", -1: "1.0f / {0}",
               -0.5: "1.0f / sqrtf({0})", 1: "{0}", 4: "({0} * {0}) * ({0} * {0})"}  # fmt: skip
    return special.get(exponent) or f"powf({{0}}, {number(exponent)})"
