"""Opcodes that few kernels use, each against NumPy: carries, packed integers, roundings, tiles."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
from numpy.typing import NDArray
from simt_support import compile_ptx, execute, kinds

from kernelblaster.harness.simt.ptx.parser import Module
from kernelblaster.harness.simt.run.core import UnsupportedInstruction

Words = NDArray[np.uint32]
_GENERATOR = np.random.default_rng(5)
A, B, C = (_GENERATOR.integers(0, 2**32, 64, dtype=np.uint32) for _ in range(3))
A[:8] = [0, 1, 0xFFFFFFFF, 0x80000000, 0x7FFFFFFF, 0x80808080, 0x01FF7F80, 5]
B[:8] = [0, 0xFFFFFFFF, 1, 0x80000000, 1, 0x7F7F7F7F, 0x80010203, 5]


def signed(x: Words) -> NDArray[np.int64]:
    return x.view(np.int32).astype(np.int64)


def parts(x: Words, bits: int, is_signed: bool) -> NDArray[np.int64]:
    kind = f"{'i' if is_signed else 'u'}{bits // 8}"
    return x.view(kind).reshape(len(x), -1).astype(np.int64)


def joined(values: NDArray[np.int64], bits: int) -> Words:
    return values.astype(f"u{bits // 8}").reshape(-1).view(np.uint32)


def carries(a: Words, b: Words, c: Words) -> Words:
    whole = a.astype(np.uint64) + b
    return (whole + 0).astype(np.uint32) ^ (c + (whole >> 32).astype(np.uint32))


def borrows(a: Words, b: Words, c: Words) -> Words:
    return (a - b) ^ (c - (a < b).astype(np.uint32))


def wide_product(a: Words, b: Words, c: Words) -> Words:
    low = (a.astype(np.uint64) * b & 0xFFFFFFFF) + c
    high = (a.astype(np.uint64) * b >> 32) + (low >> 32)
    return (low & 0xFFFFFFFF).astype(np.uint32) ^ high.astype(np.uint32)


def dot_2(a: Words, b: Words, c: Words) -> Words:
    x, y = parts(a, 16, True), parts(b, 8, True)
    return (x[:, 0] * y[:, 2] + x[:, 1] * y[:, 3] + signed(c)).astype(np.uint32)


def nth_bit(a: Words, b: Words, c: Words) -> Words:
    def one(value: int, n: int) -> int:
        places = [i for i in range(32) if value >> i & 1]
        return places[n - 1] if n <= len(places) else 0xFFFFFFFF

    return np.array([one(int(x), int(z) % 8 + 1) for x, z in zip(a, c, strict=True)], np.uint32)


def masks(a: Words, b: Words, c: Words) -> Words:
    start, length = np.minimum(a % 40, 32), np.minimum(b % 40, 32)
    field = (1 << length.astype(np.uint64)) - np.uint64(1)
    return (field << start.astype(np.uint64)).astype(np.uint32)


def extended(a: Words, b: Words, c: Words) -> Words:
    kept = (b % 32).astype(int)
    return np.array([0 if n == 0 else ((int(x) & (1 << n) - 1) ^ (1 << n - 1)) - (1 << n - 1)
                     for x, n in zip(a, kept, strict=True)]).astype(np.uint32)  # fmt: skip


def saturated_pack(a: Words, b: Words, c: Words) -> Words:
    high, low = (np.clip(signed(x), -128, 127).astype(np.uint32) & 255 for x in (a, b))
    return c << 16 | high << 8 | low


CASES: dict[str, tuple[str, Callable[[Words, Words, Words], Words]]] = {
    "add.cc": ('asm("add.cc.u32 %0,%2,%3; addc.u32 %1,%4,0;":"=r"(r),"=r"(s):"r"(a),"r"(b),"r"(c));'
               "r ^= s;", carries),
    "sub.cc": ('asm("sub.cc.u32 %0,%2,%3; subc.u32 %1,%4,0;":"=r"(r),"=r"(s):"r"(a),"r"(b),"r"(c));'
               "r ^= s;", borrows),
    "mad.cc": ('asm("mad.lo.cc.u32 %0,%2,%3,%4; madc.hi.u32 %1,%2,%3,0;":"=r"(r),"=r"(s)'
               ':"r"(a),"r"(b),"r"(c)); r ^= s;', wide_product),
    "sad": ("r = __sad((int)a, (int)b, c);",
            lambda a, b, c: (np.abs(signed(a) - signed(b)) + c).astype(np.uint32)),
    "usad": ("r = __usad(a, b, c);", lambda a, b, c: np.where(a > b, a - b, b - a) + c),
    "dp2a": ("r = __dp2a_hi((int)a, (int)b, (int)c);", dot_2),
    "fns": ('asm("fns.b32 %0,%1,0,%2;":"=r"(r):"r"(a),"r"(c % 8 + 1));', nth_bit),
    "bmsk": ('asm("bmsk.clamp.b32 %0,%1,%2;":"=r"(r):"r"(a % 40),"r"(b % 40));', masks),
    "szext": ('asm("szext.wrap.s32 %0,%1,%2;":"=r"(r):"r"(a),"r"(b));', extended),
    "slct": ('asm("slct.b32.s32 %0,%1,%2,%3;":"=r"(r):"r"(a),"r"(b),"r"(c));',
             lambda a, b, c: np.where(signed(c) >= 0, a, b)),
    "cnot": ('asm("cnot.b32 %0,%1;":"=r"(r):"r"(a));', lambda a, b, c: (a == 0).astype(np.uint32)),
    "add.sat": ('asm("add.sat.s32 %0,%1,%2;":"=r"(r):"r"(a),"r"(b));',
                lambda a, b, c: np.clip(signed(a) + signed(b), -(2**31), 2**31 - 1)
                .astype(np.uint32)),
    "add.u16x2": ("r = __vadd2(a, b);",
                  lambda a, b, c: joined(parts(a, 16, False) + parts(b, 16, False), 16)),
    "min.s16x2": ("r = __vmins2(a, b);",
                  lambda a, b, c: joined(np.minimum(parts(a, 16, True), parts(b, 16, True)), 16)),
    "vabsdiff4": ("r = __vabsdiffu4(a, b);",
                  lambda a, b, c: joined(abs(parts(a, 8, False) - parts(b, 8, False)), 8)),
    "vabsdiff4.add": ("r = __vsadu4(a, b);",
                      lambda a, b, c: abs(parts(a, 8, False) - parts(b, 8, False)).sum(axis=1)
                      .astype(np.uint32)),
    "cvt.pack": ('asm("cvt.pack.sat.s8.s32.b32 %0,%1,%2,%3;":"=r"(r):"r"(a),"r"(b),"r"(c));',
                 saturated_pack),
    "int128": ("unsigned __int128 x = (unsigned __int128)a << 70 | b;"
               "x = x / (c | 1) + (x >> 3); r = (unsigned)(x >> 20);",
               lambda a, b, c: np.array([(((x := int(p) << 70 | int(q)) // (int(z) | 1) + (x >> 3))
                                          >> 20) & 0xFFFFFFFF for p, q, z in zip(a, b, c,
                                          strict=True)], np.uint32)),
}  # fmt: skip
NAMES = list(CASES)
SOURCE = "#include <cuda_fp16.h>\n#include <cuda_bf16.h>\n#include <cuda_fp8.h>\n" + "".join(
    f"__global__ void case{i}(const unsigned *p, const unsigned *q, const unsigned *z, unsigned *o)"
    "{ int i = threadIdx.x; unsigned a = p[i], b = q[i], c = z[i], r = 0, s = 0; (void)s;"
    f"{CASES[name][0]} o[i] = r; }}\n"
    for i, name in enumerate(NAMES)
)
MORE = r"""
#include <cuda_fp16.h>
#include <cuda_fp8.h>
__global__ void directed(const double *x, const double *y, double *o, float *f) {
    int i = threadIdx.x;
    o[i] = __dadd_ru(x[i], y[i]); o[i + 32] = __dmul_rd(x[i], y[i]);
    o[i + 64] = __ddiv_rz(x[i], y[i]);
    f[i] = __fdiv_ru((float)x[i], (float)y[i]); f[i + 32] = __fsqrt_rd(fabsf((float)x[i]));
    f[i + 64] = __frcp_rz((float)x[i]);
}
__global__ void halves(const __half2 *x, const __half2 *y, __half2 *o, int *flags) {
    int i = threadIdx.x;
    o[i] = __hfma2_sat(x[i], y[i], x[i]);
    o[i + 32] = __hadd2_sat(x[i], y[i]);
    flags[i] = __hbgt2(x[i], y[i]) + 2 * __hbltu2(x[i], y[i]);
}
__global__ void fp8(const float *x, unsigned char *o, float *back) {
    int i = threadIdx.x;
    __nv_fp8_e4m3 p(x[i]); __nv_fp8_e5m2 q(x[i]);
    o[i] = p.__x; o[i + 256] = q.__x;
    back[i] = (float)p; back[i + 256] = (float)q;
}
__global__ void tf32(const float *x, float *o) {
    unsigned r;
    asm("cvt.rna.tf32.f32 %0, %1;" : "=r"(r) : "f"(x[threadIdx.x]));
    o[threadIdx.x] = __uint_as_float(r);
}
__global__ void tiles(const unsigned *x, unsigned *o, unsigned *p) {
    __shared__ __align__(16) unsigned s[128];
    int i = threadIdx.x;
    unsigned at = (unsigned)__cvta_generic_to_shared(s + 4 * i), r;
    asm volatile("stmatrix.sync.aligned.m8n8.x4.shared.b16 [%0], {%1, %2, %3, %4};"
                 :: "r"(at), "r"(x[i]), "r"(x[32 + i]), "r"(x[64 + i]), "r"(x[96 + i]));
    asm volatile("movmatrix.sync.aligned.m8n8.trans.b16 %0, %1;" : "=r"(r) : "r"(x[i]));
    __syncthreads();
    for (int j = 0; j < 4; j++) o[32 * j + i] = s[32 * j + i];
    p[i] = r;
}
__global__ void vector_atomics(float *f, unsigned *h) {
    asm volatile("red.global.add.v4.f32 [%0], {%1, %2, %3, %4};"
                 :: "l"(f), "f"(1.f), "f"(2.f), "f"(3.f), "f"((float)threadIdx.x));
    asm volatile("red.global.max.noftz.v2.f16x2 [%0], {%1, %1};"
                 :: "l"(h), "r"(0x3c003c00u + threadIdx.x));
}
__global__ void bytes_product(const signed char *a, const signed char *b, int *o) {
    int g = threadIdx.x / 4, q = threadIdx.x % 4, d[4] = {1, 2, 3, 4};
    unsigned x[4], y[2];
    for (int i = 0; i < 4; i++)
        x[i] = *(const unsigned *)(a + (g + i % 2 * 8) * 32 + i / 2 * 16 + 4 * q);
    for (int i = 0; i < 2; i++) y[i] = *(const unsigned *)(b + g * 32 + 16 * i + 4 * q);
    asm volatile("mma.sync.aligned.m16n8k32.row.col.s32.s8.u8.s32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, "
                 "{%8,%9}, {%0,%1,%2,%3};" : "+r"(d[0]), "+r"(d[1]), "+r"(d[2]), "+r"(d[3])
                 : "r"(x[0]), "r"(x[1]), "r"(x[2]), "r"(x[3]), "r"(y[0]), "r"(y[1]));
    for (int i = 0; i < 4; i++) o[(g + i / 2 * 8) * 8 + 2 * q + i % 2] = d[i] - i - 1;
}
__global__ void doubles_product(const double *a, const double *b, double *o) {
    int g = threadIdx.x / 4, q = threadIdx.x % 4;
    double d[2] = {0.5, 0.25};
    asm volatile("mma.sync.aligned.m8n8k4.row.col.f64.f64.f64.f64 {%0,%1}, {%2}, {%3}, {%0,%1};"
                 : "+d"(d[0]), "+d"(d[1]) : "d"(a[g * 4 + q]), "d"(b[g * 4 + q]));
    o[g * 8 + 2 * q] = d[0] - 0.5, o[g * 8 + 2 * q + 1] = d[1] - 0.25;
}
__global__ void elected(int *o) {
    unsigned lane; int chosen;
    asm volatile("{ .reg .pred p; elect.sync %0|p, -1; selp.b32 %1, 1, 0, p; }"
                 : "=r"(lane), "=r"(chosen));
    o[threadIdx.x] = lane * 10 + chosen;
}
__device__ __noinline__ int power(int x, int n) { return n == 0 ? 1 : x * power(x, n - 1); }
__device__ __noinline__ bool odd(int n);
__device__ __noinline__ bool even(int n) { return n == 0 || odd(n - 1); }
__device__ __noinline__ bool odd(int n) { return n != 0 && even(n - 1); }
__global__ void recursive(int *o) {
    int i = threadIdx.x;
    o[i] = power(3, i % 7) * 2 + even(i);
}
__device__ __noinline__ int tree(int n, int depth) {
    return depth == 0 ? n : tree(n + 1, depth - 1) ^ tree(n * 3, depth - 1);
}
__global__ void overflowing(int *o, int depth) { o[threadIdx.x] = tree(threadIdx.x, depth); }
struct Base { __device__ virtual int of(int x) { return x; } };
struct Twice : Base { __device__ int of(int x) override { return 2 * x; } };
struct Far : Base {
    int by;
    __device__ Far(int b) : by(b) {}
    __device__ int of(int x) override { return x + by; }
};
__global__ void virtually(int *o) {
    Base base; Twice twice; Far far(100);
    Base *all[3] = {&base, &twice, &far};
    o[threadIdx.x] = all[threadIdx.x % 3]->of(threadIdx.x);
}
"""


@pytest.fixture(scope="module")
def module() -> Module:
    return compile_ptx(SOURCE)


@pytest.fixture(scope="module")
def more() -> Module:
    return compile_ptx(MORE)


@pytest.mark.parametrize("name", NAMES)
def test_integers(module: Module, name: str) -> None:
    result, found = execute(module, f"case{NAMES.index(name)}", 1, 64, A, B, C, np.zeros_like(A))
    with np.errstate(over="ignore"):
        np.testing.assert_array_equal(found[3], CASES[name][1](A, B, C))
    assert not kinds(result)


def test_directed_rounding(more: Module) -> None:
    x, y = (_GENERATOR.normal(size=32) for _ in range(2))
    _, found = execute(more, "directed", 1, 32, x, y, np.zeros(96), np.zeros(96, np.float32))
    exact = np.longdouble(x), np.longdouble(y)
    total = exact[0] + exact[1]
    up, down, zero = found[2].reshape(3, 32)
    assert np.all((up >= total) & (np.nextafter(up, -np.inf) < total))
    product = exact[0] * exact[1]
    assert np.all((down <= product) & (np.nextafter(down, np.inf) > product))
    quotient = exact[0] / exact[1]
    assert np.all(abs(zero) <= abs(quotient)) and np.allclose(zero, x / y, rtol=1e-15)
    fx, fy = x.astype(np.float32), y.astype(np.float32)
    ceiling, floor, cut = found[3].reshape(3, 32)
    exact32 = fx.astype(np.float64) / fy
    below = np.nextafter(ceiling, -np.inf, dtype=np.float32)
    assert np.all((ceiling >= exact32) & (below < exact32))
    root = np.sqrt(abs(fx).astype(np.float64))
    assert np.all((floor <= root) & (np.nextafter(floor, np.inf, dtype=np.float32) > root))
    assert np.all(abs(cut) <= abs(1 / fx.astype(np.float64)))


def test_saturation_and_comparison_of_pairs_of_halves(more: Module) -> None:
    x, y = (_GENERATOR.normal(size=64).astype(np.float16) for _ in range(2))
    x[0], y[2] = np.nan, 7
    _, found = execute(more, "halves", 1, 32, x, y, np.zeros(128, np.float16),
                       np.zeros(32, np.int32))  # fmt: skip
    wide = x.astype(np.float64) * y + x
    expected = np.where(np.isnan(wide), 0, np.clip(wide, 0, 1)).astype(np.float16)
    np.testing.assert_array_equal(found[2][:64], expected)
    total = np.nan_to_num(np.clip(x.astype(np.float64) + y, 0, 1), nan=0).astype(np.float16)
    np.testing.assert_array_equal(found[2][64:], total)
    pairs = x.reshape(32, 2), y.reshape(32, 2)
    above = (pairs[0] > pairs[1]).all(axis=1)
    below = (~(pairs[0] >= pairs[1])).all(axis=1)
    np.testing.assert_array_equal(found[3], above + 2 * below)


def test_fp8_conversions_against_pytorch(more: Module) -> None:
    torch = pytest.importorskip("torch")
    x = np.concatenate([_GENERATOR.normal(size=200) * 10.0 ** _GENERATOR.integers(-6, 3, 200),
                        np.arange(-28, 28) / 2.0**10]).astype(np.float32)  # fmt: skip
    x = np.clip(x, -448, 448)
    _, found = execute(more, "fp8", 1, 256, x, np.zeros(512, np.uint8), np.zeros(512, np.float32))
    for place, kind in ((0, torch.float8_e4m3fn), (256, torch.float8_e5m2)):
        expected = torch.tensor(x).to(kind)
        np.testing.assert_array_equal(found[1][place : place + 256],
                                      expected.view(torch.uint8).numpy())  # fmt: skip
        np.testing.assert_array_equal(found[2][place : place + 256], expected.float().numpy())


def test_tf32_rounds_ties_away_from_zero(more: Module) -> None:
    x = np.concatenate([_GENERATOR.normal(size=30), [1 + 2**-11, -1 - 2**-11]]).astype(np.float32)
    _, found = execute(more, "tf32", 1, 32, x, np.zeros(32, np.float32))
    expected = ((x.view(np.uint32) + 0x1000) & 0xFFFFE000).view(np.float32)
    np.testing.assert_array_equal(found[1], expected)


def test_tiles_are_stored_and_transposed(more: Module) -> None:
    x = _GENERATOR.integers(0, 2**32, 128, dtype=np.uint32)
    result, found = execute(more, "tiles", 1, 32, x, np.zeros_like(x), np.zeros(32, np.uint32))
    np.testing.assert_array_equal(found[1], x)  # a fragment's rows, row by row, are its lanes
    tile = x[:32].view(np.uint16).reshape(8, 8)
    np.testing.assert_array_equal(found[2].view(np.uint16).reshape(8, 8), tile.T)
    assert not kinds(result)


def test_vector_and_half_atomics(more: Module) -> None:
    result, found = execute(more, "vector_atomics", 1, 32, np.zeros(4, np.float32),
                            np.zeros(2, np.uint32))  # fmt: skip
    np.testing.assert_array_equal(found[0], [32, 64, 96, sum(range(32))])
    np.testing.assert_array_equal(found[1], [0x3C003C1F] * 2)
    assert not kinds(result)


def test_products_of_bytes_and_of_doubles(more: Module) -> None:
    a = _GENERATOR.integers(-128, 128, (16, 32)).astype(np.int8)
    b = _GENERATOR.integers(0, 256, (8, 32)).astype(np.uint8)
    _, found = execute(more, "bytes_product", 1, 32, a, b, np.zeros((16, 8), np.int32))
    np.testing.assert_array_equal(found[2], a.astype(np.int32) @ b.astype(np.int32).T)
    x, y = (_GENERATOR.normal(size=(8, 4)) for _ in range(2))
    _, found = execute(more, "doubles_product", 1, 32, x, y, np.zeros((8, 8)))
    np.testing.assert_allclose(found[2], x @ y.T, rtol=0, atol=1e-14)


def test_one_lane_is_elected(more: Module) -> None:
    _, found = execute(more, "elected", 1, 32, np.zeros(32, np.int32))
    np.testing.assert_array_equal(found[0], [1] + [0] * 31)


def test_functions_that_call_themselves_and_each_other(more: Module) -> None:
    result, found = execute(more, "recursive", 1, 64, np.zeros(64, np.int32))
    i = np.arange(64)
    np.testing.assert_array_equal(found[0], 3 ** (i % 7) * 2 + (i % 2 == 0))
    assert not kinds(result)


def test_endless_recursion_is_reported(more: Module) -> None:
    result, _ = execute(more, "overflowing", 1, 32, np.zeros(32, np.int32), 5000)
    assert "call stack" in result.reports[0].detail


def test_virtual_functions(more: Module) -> None:
    result, found = execute(more, "virtually", 1, 32, np.zeros(32, np.int32))
    i = np.arange(32)
    np.testing.assert_array_equal(found[0], np.choose(i % 3, [i, 2 * i, i + 100]))
    assert not kinds(result)


@pytest.mark.parametrize(
    ("body", "name"),
    [
        ('asm volatile("wgmma.fence.sync.aligned;");', "wgmma"),
        ('asm volatile("cp.async.bulk.commit_group;");', "TMA"),
        ('asm volatile("barrier.cluster.arrive.aligned;");', "clusters"),
        ('unsigned r; asm volatile("mapa.shared::cluster.u32 %0, 0, 1;" : "=r"(r)); *o = r;',
         "clusters"),
        ('float d[4]; asm volatile("mma.sync.aligned.m16n8k32.row.col.f32.e4m3.e4m3.f32 '
         '{%0,%1,%2,%3}, {%4,%4,%4,%4}, {%4,%4}, {%0,%1,%2,%3};" : "+f"(d[0]), "+f"(d[1]), '
         '"+f"(d[2]), "+f"(d[3]) : "r"(1)); *o = d[0];', "fp8 products"),
    ],
)  # fmt: skip
def test_what_only_hardware_does_is_refused_by_name(body: str, name: str) -> None:
    source = f"__global__ void k(int *o) {{\n{body}\n}}\n"
    with pytest.raises(UnsupportedInstruction) as caught:
        execute(compile_ptx(source, "sm_90a"), "k", 1, 32, np.zeros(4, np.int32))
    assert name in str(caught.value) and "needs a real GPU" in str(caught.value)
    assert caught.value.line == 2
