"""Every form of the arithmetic instructions that the PTX ISA allows on sm_90, or nearly."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import product

from .lanewise import Case

INTEGERS = ("u16", "s16", "u32", "s32", "u64", "s64")
HALVES = ("f16", "f16x2", "bf16", "bf16x2")
_ROUNDINGS = ("", ".rn", ".rz", ".rm", ".rp")


def _double(type_name: str) -> str:
    return type_name[0] + str(2 * int(type_name[1:]))


def _integers() -> Iterator[Case]:
    for t in INTEGERS:
        for op in ("add", "sub", "mul.lo", "mul.hi", "min", "max"):
            yield Case(f"{op}.{t} {{d}}, {{a}}, {{b}}", (t, t), t)
        for op in ("div", "rem"):
            yield Case(f"{op}.{t} {{d}}, {{a}}, {{b}}", (t, f"{t}/nonzero"), t)
        for op in ("mad.lo", "mad.hi"):
            yield Case(f"{op}.{t} {{d}}, {{a}}, {{b}}, {{c}}", (t, t, t), t)
        yield Case(f"sad.{t} {{d}}, {{a}}, {{b}}, {{c}}", (t, t, t), t, refused=True)
        if not t.endswith("64"):
            wide = _double(t)
            yield Case(f"mul.wide.{t} {{d}}, {{a}}, {{b}}", (t, t), wide)
            yield Case(f"mad.wide.{t} {{d}}, {{a}}, {{b}}, {{c}}", (t, t, wide), wide)
            yield Case(f"mul.wide.{t} {{d}}, {{a}}, -3", (t,), wide)
        yield Case(f"add.{t} {{d}}, {{a}}, -5", (t,), t)
        yield Case(f"sub.{t} {{d}}, {{a}}, {{a}}", (t,), t)
        yield Case(f"mov.b{t[1:]} {{d}}, {{a}}; mul.lo.{t} {{d}}, {{d}}, {{d}}", (t,), t)
    for t in ("s16", "s32", "s64"):
        for op in ("neg", "abs"):
            yield Case(f"{op}.{t} {{d}}, {{a}}", (t,), t)
    for op in ("add", "sub"):
        yield Case(f"{op}.sat.s32 {{d}}, {{a}}, {{b}}", ("s32", "s32"), "s32", refused=True)
    yield Case("mad.hi.sat.s32 {d}, {a}, {b}, {c}", ("s32",) * 3, "s32", refused=True)
    for op, t in product(("min", "max"), ("s32", "s16x2")):
        yield Case(f"{op}.relu.{t} {{d}}, {{a}}, {{b}}", (t, t) if t == "s32" else ("b32", "b32"),
                   "b32", refused=True)  # fmt: skip
    for op, t in product(("add", "min", "max"), ("u16x2", "s16x2")):
        yield Case(f"{op}.{t} {{d}}, {{a}}, {{b}}", ("b32", "b32"), "b32", refused=True)
    for half, t in product(("lo", "hi"), ("u32", "s32")):
        yield Case(f"mul24.{half}.{t} {{d}}, {{a}}, {{b}}", (t, t), t, refused=True)
        yield Case(f"mad24.{half}.{t} {{d}}, {{a}}, {{b}}, {{c}}", (t,) * 3, t, refused=True)
    for x, y in product(("u32", "s32"), repeat=2):
        yield Case(f"dp4a.{x}.{y} {{d}}, {{a}}, {{b}}, {{c}}", ("b32",) * 3, "b32")
        for half in ("lo", "hi"):
            yield Case(f"dp2a.{half}.{x}.{y} {{d}}, {{a}}, {{b}}, {{c}}", ("b32",) * 3, "b32",
                       refused=True)  # fmt: skip


def _carries() -> Iterator[Case]:
    for t in ("u32", "s32", "b32", "u64", "s64"):
        kind = "u" + t[1:]
        if t == "b32":
            continue
        yield Case(f"add.cc.{t} {{d}}, {{a}}, {{b}}; addc.cc.{t} {{d}}, {{d}}, {{c}};"
                   f"addc.{t} {{d}}, {{d}}, 0", (kind,) * 3, kind, refused=True)  # fmt: skip
        yield Case(f"sub.cc.{t} {{d}}, {{a}}, {{b}}; subc.cc.{t} {{d}}, {{d}}, {{c}};"
                   f"subc.{t} {{d}}, {{d}}, 0", (kind,) * 3, kind, refused=True)  # fmt: skip
        for half in ("lo", "hi"):
            yield Case(f"mad.{half}.cc.{t} {{d}}, {{a}}, {{b}}, {{c}};"
                       f"madc.{half}.{t} {{d}}, {{d}}, {{b}}, {{a}}", (kind,) * 3, kind,
                       refused=True)  # fmt: skip


def _floats() -> Iterator[Case]:
    for op, rounding, ftz, sat in product(
        ("add", "sub", "mul"), _ROUNDINGS, ("", ".ftz"), ("", ".sat")
    ):
        yield Case(f"{op}{rounding}{ftz}{sat}.f32 {{d}}, {{a}}, {{b}}", ("f32", "f32"), "f32")
    for op, rounding, ftz, sat in product(
        ("fma", "mad"), _ROUNDINGS[1:], ("", ".ftz"), ("", ".sat")
    ):
        yield Case(f"{op}{rounding}{ftz}{sat}.f32 {{d}}, {{a}}, {{b}}, {{c}}", ("f32",) * 3, "f32")
    for rounding in _ROUNDINGS:
        refused = rounding not in ("", ".rn")
        for op in ("add", "sub", "mul"):
            yield Case(f"{op}{rounding}.f64 {{d}}, {{a}}, {{b}}", ("f64", "f64"), "f64",
                       refused=refused)  # fmt: skip
        if not rounding:
            continue
        for op in ("fma", "mad"):
            yield Case(f"{op}{rounding}.f64 {{d}}, {{a}}, {{b}}, {{c}}", ("f64",) * 3, "f64",
                       refused=refused)  # fmt: skip
        for ftz in ("", ".ftz"):
            yield Case(f"div{rounding}{ftz}.f32 {{d}}, {{a}}, {{b}}", ("f32", "f32"), "f32",
                       refused=refused)  # fmt: skip
        yield Case(f"div{rounding}.f64 {{d}}, {{a}}, {{b}}", ("f64", "f64"), "f64",
                   refused=refused)  # fmt: skip
        for op in ("sqrt", "rcp"):
            for ftz in ("", ".ftz"):
                yield Case(f"{op}{rounding}{ftz}.f32 {{d}}, {{a}}", ("f32",), "f32",
                           refused=refused)  # fmt: skip
            yield Case(f"{op}{rounding}.f64 {{d}}, {{a}}", ("f64",), "f64", refused=refused)


def _halves() -> Iterator[Case]:
    for t in HALVES:
        brain = t.startswith("b")
        for op, rounding in product(("add", "sub", "mul"), ("", ".rn")):
            yield Case(f"{op}{rounding}.{t} {{d}}, {{a}}, {{b}}", (t, t), t)
            for more in () if brain else (".ftz", ".sat", ".ftz.sat"):
                yield Case(f"{op}{rounding}{more}.{t} {{d}}, {{a}}, {{b}}", (t, t), t,
                           refused=True)  # fmt: skip
        yield Case(f"fma.rn.{t} {{d}}, {{a}}, {{b}}, {{c}}", (t,) * 3, t)
        yield Case(f"fma.rn.relu.{t} {{d}}, {{a}}, {{b}}, {{c}}", (t,) * 3, t, zero_sign=False)
        for more in () if brain else (".ftz", ".sat", ".ftz.sat", ".ftz.relu"):
            yield Case(f"fma.rn{more}.{t} {{d}}, {{a}}, {{b}}, {{c}}", (t,) * 3, t,
                       zero_sign="relu" not in more, refused=True)  # fmt: skip


def _signs_and_extremes() -> Iterator[Case]:
    for t in ("f32", "f64", *HALVES):
        flushes = ("", ".ftz") if t in ("f32", "f16", "f16x2") else ("",)
        for op, ftz in product(("neg", "abs"), flushes):
            yield Case(f"{op}{ftz}.{t} {{d}}, {{a}}", (t,), t, refused=ftz != "" and t != "f32")
        for op, ftz, nan, sign in product(
            ("min", "max"), flushes, ("", ".NaN"), ("", ".xorsign.abs")
        ):
            if t == "f64" and (nan or sign):
                continue
            yield Case(f"{op}{ftz}{nan}{sign}.{t} {{d}}, {{a}}, {{b}}", (t, t), t,
                       refused=bool(sign) or (ftz != "" and t != "f32"))  # fmt: skip
    for t in ("f32", "f64"):
        yield Case(f"copysign.{t} {{d}}, {{a}}, {{b}}", (t, t), t)
        for kind in ("finite", "infinite", "number", "notanumber", "normal", "subnormal"):
            yield Case(f"testp.{kind}.{t} {{d}}, {{a}}", (t,), "pred", refused=True)


def _approximations() -> Iterator[Case]:
    """Functions whose last bits the ISA leaves open.

    The core is off by what the hardware is: mostly within 2 units of the last place of the value
    in f32, tanh by 1.1e-5 of it, and what is small where its operand is not by a few times 1e-7.
    It is within 1 unit in half precision, and within one part in 2**20 for the f64 seeds.
    """
    apart = {"sin": 3.5e-7, "cos": 3.5e-7, "lg2": 2.2e-7}
    for op, ftz in product(("rcp", "sqrt", "rsqrt", "sin", "cos", "lg2", "ex2"), ("", ".ftz")):
        yield Case(f"{op}.approx{ftz}.f32 {{d}}, {{a}}", ("f32",), "f32", ulps=2,
                   apart=apart.get(op, 0))  # fmt: skip
    for ftz in ("", ".ftz"):
        for kind in ("approx", "full"):
            yield Case(f"div.{kind}{ftz}.f32 {{d}}, {{a}}, {{b}}", ("f32", "f32/moderate"), "f32",
                       ulps=2)  # fmt: skip
    yield Case("tanh.approx.f32 {d}, {a}", ("f32",), "f32", ulps=190)
    for op, t in product(("ex2", "tanh"), HALVES):
        ftz = ".ftz" if op == "ex2" and t.startswith("b") else ""
        yield Case(f"{op}.approx{ftz}.{t} {{d}}, {{a}}", (t,), t, ulps=1)
    yield Case("rsqrt.approx.f64 {d}, {a}", ("f64",), "f64", ulps=2)
    for op in ("rcp", "rsqrt"):
        yield Case(f"{op}.approx.ftz.f64 {{d}}, {{a}}", ("f64",), "f64", ulps=2**32, ignore_low=0)


def _video() -> Iterator[Case]:
    for op, parts, kinds in product(("vadd", "vsub", "vmin", "vmax", "vabsdiff", "vavrg"), "24",
                                    product(("u32", "s32"), repeat=3)):  # fmt: skip
        # Sums only of what fits every type: the ISA leaves open how a part that does not is added.
        fits = kinds == ("u32",) * 3 and op in ("vmin", "vmax", "vabsdiff")
        for more in ("", ".sat", *((".add",) if fits else ())):
            yield Case(f"{op}{parts}.{'.'.join(kinds)}{more} {{d}}, {{a}}, {{b}}, {{c}}",
                       ("b32",) * 3, "b32", refused=True)  # fmt: skip


def cases() -> Iterator[Case]:
    """Yield every case of this module."""
    yield from _integers()
    yield from _carries()
    yield from _floats()
    yield from _halves()
    yield from _signs_and_extremes()
    yield from _approximations()
    yield from _video()
