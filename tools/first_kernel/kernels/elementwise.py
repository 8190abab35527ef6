"""The elementwise operations of general.py alone: other dtypes, comparisons, several operands."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from ..program.arrays import INTEGERS
from ..program.pointwise import POINTWISE, number, pointwise_of
from ..program.values import CannotWrite, Value

Render = Callable[[Sequence[str]], str]

MOST_FACTORS = 16
"""Of a power of a whole number, which is written out."""

_COMPARISONS = {"eq": "==", "ne": "!=", "lt": "<", "le": "<=", "gt": ">", "ge": ">=",
                "greater": ">", "less": "<", "greater_equal": ">=", "less_equal": "<=",
                "not_equal": "!="}  # fmt: skip
_LOGICAL = {"logical_and": "{0} && {1}", "logical_or": "{0} || {1}", "logical_not": "!{0}",
            "logical_xor": "{0} != {1}"}  # fmt: skip
_BITS = {
    **dict.fromkeys(("bitwise_and", "__and__"), "{0} & {1}"),
    **dict.fromkeys(("bitwise_or", "__or__"), "{0} | {1}"),
    **dict.fromkeys(("bitwise_xor", "__xor__"), "{0} ^ {1}"),
    **dict.fromkeys(("bitwise_left_shift", "__lshift__"), "{0} << {1}"),
    **dict.fromkeys(("bitwise_right_shift", "__rshift__"), "{0} >> {1}"),
}
_FLOATS: Mapping[str, str] = {
    "selu": "1.05070099f * ({0} > 0.0f ? {0} : 1.67326324f * expm1f({0}))",
    "floor": "floorf({0})", "ceil": "ceilf({0})", "round": "rintf({0})", "trunc": "truncf({0})",
    "sign": "({0} > 0.0f) - ({0} < 0.0f)", "tan": "tanf({0})", "atan": "atanf({0})",
    "asin": "asinf({0})", "acos": "acosf({0})", "sinh": "sinhf({0})", "cosh": "coshf({0})",
    "log2": "log2f({0})", "log10": "log10f({0})", "erfc": "erfcf({0})",
    "asinh": "asinhf({0})", "acosh": "acoshf({0})", "atanh": "atanhf({0})",
    "lgamma": "lgammaf({0})", "erfinv": "erfinvf({0})", "special_erfinv": "erfinvf({0})",
    "fmax": "fmaxf({0}, {1})", "fmin": "fminf({0}, {1})",
    "softsign": "{0} / (1.0f + fabsf({0}))", "atan2": "atan2f({0}, {1})",
    "hypot": "hypotf({0}, {1})", "copysign": "copysignf({0}, {1})",
    "heaviside": "{0} == 0.0f ? {1} : {0} > 0.0f ? 1.0f : 0.0f", "pow_tensor": "powf({0}, {1})",
    "fmod": "fmodf({0}, {1})", "remainder": "{0} - {1} * floorf({0} / {1})",
    "floor_divide": "floorf({0} / {1})", "copy": "{0}", "lerp": "{0} + {2} * ({1} - {0})",
    "prelu": "{0} > 0.0f ? {0} : {1} * {0}", "logaddexp":
    "fmaxf({0}, {1}) + log1pf(expf(-fabsf({0} - {1})))",
    "multiply": "{0} * {1}", "xlogy": "{0} == 0.0f ? 0.0f : {0} * logf({1})",
    "threshold": "{0} > {1} ? {0} : {2}", "softshrink":
    "{0} > {1} ? {0} - {1} : {0} < -{1} ? {0} + {1} : 0.0f",
    "hardshrink": "{0} > {1} || {0} < -{1} ? {0} : 0.0f",
    "addcmul": "{0} + {3} * {1} * {2}", "addcdiv": "{0} + {3} * {1} / {2}",
}  # fmt: skip
_PROPAGATING = {
    "maximum": "{0} != {0} || {0} > {1} ? {0} : {1}",
    "minimum": "{0} != {0} || {0} < {1} ? {0} : {1}",
}
_WHOLE: Mapping[str, str] = {
    "add": "{0} + {1}", "sub": "{0} - {1}", "mul": "{0} * {1}", "multiply": "{0} * {1}",
    "rsub": "{1} - {0}", "neg": "-{0}", "abs": "{0} < 0 ? -{0} : {0}", "copy": "{0}",
    "maximum": "{0} > {1} ? {0} : {1}", "minimum": "{0} < {1} ? {0} : {1}",
    "square": "{0} * {0}", "sign": "({0} > 0) - ({0} < 0)", "relu": "{0} > 0 ? {0} : 0",
    "positive": "{0}", **dict.fromkeys(("floor", "ceil", "round", "trunc"), "{0}"),
    "fmax": "{0} > {1} ? {0} : {1}", "fmin": "{0} < {1} ? {0} : {1}",
    "threshold": "{0} > {1} ? {0} : {2}", "addcmul": "{0} + {3} * {1} * {2}",
    "pow": "llrint(pow(static_cast<double>({0}), static_cast<double>({1})))",
    "div_trunc": "{0} / {1}",
    "div_floor": "{0} / {1} - ({0} % {1} != 0 && ({0} < 0) != ({1} < 0))",
    "floor_divide": "{0} / {1} - ({0} % {1} != 0 && ({0} < 0) != ({1} < 0))",
    "remainder": "({0} % {1} + {1}) % {1}", "fmod": "{0} % {1}",
}  # fmt: skip
OPERANDS: Mapping[str, int] = {
    **POINTWISE, **dict.fromkeys(_COMPARISONS, 2), **dict.fromkeys(_BITS, 2),
    **{name: 3 if "{2}" in text else 2 if "{1}" in text else 1
       for name, text in [*_FLOATS.items(), *_LOGICAL.items()]},
    "where": 3, "softshrink": 2, "hardshrink": 2, "isnan": 1, "isinf": 1, "isfinite": 1,
    "bitwise_not": 1,
}  # fmt: skip
"""How many of the leading arguments of each operation are operands."""


def render_of(
    base: str,
    kinds: Sequence[str],
    dtype: str | None,
    options: Sequence[Any],
    keywords: Mapping[str, Any],
) -> tuple[str | None, Render, bool, str]:
    """Return what operands are converted to (None: as they are), the expression, whether it
    repeats operands, and the type of the result.

    Args:
        kinds: of each operand: float32, int64 or bool.
        dtype: what PyTorch makes of it, where that is known.

    Raises:
        CannotWrite: the operation is not known, or not for these types.
    """
    promoted = "float32" if "float32" in kinds else "int64" if "int64" in kinds else "bool"
    if base in _COMPARISONS:
        return promoted, _pattern(f"{{0}} {_COMPARISONS[base]} {{1}}"), False, "bool"
    if base in _LOGICAL:
        return "bool", _pattern(_LOGICAL[base]), False, "bool"
    if base in ("isnan", "isinf", "isfinite"):
        return "float32", _pattern(f"{base}({{0}})"), False, "bool"
    if base in _BITS or base == "bitwise_not":
        text = _BITS.get(base) or ("!{0}" if promoted == "bool" else "~{0}")
        return promoted, _pattern(text), False, dtype or promoted
    result = dtype or promoted
    if base == "where":
        return None, _pattern("{0} ? {1} : {2}"), False, result
    if base == "copy" and result == "bool":
        return "bool", _pattern("{0}"), False, result
    whole = result in INTEGERS and promoted != "float32"
    if whole and (text := _of_whole_numbers(base, len(kinds), options, keywords)):
        return ("bool" if promoted == "bool" and base == "copy" else "int64"), _pattern(text), (
            _repeats(text)), result  # fmt: skip
    if base == "pow" and len(kinds) == 2:
        base = "pow_tensor"
    if base in ("div", "true_divide") and keywords.get("rounding_mode"):
        around = "floorf" if keywords["rounding_mode"] == "floor" else "truncf"
        return "float32", _pattern(f"{around}({{0}} / {{1}})"), False, result
    if base in _PROPAGATING:
        text = _PROPAGATING[base]
        return "float32", _pattern(text), True, result
    if base in _FLOATS:
        text = _FLOATS[base]
        return "float32", _pattern(text), _repeats(text), result
    if base in ("clamp", "clamp_min", "clamp_max", "hardtanh", "relu6") and len(kinds) == 1:
        text = _clamp(base, options, keywords)
        return "float32", _pattern(text), True, result
    if base == "rsub":
        # pointwise_of() turns its operands around; here they keep their places.
        factor = keywords.get("alpha", 1)
        scaled = "{0}" if factor == 1 else f"{number(float(factor))} * {{0}}"
        return "float32", _pattern(f"{{1}} - {scaled}"), False, result
    if base not in POINTWISE:
        raise CannotWrite(f"the elementwise operation {base} is not known")
    nothing = [Value("", ())] * len(kinds)
    made = pointwise_of(base, "", (), nothing, options, keywords)
    return "float32", made.render, made.repeats, result


def _of_whole_numbers(
    base: str, operands: int, options: Sequence[Any], keywords: Mapping[str, Any]
) -> str:
    """Return the expression of an operation of whole numbers; empty where floats do."""
    if base in ("div", "true_divide") and keywords.get("rounding_mode"):
        base = f"div_{keywords['rounding_mode']}"
    if base in ("clamp", "clamp_min", "clamp_max", "hardtanh", "relu6") and operands == 1:
        return _clamp(base, options, keywords, _whole_number)
    if base == "pow" and operands == 1:
        return _power_of_whole(options[0] if options else keywords.get("exponent"))
    factor = keywords.get("alpha", 1)
    if base in ("add", "sub", "rsub") and factor != 1 and isinstance(factor, int):
        return {"add": f"{{0}} + {factor}LL * {{1}}", "sub": f"{{0}} - {factor}LL * {{1}}",
                "rsub": f"{{1}} - {factor}LL * {{0}}"}[base]  # fmt: skip
    return _WHOLE.get(base, "") if factor == 1 else ""


def _whole_number(value: float) -> str:
    return f"{int(value)}LL"


def _power_of_whole(exponent: Any) -> str:
    if not isinstance(exponent, int) or not 0 < exponent <= MOST_FACTORS:
        raise CannotWrite(f"whole numbers to the power of {exponent} are not written")
    return " * ".join(["{0}"] * exponent)


def _clamp(
    base: str,
    options: Sequence[Any],
    keywords: Mapping[str, Any],
    written: Callable[[float], str] = number,
) -> str:
    """Return a clamp that lets what is no number through, as PyTorch does."""
    low, high = {"hardtanh": (-1.0, 1.0), "relu6": (0.0, 6.0)}.get(base, (None, None))
    names = {"clamp_min": ("min",), "clamp_max": ("max",), "relu6": ()}.get(base, ("min", "max"))
    if base == "hardtanh":
        names = ("min_val", "max_val")
    found = {
        name: options[place] if place < len(options) else keywords.get(name)
        for place, name in enumerate(names)
    }
    for name, value in found.items():
        if value is None:
            continue
        if not isinstance(value, int | float):
            raise CannotWrite(f"{name} of {base} is no number")
        low, high = (value, high) if name.startswith("min") else (low, value)
    text = "{0}"
    if low is not None:
        text = f"{{0}} < {written(low)} ? {written(low)} : {text}"
    if high is not None:
        text = f"{{0}} > {written(high)} ? {written(high)} : {text}"
    return text


def _repeats(text: str) -> bool:
    return any(text.count(f"{{{position}}}") > 1 for position in range(4))


def _pattern(text: str) -> Render:
    return lambda texts: text.format(*texts)
