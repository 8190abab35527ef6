"""Kernels of many kinds, and edits of them that are of no use: none may make one faster."""

from __future__ import annotations

import re
from dataclasses import dataclass

HEAD = r"""
#include <cuda_runtime.h>
#include <cuda_pipeline.h>
__device__ __forceinline__ void read_again(const float* p, float* y) {
    float v;
    asm volatile("ld.global.f32 %0, [%1];" : "=f"(v) : "l"(p));
    if (v == 0.7310f) *y = v;  // nobody knows that it never is
}
__device__ __forceinline__ void look(const float* p) {
    float v = *(volatile const float*)p;
    (void)v;
}
__device__ __forceinline__ float step_on(const float* p, float* y) {
    float v;
    asm volatile("ld.global.f32 %0, [%1];" : "=f"(v) : "l"(p));
    if (v == 0.7310f) *y = v;
    return v;
}
__device__ __forceinline__ void copy(float* to, const float* p) {
    __pipeline_memcpy_async(to, p, 4);
    __pipeline_commit();
    __pipeline_wait_prior(0);
}
__device__ __forceinline__ int scattered(int i) {
    unsigned h = i * 2654435761u;
    h = (h ^ h >> 15) * 2246822519u;
    return (1 << 24) + ((h ^ h >> 13) & ((1 << 24) - 1));
}
__device__ __forceinline__ void write_before(float* p) {
    asm volatile("st.global.f32 [%0], %1;" :: "l"(p), "f"(1.f) : "memory");
}
__device__ __forceinline__ float warp_sum(float v) {
    for (int o = 16; o; o /= 2) v += __shfl_xor_sync(~0u, v, o);
    return v;
}
"""


@dataclass(frozen=True)
class Kernel:
    """A kernel whose body marks where edits go."""

    body: str
    """`/*at*/`: all threads of a block come here; `/*in*/` and `/*out*/` are followed by an
    expression in brackets, the place read or written next. `T` is the threads of a block."""
    grid: int | tuple[int, int, int]
    threads: int
    n: int


def plain(name: str, kernel: Kernel, idle: int = 0) -> str:
    """Return the source of a kernel, with `idle` warps that exit at once."""
    return _source(name, kernel, _unmarked(kernel), idle)


def with_barriers(name: str, kernel: Kernel) -> str:
    """Return it with a barrier at every mark."""
    body = re.sub(r"/\*(in|out)\*/\[[^\]]*\];", "", kernel.body)
    return _source(name, kernel, body.replace("/*at*/", "__syncthreads();"))


def with_one_barrier(name: str, kernel: Kernel) -> str:
    """Return it with a barrier at the first mark."""
    body = re.sub(r"/\*(in|out)\*/\[[^\]]*\];", "", kernel.body)
    once = body.replace("/*at*/", "__syncthreads();", 1)
    return _source(name, kernel, once.replace("/*at*/", ""))


def with_loads(name: str, kernel: Kernel) -> str:
    """Return it with each marked load made twice."""
    body = re.sub(r"/\*in\*/\[([^\]]*)\];", r"read_again(x + (\1), y);", kernel.body)
    return _source(name, kernel, re.sub(r"/\*out\*/\[[^\]]*\];|/\*at\*/", "", body))


def with_table(name: str, kernel: Kernel) -> str:
    """Return it with reads before its work, in as many lines as may be, of what all blocks read."""
    extra = "for (int k = 0; k < 16; k++) read_again(x + (k * T + t) * 8, y);\n"
    return _source(name, kernel, extra + _unmarked(kernel))


def with_chain(name: str, kernel: Kernel) -> str:
    """Return it with loads one after the other behind each marked one, of what all blocks read."""
    extra = "step_on(x + t + (int)step_on(x + 2048 + t, y), y);"
    body = re.sub(r"/\*in\*/\[[^\]]*\];([^;]*;)", rf"\1 {extra}", kernel.body)
    return _source(name, kernel, re.sub(r"/\*out\*/\[[^\]]*\];|/\*at\*/", "", body))


