"""Every arithmetic operation of the simulated GPU against NumPy, over types and odd values."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
from numpy.typing import NDArray
from simt_support import execute

from kernelblaster.harness.simt.ptx.parser import Module, parse

COUNT = 256
Array = NDArray[np.generic]
DTYPES = {
    "u16": np.uint16, "s16": np.int16, "u32": np.uint32, "s32": np.int32, "u64": np.uint64,
    "s64": np.int64, "f16": np.float16, "f32": np.float32, "f64": np.float64,
    "b16": np.uint16, "b32": np.uint32, "b64": np.uint64, "u8": np.uint8, "s8": np.int8,
}  # fmt: skip
REGISTER = {1: "%h", 2: "%h", 4: "%r", 8: "%d"}


def width(type_name: str) -> int:
    return np.dtype(DTYPES[type_name]).itemsize


def kernel(name: str, body: str, source: str, result: str) -> str:
    """Write a kernel that loads x, y, z of one type for each thread and stores `out`."""
    size, out_size = width(source), width(result)
    loads = "\n".join(
        f"ld.param.u64 %d1, [p{i}]; mad.wide.u32 %d2, %r9, {size}, %d1;"
        f"ld.global.b{8 * size} {REGISTER[size]}1{i}, [%d2];"
        for i in range(3)
    )
    values = {f"{{{n}}}": f"{REGISTER[size]}1{i}" for i, n in enumerate("xyz")}
    values["{out}"] = f"{REGISTER[out_size]}20"
    for key, value in values.items():
        body = body.replace(key, value)
    return f"""
