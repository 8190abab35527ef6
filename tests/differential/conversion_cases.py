"""cvt in every pair of types, rounding and saturation that the PTX ISA allows."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import product

from .lanewise import Case

_INTEGERS = tuple(f"{k}{n}" for k in "us" for n in (8, 16, 32, 64))
_FLOATS = {"f16": 16, "bf16": 16, "f32": 32, "f64": 64}
_FLOAT_ROUNDING, _INTEGER_ROUNDING = ("rn", "rz", "rm", "rp"), ("rni", "rzi", "rmi", "rpi")


def _loses(to: str, source: str) -> bool:
    """Whether a value of the source format may not fit the target: then rounding is named."""
    order = {"f16": (5, 10), "bf16": (8, 7), "f32": (8, 23), "f64": (11, 52)}
    return any(x < y for x, y in zip(order[to], order[source], strict=True))


def _may_saturate(to: str, source: str) -> bool:
    """Whether the source type has numbers that the target has not: only then .sat is legal."""
    if source[0] == to[0]:
        return int(source[1:]) > int(to[1:])
    return source[0] == "s" or int(source[1:]) >= int(to[1:])


def _between_integers() -> Iterator[Case]:
    for to, source in product(_INTEGERS, repeat=2):
        for sat in ("", ".sat") if _may_saturate(to, source) else ("",):
            yield Case(f"cvt{sat}.{to}.{source} {{d}}, {{a}}", (source,), to,
                       result_register=max(16, int(to[1:])),
                       source_registers=(max(16, int(source[1:])),))  # fmt: skip
            # Registers may be wider than the types: the source is cut, the result extended.
            yield Case(f"cvt{sat}.{to}.{source} {{d}}, {{a}}", (source,), to,
                       result_register=64, source_registers=(64,))  # fmt: skip


def _with_floats() -> Iterator[Case]:
    for whole, real in product(_INTEGERS, _FLOATS):
        wide = max(16, int(whole[1:]))
        flushes = ("", ".ftz") if real == "f32" else ("",)
        saturations = ("",) if real == "bf16" else ("", ".sat")
        if real == "bf16" and whole.endswith("8"):
            continue  # there are no 8-bit registers, and bf16 takes no wider ones
        for mode, ftz in product(_INTEGER_ROUNDING, flushes):
            for sat in saturations:
                yield Case(f"cvt.{mode}{ftz}{sat}.{whole}.{real} {{d}}, {{a}}", (real,), whole,
                           result_register=wide)  # fmt: skip
            if real != "bf16":
                yield Case(f"cvt.{mode}{ftz}.{whole}.{real} {{d}}, {{a}}", (real,), whole,
                           result_register=64)  # fmt: skip
        for mode, sat in product(_FLOAT_ROUNDING, saturations):
            yield Case(f"cvt.{mode}{sat}.{real}.{whole} {{d}}, {{a}}", (whole,), real,
                       source_registers=(wide,))  # fmt: skip


def _between_floats() -> Iterator[Case]:
    for to, source in product(_FLOATS, repeat=2):
        modes = _FLOAT_ROUNDING if _loses(to, source) else ("",)
        if to == source:
            modes = ("", *_INTEGER_ROUNDING)
        flushes = ("", ".ftz") if "f32" in (to, source) else ("",)
        saturations = ("",) if "bf16" in (to, source) else ("", ".sat")
        for mode, ftz, sat in product(modes, flushes, saturations):
            text = f"cvt{'.' if mode else ''}{mode}{ftz}{sat}.{to}.{source}"
            yield Case(f"{text} {{d}}, {{a}}", (source,), to)
    for half, mode in product(("f16", "bf16"), ("rn", "rz")):
        for relu in ("", ".relu"):
            yield Case(f"cvt.{mode}{relu}.{half}.f32 {{d}}, {{a}}", ("f32",), half,
                       zero_sign=not relu)  # fmt: skip
            yield Case(f"cvt.{mode}{relu}.{half}x2.f32 {{d}}, {{a}}, {{b}}", ("f32", "f32"),
                       f"{half}x2", zero_sign=not relu)  # fmt: skip
            yield Case(f"cvt.{mode}{relu}.satfinite.{half}.f32 {{d}}, {{a}}", ("f32",), half,
                       zero_sign=not relu, refused=True)  # fmt: skip
    for mode in ("rna", "rn", "rz", "rn.relu", "rz.relu"):
        yield Case(f"cvt.{mode}.tf32.f32 {{d}}, {{a}}", ("f32",), "tf32", ignore_low=13,
                   zero_sign="relu" not in mode)  # fmt: skip


def cases() -> Iterator[Case]:
    """Yield every case of this module."""
    yield from _between_integers()
    yield from _with_floats()
    yield from _between_floats()