def with_copies(name: str, kernel: Kernel) -> str:
    """Return it with an asynchronous copy before each marked load, of the same."""
    body = re.sub(r"/\*in\*/\[([^\]]*)\];", r"copy(spare + t, x + (\1));", kernel.body)
    body = re.sub(r"/\*out\*/\[[^\]]*\];|/\*at\*/", "", body)
    return _source(name, kernel, "__shared__ float spare[T];\n" + body)


def with_shuffle(name: str, kernel: Kernel) -> str:
    """Return it with an exchange within each warp before its work."""
    extra = "if (__shfl_xor_sync(~0u, (float)t, 1) == 0.7310f) *y = 0.f;\n"
    return _source(name, kernel, extra + _unmarked(kernel))


def with_atomic(name: str, kernel: Kernel) -> str:
    """Return it with an atomic of each thread, on a word of its own, before its work."""
    extra = "atomicAdd(y + (1 << 24) + (b * T + t) % (1 << 23), 0.f);\n"
    return _source(name, kernel, extra + _unmarked(kernel))


def with_volatile(name: str, kernel: Kernel) -> str:
    """Return it with a load before each marked one that nobody uses, as of what others write."""
    body = re.sub(r"/\*in\*/\[([^\]]*)\];", r"look(x + (\1));", kernel.body)
    return _source(name, kernel, re.sub(r"/\*out\*/\[[^\]]*\];|/\*at\*/", "", body))


def with_stores(name: str, kernel: Kernel) -> str:
    """Return it with each marked store made twice."""
    body = re.sub(r"/\*out\*/\[([^\]]*)\];", r"write_before(y + (\1));", kernel.body)
    return _source(name, kernel, re.sub(r"/\*in\*/\[[^\]]*\];|/\*at\*/", "", body))


def with_pass(name: str, kernel: Kernel) -> str:
    """Return it with another pass over some input before its work."""
    place = "((b * 16 + k) * T + t) % (1 << 24)"
    extra = f"for (int k = 0; k < 16; k++) read_again(x + {place}, y);\n"
    return _source(name, kernel, extra + _unmarked(kernel))


def with_arithmetic(name: str, kernel: Kernel) -> str:
    """Return it with arithmetic before its work of which nothing comes."""
    extra = "float u = t; for (int k = 0; k < 64; k++) u = u * 1.5f + 2.f;\n"
    extra += "if (u == 0.7310f) *y = u;\n"
    return _source(name, kernel, extra + _unmarked(kernel))


EDITS = {
    "barriers": with_barriers, "one_barrier": with_one_barrier, "loads": with_loads,
    "volatile": with_volatile, "table": with_table, "chain": with_chain, "copies": with_copies,
    "stores": with_stores, "pass": with_pass, "arithmetic": with_arithmetic,
    "shuffle": with_shuffle, "atomic": with_atomic,
}  # fmt: skip


def _unmarked(kernel: Kernel) -> str:
    return re.sub(r"/\*(in|out)\*/\[[^\]]*\];|/\*at\*/", "", kernel.body)


def _source(name: str, kernel: Kernel, body: str, idle: int = 0) -> str:
    threads = kernel.threads + 32 * idle
    leave = f"if (threadIdx.x >= {kernel.threads}) return;\n" if idle else ""
    return (
        f'extern "C" __global__ void __launch_bounds__({threads}) {name}'
        "(const float* __restrict__ x, float* __restrict__ y, int n) {\n"
        f"{leave}constexpr int T = {kernel.threads}; const int t = threadIdx.x, b = blockIdx.x;\n"
        f"(void)T; (void)t; (void)b;\n{body}\n}}\n"
    )