.visible .entry {name}(.param .u64 p0, .param .u64 p1, .param .u64 p2, .param .u64 p3) {{
.reg .pred %p<4>; .reg .b16 %h<32>; .reg .b32 %r<32>; .reg .b64 %d<32>;
mov.u32 %r9, %tid.x;
{loads}
{body}
ld.param.u64 %d1, [p3]; mad.wide.u32 %d2, %r9, {out_size}, %d1;
st.global.b{8 * out_size} [%d2], {REGISTER[out_size]}20;
ret;
}}"""


def module_of(*kernels: str) -> Module:
    return parse(".version 8.3\n.target sm_90\n.address_size 64\n" + "\n".join(kernels))


def sample(type_name: str, seed: int) -> Array:
    """Return random values with the awkward ones first."""
    random = np.random.default_rng(seed)
    dtype = np.dtype(DTYPES[type_name])
    if dtype.kind == "f":
        values = (random.standard_normal(COUNT) * 10.0 ** random.integers(-3, 4, COUNT)).astype(
            dtype
        )
        values[:6] = [0.0, -0.0, np.inf, -np.inf, np.nan, 1.0]
    else:
        info = np.iinfo(dtype)
        values = random.integers(info.min, info.max, COUNT, dtype=dtype, endpoint=True)
        values[:5] = [0, 1, info.max, info.min, 2]
    return random.permutation(values) if seed % 2 else values


def check(
    body: str, source: str, result: str, expected: Callable[..., Array], ulps: int = 0
) -> None:
    """Run one operation over all samples and compare."""
    x, y, z = (sample(source, seed) for seed in (1, 2, 3))
    out = np.zeros(COUNT, dtype=DTYPES[result])
    module = module_of(kernel("k", body, source, result))
    report, (*_, got) = execute(module, "k", 1, COUNT, x, y, z, out)
    assert report.reports == ()
    with np.errstate(all="ignore"):
        want = np.asarray(expected(x, y, z)).astype(DTYPES[result])
    if want.dtype.kind == "f":
        assert np.array_equal(np.isnan(got), np.isnan(want))
        finite = ~np.isnan(want)
        if ulps:
            np.testing.assert_allclose(
                got[finite], want[finite], rtol=ulps * np.finfo(want.dtype).eps
            )
        else:
            bits = f"u{want.dtype.itemsize}"
            np.testing.assert_array_equal(got[finite].view(bits), want[finite].view(bits))
    else:
        np.testing.assert_array_equal(got, want)


def truncated_division(x: Array, y: Array) -> Array:
    big_x, big_y = x.astype(object), y.astype(object)

    def divide(a: int, b: int) -> int:
        if b == 0:
            return -1
        return abs(a) // abs(b) * (1 if (a < 0) == (b < 0) else -1)

    out = [divide(a, b) for a, b in zip(big_x, big_y, strict=True)]
    return wrap(out, x.dtype)


def truncated_remainder(x: Array, y: Array) -> Array:
    out = []
    for a, b in zip(x.astype(object), y.astype(object), strict=True):
        out.append(a if b == 0 else (abs(a) % abs(b)) * (-1 if a < 0 else 1))
    return wrap(out, x.dtype)


def wrap(values: list[int], dtype: np.dtype) -> Array:
    bits = 8 * dtype.itemsize
    return np.array([v % (1 << bits) for v in values], dtype=f"u{dtype.itemsize}").view(dtype)


def exact(x: Array, y: Array, z: Array, formula: Callable[[int, int, int], int]) -> Array:
    """Evaluate a formula in whole numbers and keep the low bits."""
    rows = zip(x.astype(object), y.astype(object), z.astype(object), strict=True)
    return wrap([formula(*row) for row in rows], x.dtype)


INTEGERS = ("u16", "s16", "u32", "s32", "u64", "s64")
FLOATS = ("f16", "f32", "f64")


@pytest.mark.parametrize("t", INTEGERS)
def test_integer_operations_match_exact_arithmetic(t: str) -> None:
    formulas: dict[str, Callable[[int, int, int], int]] = {
        f"add.{t} {{out}}, {{x}}, {{y}};": lambda a, b, c: a + b,
        f"sub.{t} {{out}}, {{x}}, {{y}};": lambda a, b, c: a - b,
        f"mul.lo.{t} {{out}}, {{x}}, {{y}};": lambda a, b, c: a * b,
        f"mul.hi.{t} {{out}}, {{x}}, {{y}};": lambda a, b, c: (a * b) >> int(t[1:]),
        f"mad.lo.{t} {{out}}, {{x}}, {{y}}, {{z}};": lambda a, b, c: a * b + c,
        f"mad.hi.{t} {{out}}, {{x}}, {{y}}, {{z}};": lambda a, b, c: ((a * b) >> int(t[1:])) + c,
        f"min.{t} {{out}}, {{x}}, {{y}};": lambda a, b, c: min(a, b),
        f"max.{t} {{out}}, {{x}}, {{y}};": lambda a, b, c: max(a, b),
    }
    for body, formula in formulas.items():
        check(body, t, t, lambda x, y, z, f=formula: exact(x, y, z, f))
    check(f"div.{t} {{out}}, {{x}}, {{y}};", t, t, lambda x, y, z: truncated_division(x, y))
    check(f"rem.{t} {{out}}, {{x}}, {{y}};", t, t, lambda x, y, z: truncated_remainder(x, y))
    if t[0] == "s":
        check(f"neg.{t} {{out}}, {{x}};", t, t, lambda x, y, z: exact(x, y, z, lambda a, b, c: -a))
        check(
            f"abs.{t} {{out}}, {{x}};", t, t, lambda x, y, z: exact(x, y, z, lambda a, b, c: abs(a))
        )


@pytest.mark.parametrize("t", ["u16", "s16", "u32", "s32"])
def test_wide_products(t: str) -> None:
    wide = t[0] + str(2 * int(t[1:]))
    check(f"mul.wide.{t} {{out}}, {{x}}, {{y}};", t, wide,
          lambda x, y, z: x.astype(DTYPES[wide]) * y.astype(DTYPES[wide]))  # fmt: skip


@pytest.mark.parametrize("t", ["b16", "b32", "b64"])
def test_logic_and_shifts(t: str) -> None:
    bits, unsigned, signed = int(t[1:]), f"u{t[1:]}", f"s{t[1:]}"
    check(f"and.{t} {{out}}, {{x}}, {{y}};", t, t, lambda x, y, z: x & y)
    check(f"or.{t} {{out}}, {{x}}, {{y}};", t, t, lambda x, y, z: x | y)
    check(f"xor.{t} {{out}}, {{x}}, {{y}};", t, t, lambda x, y, z: x ^ y)
    check(f"not.{t} {{out}}, {{x}};", t, t, lambda x, y, z: ~x)
    for count in (0, 1, bits - 1, bits, 200):
        check(f"shl.{t} {{out}}, {{x}}, {count};", t, t,
              lambda x, y, z, n=count: exact(x, y, z, lambda a, b, c: a << n))  # fmt: skip
        check(f"shr.{unsigned} {{out}}, {{x}}, {count};", unsigned, unsigned,
              lambda x, y, z, n=count: exact(x, y, z, lambda a, b, c: a >> n))  # fmt: skip
        check(f"shr.{signed} {{out}}, {{x}}, {count};", signed, signed,
              lambda x, y, z, n=count: exact(x, y, z, lambda a, b, c: a >> n))  # fmt: skip


def test_bit_operations() -> None:
    def reversed_bits(x: Array, bits: int) -> list[int]:
        return [int(f"{v:0{bits}b}"[::-1], 2) for v in x.astype(object)]

    for t, bits in (("b32", 32), ("b64", 64)):
        check(f"popc.{t} %r20, {{x}};", t, "u32", lambda x, y, z: np.bitwise_count(x))
        check(f"clz.{t} %r20, {{x}};", t, "u32",
              lambda x, y, z, n=bits: np.array([n - int(v).bit_length() for v in x]))  # fmt: skip
        check(f"brev.{t} {{out}}, {{x}};", t, t,
              lambda x, y, z, n=bits: np.array(reversed_bits(x, n), dtype=x.dtype))  # fmt: skip
    check("bfe.u32 {out}, {x}, 5, 9;", "u32", "u32", lambda x, y, z: x >> 5 & 511)
    check("bfe.s32 {out}, {x}, 5, 9;", "s32", "s32", lambda x, y, z: x << 18 >> 23)
    check("bfe.s32 {out}, {x}, 28, 9;", "s32", "s32", lambda x, y, z: x >> 28)
    check("bfi.b32 {out}, {x}, {y}, 4, 8;", "u32", "u32",
          lambda x, y, z: (y & ~np.uint32(0xFF0)) | (x << 4 & 0xFF0))  # fmt: skip
    check("prmt.b32 {out}, {x}, {y}, 0x5410;", "u32", "u32", lambda x, y, z: x & 0xFFFF | y << 16)
    check("prmt.b32 {out}, {x}, {y}, 0x8888;", "u32", "u32",
          lambda x, y, z: np.where(x & 0x80, 0xFFFFFFFF, 0))  # fmt: skip
    check("lop3.b32 {out}, {x}, {y}, {z}, 0x96;", "u32", "u32", lambda x, y, z: x ^ y ^ z)
    check("lop3.b32 {out}, {x}, {y}, {z}, 0xe8;", "u32", "u32",
          lambda x, y, z: (x & y) | (x & z) | (y & z))  # fmt: skip
    check("shf.l.wrap.b32 {out}, {x}, {x}, 7;", "u32", "u32", lambda x, y, z: x << 7 | x >> 25)
    check("shf.r.clamp.b32 {out}, {x}, {y}, 40;", "u32", "u32", lambda x, y, z: y)
    check("dp4a.u32.u32 {out}, {x}, {y}, {z};", "u32", "u32",
          lambda x, y, z: exact(x, y, z, lambda a, b, c: c + sum(
              (a >> s & 255) * (b >> s & 255) for s in (0, 8, 16, 24))))  # fmt: skip


@pytest.mark.parametrize("t", FLOATS)
def test_float_operations_round_once(t: str) -> None:
    dtype = DTYPES[t]
    check(f"add.{t} {{out}}, {{x}}, {{y}};", t, t, lambda x, y, z: x + y)
    check(f"sub.{t} {{out}}, {{x}}, {{y}};", t, t, lambda x, y, z: x - y)
    check(f"mul.{t} {{out}}, {{x}}, {{y}};", t, t, lambda x, y, z: x * y)
    check(f"min.{t} {{out}}, {{x}}, {{y}};", t, t, lambda x, y, z: np.fmin(x, y), ulps=1)
    check(f"max.{t} {{out}}, {{x}}, {{y}};", t, t, lambda x, y, z: np.fmax(x, y), ulps=1)
    check(f"max.NaN.{t} {{out}}, {{x}}, {{y}};", t, t, lambda x, y, z: np.maximum(x, y), ulps=1)
    check(f"neg.{t} {{out}}, {{x}};", t, t, lambda x, y, z: -x)
    check(f"abs.{t} {{out}}, {{x}};", t, t, lambda x, y, z: np.abs(x))
    wider = np.longdouble if t == "f64" else np.float64
    check(f"fma.rn.{t} {{out}}, {{x}}, {{y}}, {{z}};", t, t,
          lambda x, y, z: (x.astype(wider) * y.astype(wider) + z.astype(wider)).astype(dtype),
          ulps=1)  # fmt: skip
    if t != "f16":
        check(f"div.rn.{t} {{out}}, {{x}}, {{y}};", t, t, lambda x, y, z: x / y)
        check(f"sqrt.rn.{t} {{out}}, {{x}};", t, t, lambda x, y, z: np.sqrt(x))
        check(f"rcp.rn.{t} {{out}}, {{x}};", t, t, lambda x, y, z: 1 / x)
        check(f"copysign.{t} {{out}}, {{x}}, {{y}};", t, t, lambda x, y, z: np.copysign(y, x))


APPROXIMATIONS: dict[str, tuple[Callable[[Array], Array], float, float, tuple[float, ...]]] = {
    "ex2": (np.exp2, 1.6e-7, 0, (-3.0, 0.0, 1.0, 10.0)),
    "lg2": (np.log2, 2.3e-7, 2.2e-7, (0.125, 1.0, 2.0, 1024.0)),
    "sin": (np.sin, 0, 6.5e-7, (0.0,)), "cos": (np.cos, 0, 6.5e-7, (0.0,)),
    "tanh": (np.tanh, 1.12e-5, 0, (0.0, 12.0, -20.0)),
    "rcp": (lambda x: 1 / x, 1.01e-7, 0, (0.25, -2.0, 1024.0)),
    "rsqrt": (lambda x: 1 / np.sqrt(x), 1.3e-7, 0, (0.0625, 1.0, 4.0)),
    "sqrt": (np.sqrt, 1.1e-7, 0, (0.25, 1.0, 9.0, 144.0)),
}  # fmt: skip
"""The largest relative and absolute error on an H100, over all mantissas; where there is none."""


def _approximated(name: str, x: Array) -> tuple[Array, Array]:
    """Return what an instruction gives for all of a warp's worth of x, and the exact values."""
    out = np.zeros_like(x)
    module = module_of(kernel("k", f"{name}.approx.f32 {{out}}, {{x}};", "f32", "f32"))
    report, (*_, got) = execute(module, "k", 1, len(x), x, x, x, out)
    assert report.reports == ()
    return got.astype(np.float64), APPROXIMATIONS[name][0](x.astype(np.float64))