_SCALE = """
    int i = b * T + t; /*at*/
    if (i < n) { /*in*/[i]; float v = x[i]; /*out*/[i]; y[i] = v * 2.f; }
"""
_VECTOR = """
    int i = b * T + t; /*at*/
    if (i < n / 4) {
        /*in*/[4 * i]; float4 v = ((const float4*)x)[i]; v.x += 1.f; /*out*/[4 * i];
        ((float4*)y)[i] = v;
    } /*at*/
"""
_STRIDE = """
    for (int i = b * T + t; i < n; i += gridDim.x * T) {
        /*in*/[i]; float v = x[i]; /*out*/[i]; y[i] = v * v + 1.f;
    } /*at*/
"""
_ROW_BLOCK = """
    __shared__ float part[T / 32];
    float s = 0.f; /*at*/
    for (int i = t; i < n; i += T) { /*in*/[b * n + i]; s += x[b * n + i]; }
    s = warp_sum(s);
    if (t % 32 == 0) part[t / 32] = s;
    __syncthreads();
    if (t == 0) { for (int w = 1; w < T / 32; w++) s += part[w]; /*out*/[b]; y[b] = s; } /*at*/
"""
_ROW_FIRST = """
    __shared__ float row[2048]; /*at*/
    for (int i = t; i < n; i += T) { /*in*/[b * n + i]; row[i] = x[b * n + i]; }
    __syncthreads();
    if (t == 0) { float s = 0.f; for (int i = 0; i < n; i++) s += row[i]; /*out*/[b]; y[b] = s; }
"""
_ROW_WARP = """
    int r = (b * T + t) / 32, l = t % 32;
    float s = 0.f; /*at*/
    for (int i = l; i < n; i += 32) { /*in*/[r * n + i]; s += x[r * n + i]; }
    s = warp_sum(s); /*at*/
    if (l == 0) { /*out*/[r]; y[r] = s; }
"""
_SOFTMAX = """
    __shared__ float part[T];
    const float* in = x + b * n; float top = -1e30f, s = 0.f; /*at*/
    for (int i = t; i < n; i += T) { /*in*/[b * n + i]; top = fmaxf(top, in[i]); }
    part[t] = top; __syncthreads();
    for (int o = T / 2; o; o /= 2) { if (t < o) part[t] = fmaxf(part[t], part[t + o]);
        __syncthreads(); }
    top = part[0]; __syncthreads();
    for (int i = t; i < n; i += T) s += __expf(in[i] - top);
    part[t] = s; __syncthreads();
    for (int o = T / 2; o; o /= 2) { if (t < o) part[t] += part[t + o]; __syncthreads(); }
    s = 1.f / part[0]; /*at*/
    for (int i = t; i < n; i += T) { /*out*/[b * n + i]; y[b * n + i] = __expf(in[i] - top) * s; }
"""
_TRANSPOSE = """
    __shared__ float tile[32][PAD];
    const int per = n / 32, bx = b % per * 32, by = b / per * 32, tx = t % 32, ty = t / 32; /*at*/
    for (int k = ty; k < 32; k += T / 32) { /*in*/[(by + k) * n + bx + tx];
        tile[k][tx] = x[(by + k) * n + bx + tx]; }
    __syncthreads();
    for (int k = ty; k < 32; k += T / 32) { /*out*/[(bx + k) * n + by + tx];
        y[(bx + k) * n + by + tx] = tile[tx][k]; } /*at*/
"""
_TILED = """
    __shared__ float A[S][S], B[S][S];
    const int per = n / S, c = b % per * S + t % S, r = b / per * S + t / S; float s = 0.f;
    for (int k = 0; k < n; k += S) {
        /*in*/[r * n + k + t % S]; A[t / S][t % S] = x[r * n + k + t % S];
        B[t / S][t % S] = x[(k + t / S) * n + c];
        __syncthreads();
        for (int j = 0; j < S; j++) s += A[t / S][j] * B[j][t % S];
        /*at*/ __syncthreads();
    }
    /*out*/[r * n + c]; y[r * n + c] = s;
"""
_BLOCKED = """
    __shared__ float A[16][64], B[16][64];
    const int per = n / 64, c0 = b % per * 64, r0 = b / per * 64, tx = t % 16, ty = t / 16;
    float s[4][4] = {};
    for (int k = 0; k < n; k += 16) {
        for (int i = t; i < 1024; i += T) {
            /*in*/[(r0 + i / 16) * n + k + i % 16];
                A[i % 16][i / 16] = x[(r0 + i / 16) * n + k + i % 16];
            B[i / 64][i % 64] = x[(k + i / 64) * n + c0 + i % 64];
        }
        __syncthreads();
        for (int j = 0; j < 16; j++)
            for (int p = 0; p < 4; p++)
                for (int q = 0; q < 4; q++) s[p][q] += A[j][ty * 4 + p] * B[j][tx * 4 + q];
        /*at*/ __syncthreads();
    }
    for (int p = 0; p < 4; p++)
        for (int q = 0; q < 4; q++) { /*out*/[(r0 + ty * 4 + p) * n + c0 + tx * 4 + q];
            y[(r0 + ty * 4 + p) * n + c0 + tx * 4 + q] = s[p][q]; }
"""
_STENCIL = """
    __shared__ float tile[T + 16];
    int i = b * T + t; /*at*/
    /*in*/[i + 8]; tile[t + 8] = x[i + 8];
    if (t < 8) { tile[t] = x[i]; tile[T + 8 + t] = x[i + T + 8]; }
    __syncthreads();
    float s = 0.f; for (int k = 0; k < 17; k++) s += tile[t + k]; /*at*/
    /*out*/[i]; y[i] = s;
"""
_SHARED_HEAVY = """
    __shared__ float big[8192]; /*at*/
    for (int i = t; i < 8192; i += T) { /*in*/[b * 8192 + i]; big[i] = x[b * 8192 + i]; }
    __syncthreads();
    float s = 0.f; for (int k = 0; k < 256; k++) s += big[(t * 33 + k * T) % 8192]; /*at*/
    /*out*/[b * T + t]; y[b * T + t] = s;
"""
_HISTOGRAM = """
    int i = b * T + t; /*at*/
    if (i < n) { /*in*/[i]; float v = x[i]; atomicAdd(y + ((int)v + i) % 1024, 1.f); } /*at*/
"""
_PARTIAL = """
    int i = b * T + t; /*at*/
    if (i < n / 8) { /*in*/[i * 8]; float v = x[i * 8]; /*out*/[i * 8]; y[i * 8] = v + 1.f; } /*at*/
"""
_COLUMN = """
    int c = b * T + t; float s = 0.f; /*at*/
    for (int r = 0; r < n; r++) { /*in*/[r * 8192 + c]; s += x[r * 8192 + c]; }
    /*out*/[c]; y[c] = s; /*at*/
"""
_DEPENDENT = """
    float v = t; /*at*/
    for (int k = 0; k < n; k++) v = v * 0.5f + 1.f;
    /*in*/[b * T + t]; v += x[b * T + t]; /*at*/
    /*out*/[b * T + t]; y[b * T + t] = v;
"""
_ROOTS = """
    int i = b * T + t; /*in*/[i]; float v = x[i]; /*at*/
    for (int k = 0; k < n; k++) v = sqrtf(v + 1.f) + __sinf(v);
    /*out*/[i]; y[i] = v; /*at*/
"""
_BLOCKS = """
    __shared__ float part[T]; part[t] = 0.f; float v = 0.f;
    for (int k = 0; k < n; k++) {
        /*in*/[(b * n + k) * T + t]; part[t] = x[(b * n + k) * T + t];
        __syncthreads();
        v += part[(t + 32) % T] * part[(t + 64) % T]; /*at*/
        __syncthreads();
    }
    /*out*/[b * T + t]; y[b * T + t] = v;
"""
_SCAN = """
    __shared__ float totals[32]; float before = 0.f; /*at*/
    for (int i = t; i < n; i += T) {
        /*in*/[b * n + i]; float v = x[b * n + i];
        for (int o = 1; o < 32; o *= 2) {
            float u = __shfl_up_sync(~0u, v, o); if (t % 32 >= o) v += u; }
        if (t % 32 == 31) totals[t / 32] = v;
        __syncthreads();
        for (int w = 0; w < t / 32; w++) v += totals[w];
        /*out*/[b * n + i]; y[b * n + i] = v + before;
        for (int w = 0; w < T / 32; w++) before += totals[w];
        __syncthreads();
    } /*at*/
"""

_GATHER = """
    int j = scattered(b * T + t); float s = 0.f; /*at*/
    for (int k = 0; k < n; k++) {
        /*in*/[j]; float v = x[j]; s += v; j = scattered(j + (int)v);
    }
    /*out*/[b * T + t]; y[b * T + t] = s;
"""
_TWO_TABLES = """
    int j = scattered(b * T + t); float s = 0.f; /*at*/
    for (int k = 0; k < n; k++) {
        /*in*/[j]; float v = x[j]; s += v * x[(k * 32 + t) % 1024]; j = scattered(j + (int)v);
    }
    /*out*/[b * T + t]; y[b * T + t] = s;
"""
_ROWS_OF_THREADS = """
    int r = b * T + t; float s = 0.f; /*at*/
    for (int k = 0; k < n; k++) { /*in*/[r * n + k]; s += x[r * n + k]; }
    /*out*/[r]; y[r] = s;
"""

KERNELS = {
    "gather": Kernel(_GATHER, 264, 128, 1),
    "gather_chain": Kernel(_GATHER, 132, 64, 12),
    "gather_all": Kernel(_GATHER, 8192, 256, 1),
    "gather_table": Kernel(_TWO_TABLES, 132, 64, 12),
    "rows_of_threads": Kernel(_ROWS_OF_THREADS, 132, 64, 32),
    "scale": Kernel(_SCALE, 32768, 256, 1 << 23),
    "vector_1024": Kernel(_VECTOR, 2048, 1024, 1 << 23),
    "stride": Kernel(_STRIDE, 264, 512, 1 << 23),
    "row_block": Kernel(_ROW_BLOCK, 4096, 256, 4096),
    "row_one_block": Kernel(_ROW_BLOCK, 1, 512, 1 << 18),
    "row_first": Kernel(_ROW_FIRST, 2048, 256, 2048),
    "row_first_1024": Kernel(_ROW_FIRST, 1024, 992, 2048),
    "row_warp": Kernel(_ROW_WARP, 2048, 128, 1024),
    "softmax": Kernel(_SOFTMAX, 1024, 256, 2048),
    "transpose": Kernel(_TRANSPOSE.replace("PAD", "33"), 16384, 512, 4096),
    "transpose_conflict": Kernel(_TRANSPOSE.replace("PAD", "32"), 16384, 512, 4096),
    "tiled_16": Kernel(_TILED.replace("S", "16"), 256, 256, 256),
    "blocked": Kernel(_BLOCKED, 64, 256, 512),
    "stencil": Kernel(_STENCIL, 16384, 512, 0),
    "stencil_960": Kernel(_STENCIL, 2048, 960, 0),
    "shared_heavy_512": Kernel(_SHARED_HEAVY, 528, 512, 0),
    "histogram": Kernel(_HISTOGRAM, 4096, 256, 1 << 20),
    "partial": Kernel(_PARTIAL, 8192, 256, 1 << 24),
    "column": Kernel(_COLUMN, 32, 256, 1024),
    "scan": Kernel(_SCAN, 300, 256, 4096),
    "dependent": Kernel(_DEPENDENT, 132, 64, 1000),
    "roots": Kernel(_ROOTS, 2048, 256, 20),
    **{f"phases_{n}_{threads}": Kernel(_BLOCKS, blocks, threads, n)
       for n in (1, 4, 5, 16) for threads, blocks in ((512, 528), (960, 264))},
}  # fmt: skip
"""By name. Blocks leave room for idle warps."""