@pytest.mark.parametrize("name", APPROXIMATIONS)
def test_approximations_are_off_by_what_the_hardware_is(name: str) -> None:
    _, relative, absolute, exact = APPROXIMATIONS[name]
    x = np.random.default_rng(5).uniform(0.01, 3, 1024).astype(np.float32)
    got, want = _approximated(name, x)
    away = np.abs(got - want)
    # Functions that are small somewhere are off by as much there as elsewhere.
    assert np.all(away <= np.maximum(relative * np.abs(want), absolute))
    large = np.max(away / (np.abs(want) if relative and not absolute else 1))
    assert large > 0.6 * (absolute or relative)
    x = np.array(exact, dtype=np.float32)
    got, want = _approximated(name, x)
    assert np.array_equal(got, want.astype(np.float32))


@pytest.mark.parametrize("name", ["sin", "cos"])
def test_a_sine_is_off_the_more_the_larger_its_argument(name: str) -> None:
    largest = []
    for exponent in (2, 5, 8):  # measured: 1.2e-6, 8.6e-6 and 6.9e-5 at most
        x = np.random.default_rng(5).uniform(1, 2, 1024).astype(np.float32) * 2**exponent
        got, want = _approximated(name, x.astype(np.float32))
        largest.append(float(np.max(np.abs(got - want))))
    assert largest == pytest.approx([1.2e-6, 8.5e-6, 6.8e-5], rel=0.25)


def test_a_quotient_is_a_product_with_a_reciprocal() -> None:
    def exact(x: Array, y: Array, z: Array) -> Array:
        return x.astype(np.float64) / y.astype(np.float64)

    for kind in ("approx", "full"):
        check(f"div.{kind}.f32 {{out}}, {{x}}, {{y}};", "f32", "f32", exact, ulps=2)


def test_approximate_functions_of_halves() -> None:
    check("ex2.approx.f16 {out}, {x};", "f16", "f16", lambda x, y, z: np.exp2(x), ulps=1)


def test_saturation_and_directed_rounding() -> None:
    def clip(v: Array) -> Array:
        return np.where(np.isnan(v), np.float32(0), np.clip(v, 0, 1))

    check("add.sat.f32 {out}, {x}, {y};", "f32", "f32", lambda x, y, z: clip(x + y), ulps=1)
    check("mul.sat.f32 {out}, {x}, {y};", "f32", "f32", lambda x, y, z: clip(x * y), ulps=1)
    check("cvt.sat.f32.f32 {out}, {x};", "f32", "f32", lambda x, y, z: clip(x), ulps=1)

    def toward(x: Array, y: Array, mode: str) -> Array:
        wide = x.astype(np.float64) * y.astype(np.float64)  # exact
        near = wide.astype(np.float32)
        low = np.where(near > wide, np.nextafter(near, np.float32(-np.inf)), near)
        high = np.where(near < wide, np.nextafter(near, np.float32(np.inf)), near)
        return {"rm": low, "rp": high, "rz": np.where(wide > 0, low, high)}[mode]

    for mode in ("rm", "rp", "rz"):
        check(f"mul.{mode}.f32 {{out}}, {{x}}, {{y}};", "f32", "f32",
              lambda x, y, z, m=mode: toward(x, y, m))  # fmt: skip


CONVERSIONS: dict[str, tuple[str, str, Callable[[Array], Array]]] = {
    "cvt.rzi.s32.f32": ("f32", "s32", lambda x: to_integer(np.trunc(x), "s32")),
    "cvt.rni.s32.f32": ("f32", "s32", lambda x: to_integer(np.rint(x), "s32")),
    "cvt.rmi.s32.f32": ("f32", "s32", lambda x: to_integer(np.floor(x), "s32")),
    "cvt.rpi.u32.f32": ("f32", "u32", lambda x: to_integer(np.ceil(x), "u32")),
    "cvt.rzi.u16.f32": ("f32", "u16", lambda x: to_integer(np.trunc(x), "u16")),
    "cvt.rzi.s64.f64": ("f64", "s64", lambda x: to_integer(np.trunc(x), "s64")),
    "cvt.rn.f32.s32": ("s32", "f32", lambda x: x.astype(np.float32)),
    "cvt.rn.f32.u64": ("u64", "f32", lambda x: x.astype(np.float32)),
    "cvt.rn.f64.s64": ("s64", "f64", lambda x: x.astype(np.float64)),
    "cvt.rn.f16.f32": ("f32", "f16", lambda x: x.astype(np.float16)),
    "cvt.rn.f16.f64": ("f64", "f16", lambda x: x.astype(np.float16)),
    "cvt.f32.f16": ("f16", "f32", lambda x: x.astype(np.float32)),
    "cvt.f64.f32": ("f32", "f64", lambda x: x.astype(np.float64)),
    "cvt.rn.f32.f64": ("f64", "f32", lambda x: x.astype(np.float32)),
    "cvt.rni.f32.f32": ("f32", "f32", np.rint),
    "cvt.rmi.f32.f32": ("f32", "f32", np.floor),
    "cvt.s64.s32": ("s32", "s64", lambda x: x.astype(np.int64)),
    "cvt.u64.u32": ("u32", "u64", lambda x: x.astype(np.uint64)),
    "cvt.u32.u64": ("u64", "u32", lambda x: x.astype(np.uint32)),
    "cvt.s32.s16": ("s16", "s32", lambda x: x.astype(np.int32)),
    "cvt.sat.u16.s32": ("s32", "u16", lambda x: np.clip(x, 0, 65535)),
    "cvt.sat.s16.s32": ("s32", "s16", lambda x: np.clip(x, -32768, 32767)),
}  # fmt: skip


def to_integer(values: Array, type_name: str) -> Array:
    info = np.iinfo(DTYPES[type_name])
    at_nan = info.min if info.bits == 64 else 0
    return np.array(
        [at_nan if np.isnan(v) else info.max if v == np.inf else info.min if v == -np.inf
         else min(max(int(v), info.min), info.max) for v in values],
        dtype=DTYPES[type_name],
    )  # fmt: skip


@pytest.mark.parametrize("name", CONVERSIONS)
def test_conversions(name: str) -> None:
    source, result, expected = CONVERSIONS[name]
    check(f"{name} {{out}}, {{x}};", source, result, lambda x, y, z: expected(x))


@pytest.mark.parametrize("t", ["u32", "s64", "f32", "f16"])
def test_comparisons(t: str) -> None:
    """Each comparison, with its unordered twin for floats, and one combined with a predicate."""
    plain = {"eq": np.equal, "ne": np.not_equal, "lt": np.less, "le": np.less_equal,
             "gt": np.greater, "ge": np.greater_equal}  # fmt: skip
    for name, function in plain.items():

        def expected(x: Array, y: Array, z: Array, f=function, unordered=False) -> Array:
            nan = np.isnan(x) | np.isnan(y) if x.dtype.kind == "f" else np.zeros(COUNT, bool)
            return np.where(nan, unordered, f(x, y)).astype(np.uint32)

        body = "setp.{}.{} %p1, {{x}}, {{y}}; selp.u32 %r20, 1, 0, %p1;"
        check(body.format(name, t), t, "u32", expected)
        if t[0] == "f":
            check(body.format(name + "u", t), t, "u32",
                  lambda x, y, z, e=expected: e(x, y, z, unordered=True))  # fmt: skip
    check(f"setp.lt.{t} %p1, {{x}}, {{y}}; setp.lt.and.{t} %p2|%p3, {{y}}, {{z}}, !%p1;"
          "selp.u32 %r20, 1, 0, %p2; @%p3 add.u32 %r20, %r20, 2;", t, "u32",
          lambda x, y, z: (~(x < y) & (y < z)) + 2 * (~(x < y) & ~(y < z)))  # fmt: skip


def test_half_pairs() -> None:
    """f16x2 works on both halves; the packing conversion puts its first operand high."""

    def pairs(x: Array, y: Array, f: Callable[[Array, Array], Array]) -> Array:
        with np.errstate(all="ignore"):
            return f(x.view(np.float16), y.view(np.float16)).astype(np.float16).view(np.uint32)

    x = np.random.default_rng(0).standard_normal(2 * COUNT).astype(np.float16).view(np.uint32)
    y = np.random.default_rng(1).standard_normal(2 * COUNT).astype(np.float16).view(np.uint32)
    f = x.view(np.float16).astype(np.float32)[:COUNT]
    for body, want in (
        ("add.f16x2 {out}, {x}, {y};", pairs(x, y, np.add)),
        ("mul.f16x2 {out}, {x}, {y};", pairs(x, y, np.multiply)),
        ("max.f16x2 {out}, {x}, {y};", pairs(x, y, np.maximum)),
        ("set.gt.f16x2.f16x2 {out}, {x}, {y};", pairs(x, y, np.greater)),
        ("fma.rn.f16x2 {out}, {x}, {y}, {x};", pairs(
            x, y, lambda a, b: a.astype(np.float64) * b + a)),
    ):  # fmt: skip
        module = module_of(kernel("k", body, "u32", "u32"))
        _, (*_, got) = execute(module, "k", 1, COUNT, x, y, x, np.zeros(COUNT, np.uint32))
        np.testing.assert_array_equal(got, want)
    module = module_of(kernel("k", "cvt.rn.f16x2.f32 {out}, {x}, {y};", "f32", "u32"))
    _, (*_, got) = execute(module, "k", 1, COUNT, f, -f, f, np.zeros(COUNT, np.uint32))
    np.testing.assert_array_equal(got.view(np.float16).reshape(-1, 2)[:, 1], f.astype(np.float16))
    np.testing.assert_array_equal(got.view(np.float16).reshape(-1, 2)[:, 0], -f.astype(np.float16))


def test_guards_keep_the_old_value() -> None:
    check("mov.b32 %r20, {x}; setp.lt.s32 %p1, {y}, 0; @%p1 add.s32 %r20, {x}, {y};"
          "@!%p1 bra DONE; add.s32 %r20, %r20, 1; DONE:", "s32", "s32",
          lambda x, y, z: np.where(y < 0, x + y + 1, x))  # fmt: skip


def test_jump_table() -> None:
    body = """
    and.b32 %r21, {x}, 3; min.u32 %r21, %r21, 2; mov.u32 %r20, 0;
    TABLE: .branchtargets FIRST, SECOND, LAST;
    brx.idx %r21, TABLE;
    FIRST: add.u32 %r20, {x}, 1; bra.uni DONE;
    SECOND: add.u32 %r20, %r20, 20;
    LAST: add.u32 %r20, %r20, 300;
    DONE:"""

    def expected(x: Array, y: Array, z: Array) -> Array:
        return np.choose(np.minimum(x & 3, 2), [x + np.uint32(1), 320, 300])

    check(body, "u32", "u32", expected)


def test_directed_conversions_to_half() -> None:
    def toward(x: Array, mode: str) -> Array:
        near = x.astype(np.float16)
        wide = near.astype(np.float64)
        low = np.where(wide > x, np.nextafter(near, np.float16(-np.inf)), near)
        high = np.where(wide < x, np.nextafter(near, np.float16(np.inf)), near)
        return {"rm": low, "rp": high, "rz": np.where(x > 0, low, high)}[mode]

    for mode in ("rm", "rp", "rz"):
        check(f"cvt.{mode}.f16.f32 {{out}}, {{x}};", "f32", "f16",
              lambda x, y, z, m=mode: toward(x, m))  # fmt: skip
