"""Whole CUDA kernels on the simulated GPU: results against NumPy, counters against hand counts."""

from __future__ import annotations

import os

import numpy as np
import pytest
from simt_support import compile_ptx, counted, execute, kinds

from kernelblaster.harness.simt.ptx.parser import Module, parse
from kernelblaster.harness.simt.run import core
from kernelblaster.harness.simt.run.core import UnsupportedInstruction
from kernelblaster.harness.simt.run.replay import replay_l1

SOURCE = r"""
#include <cuda_fp16.h>
#include <mma.h>
#include <cooperative_groups.h>
using namespace nvcuda;

__constant__ float coefficients[4] = {1.f, 2.f, 3.f, 4.f};
__device__ int offset = 7;
__device__ int *offset_pointer = &offset;
struct Big { int values[8]; };

__global__ void add(const float *a, const float *b, float *c, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) c[i] = a[i] + b[i];
}
__global__ void strided(const float *a, float *c, int stride) {
    int i = threadIdx.x;
    c[i * stride] = a[i * stride];
}
__global__ void vectorised(const float4 *a, float4 *c) {
    float4 v = a[threadIdx.x];
    v.x += 1; v.y += 2; v.z += 3; v.w += 4;
    c[threadIdx.x] = v;
}
__global__ void broadcast(const float *a, float *c) { c[threadIdx.x] = a[threadIdx.x / 32]; }

template <int STRIDE> __global__ void banks(const float *a, float *c) {
    __shared__ float tile[32 * STRIDE + 32];
    tile[threadIdx.x * STRIDE] = a[threadIdx.x];
    __syncthreads();
    c[threadIdx.x] = tile[threadIdx.x * STRIDE] + 1.f;
}
template __global__ void banks<1>(const float *, float *);
template __global__ void banks<2>(const float *, float *);
template __global__ void banks<32>(const float *, float *);
template __global__ void banks<33>(const float *, float *);

__global__ void wide_shared(const float4 *a, float4 *c, int step) {
    __shared__ float4 tile[64];
    tile[threadIdx.x] = a[threadIdx.x];
    __syncthreads();
    c[threadIdx.x] = tile[(threadIdx.x * step) & 31];
}
__global__ void block_sum(const float *a, float *out, int n) {
    __shared__ float partial[256];
    int t = threadIdx.x, i = blockIdx.x * 256 + t;
    partial[t] = i < n ? a[i] : 0.f;
    __syncthreads();
    for (int s = 128; s > 0; s >>= 1) {
        if (t < s) partial[t] += partial[t + s];
        __syncthreads();
    }
    if (t == 0) atomicAdd(out, partial[0]);
}
__global__ void softmax_rows(const float *x, float *y, int columns) {
    const float *row = x + blockIdx.x * columns;
    float m = -INFINITY, s = 0;
    for (int i = threadIdx.x; i < columns; i += 32) m = fmaxf(m, row[i]);
    for (int d = 16; d; d >>= 1) m = fmaxf(m, __shfl_xor_sync(~0u, m, d));
    for (int i = threadIdx.x; i < columns; i += 32) s += expf(row[i] - m);
    for (int d = 16; d; d >>= 1) s += __shfl_down_sync(~0u, s, d);
    s = __shfl_sync(~0u, s, 0);
    y += blockIdx.x * columns;
    for (int i = threadIdx.x; i < columns; i += 32) y[i] = expf(row[i] - m) / s;
}
template <int T> __global__ void matmul(const float *a, const float *b, float *c, int n) {
    __shared__ float sa[T][T], sb[T][T];
    int x = threadIdx.x, y = threadIdx.y, row = blockIdx.y * T + y, col = blockIdx.x * T + x;
    float acc = 0;
    for (int k = 0; k < n; k += T) {
        sa[y][x] = a[row * n + k + x];
        sb[y][x] = b[(k + y) * n + col];
        __syncthreads();
        for (int i = 0; i < T; i++) acc += sa[y][i] * sb[i][x];
        __syncthreads();
    }
    c[row * n + col] = acc;
}
template __global__ void matmul<16>(const float *, const float *, float *, int);

__device__ __noinline__ float helper(float x, const float *table, int *count) {
    *count += 1;
    return x * table[1] + sinf(x);
}
__global__ void misc(const float *a, double *d, int *out, Big big, int n) {
    int i = threadIdx.x, count = 0;
    int local[8];
    for (int j = 0; j < 8; j++) local[(j * n) & 7] = big.values[(j + i) & 7];
    float table[2] = {a[0], coefficients[i & 3]};
    float r = helper(a[i], table, &count);
    d[i] = (double)r + pow((double)i, 1.5);
    unsigned votes = __ballot_sync(~0u, i & 1);
    out[i] = local[n & 7] + big.values[i & 7] + (int)(1000000007LL * (i + 1) % 97) + __popc(votes)
           + *offset_pointer + count + __syncthreads_count(i < 5) * 1000;
}
__global__ void divergent(int *out, int n) {
    int i = threadIdx.x, steps = 0;
    for (int v = i + 1; v != 1; steps++) v = v & 1 ? 3 * v + 1 : v / 2;
    out[i] = steps;
}
__global__ void histogram(const int *keys, int *bins, float *sums, half2 *pairs, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n) return;
    atomicAdd(&bins[keys[i]], 1);
    atomicAdd(&sums[keys[i]], 0.5f);
    atomicAdd(&pairs[keys[i]], __floats2half2_rn(1.f, 2.f));
    atomicMax(&bins[8], i);
    if (atomicCAS(&bins[9], 0, i + 1) == 0) atomicExch(&bins[10], i);
}
__global__ void copy_async(const float *a, float *c) {
    __shared__ alignas(16) float tile[256];
    unsigned at = (unsigned)__cvta_generic_to_shared(&tile[threadIdx.x * 4]);
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" :: "r"(at), "l"(a + threadIdx.x * 4));
    asm volatile("cp.async.commit_group;");
    asm volatile("cp.async.wait_group 0;");
    __syncthreads();
    for (int k = 0; k < 4; k++) c[k * 64 + threadIdx.x] = tile[255 - (k * 64 + threadIdx.x)];
}
__global__ void wmma_product(const half *a, const half *b, float *c, int ldc) {
    wmma::fragment<wmma::matrix_a, 16, 16, 16, half, wmma::row_major> fa;
    wmma::fragment<wmma::matrix_b, 16, 16, 16, half, wmma::col_major> fb;
    wmma::fragment<wmma::accumulator, 16, 16, 16, float> fc;
    wmma::fill_fragment(fc, 1.f);
    for (int k = 0; k < 32; k += 16) {
        wmma::load_matrix_sync(fa, a + k, 32);
        wmma::load_matrix_sync(fb, b + k, 32);
        wmma::mma_sync(fc, fa, fb, fc);
    }
    for (int i = 0; i < fc.num_elements; i++) fc.x[i] *= 2.f;
    wmma::store_matrix_sync(c, fc, ldc, wmma::mem_row_major);
}
__global__ void mma_product(const half *a, const half *b, float *c) {
    __shared__ alignas(16) half sa[16 * 16], sb[16 * 8];
    int t = threadIdx.x;
    for (int i = t; i < 256; i += 32) sa[i] = a[i];
    for (int i = t; i < 128; i += 32) sb[i] = b[i];
    __syncthreads();
    unsigned ra[4], rb[2];
    unsigned pa = (unsigned)__cvta_generic_to_shared(&sa[(t % 16) * 16 + (t / 16) * 8]);
    unsigned pb = (unsigned)__cvta_generic_to_shared(&sb[(t % 16) * 8]);
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0,%1,%2,%3}, [%4];"
        : "=r"(ra[0]), "=r"(ra[1]), "=r"(ra[2]), "=r"(ra[3]) : "r"(pa));
    asm volatile("ldmatrix.sync.aligned.m8n8.x2.trans.shared.b16 {%0,%1}, [%2];"
        : "=r"(rb[0]), "=r"(rb[1]) : "r"(pb));
    float d[4] = {0, 0, 0, 0};
    asm volatile("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0,%1,%2,%3},"
        "{%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};" : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
        : "r"(ra[0]), "r"(ra[1]), "r"(ra[2]), "r"(ra[3]), "r"(rb[0]), "r"(rb[1]));
    int row = t / 4, col = t % 4 * 2;
    c[row * 8 + col] = d[0]; c[row * 8 + col + 1] = d[1];
    c[(row + 8) * 8 + col] = d[2]; c[(row + 8) * 8 + col + 1] = d[3];
}
__global__ void tf32_product(const float *a, const float *b, float *c) {
    int t = threadIdx.x, g = t / 4, m = t % 4;
    unsigned a0 = __float_as_uint(a[g * 8 + m]), a1 = __float_as_uint(a[(g + 8) * 8 + m]);
    unsigned a2 = __float_as_uint(a[g * 8 + m + 4]), a3 = __float_as_uint(a[(g + 8) * 8 + m + 4]);
    unsigned b0 = __float_as_uint(b[m * 8 + g]), b1 = __float_as_uint(b[(m + 4) * 8 + g]);
    float d[4] = {0, 0, 0, 0};
    asm volatile("mma.sync.aligned.m16n8k8.row.col.f32.tf32.tf32.f32 {%0,%1,%2,%3},"
        "{%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};" : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
        : "r"(a0), "r"(a1), "r"(a2), "r"(a3), "r"(b0), "r"(b1));
    c[g * 8 + 2 * m] = d[0]; c[g * 8 + 2 * m + 1] = d[1];
    c[(g + 8) * 8 + 2 * m] = d[2]; c[(g + 8) * 8 + 2 * m + 1] = d[3];
}
__global__ void bf16_product(const unsigned *a, const unsigned *b, float *c) {
    int t = threadIdx.x, g = t / 4, m = t % 4;  // pairs of neighbours of a row of a, column of b
    unsigned a0 = a[g * 4 + m], a1 = a[(g + 8) * 4 + m], b0 = b[g * 4 + m];
    float d[4] = {1, 1, 1, 1};
    asm volatile("mma.sync.aligned.m16n8k8.row.col.f32.bf16.bf16.f32 {%0,%1,%2,%3},"
        "{%4,%5}, {%6}, {%0,%1,%2,%3};" : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
        : "r"(a0), "r"(a1), "r"(b0));
    c[g * 8 + 2 * m] = d[0]; c[g * 8 + 2 * m + 1] = d[1];
    c[(g + 8) * 8 + 2 * m] = d[2]; c[(g + 8) * 8 + 2 * m + 1] = d[3];
}
__global__ void wmma_half(const half *a, const half *b, half *c) {
    wmma::fragment<wmma::matrix_a, 32, 8, 16, half, wmma::col_major> fa;
    wmma::fragment<wmma::matrix_b, 32, 8, 16, half, wmma::row_major> fb;
    wmma::fragment<wmma::accumulator, 32, 8, 16, half> fc;
    wmma::load_matrix_sync(fc, c, 32, wmma::mem_col_major);
    wmma::load_matrix_sync(fa, a, 32);
    wmma::load_matrix_sync(fb, b, 8);
    wmma::mma_sync(fc, fa, fb, fc);
    wmma::store_matrix_sync(c, fc, 32, wmma::mem_col_major);
}
__global__ void last_block(const float *a, float *partial, unsigned *done, float *out) {
    __shared__ bool last;
    if (threadIdx.x == 0) {
        partial[blockIdx.x] = a[blockIdx.x] * 2.f;
        __threadfence();
        last = atomicAdd(done, 1) == gridDim.x - 1;
    }
    __syncthreads();
    if (last && threadIdx.x == 0) {
        float s = 0;
        for (int i = 0; i < gridDim.x; i++) s += partial[i];
        *out = s;
    }
}
__global__ void jump(int *out, const int *choice) {
    int v = choice[threadIdx.x];
    switch (v) {
    case 0: v = out[threadIdx.x] * 3; break;
    case 1: v = __popc(out[threadIdx.x]); break;
    case 2: v = __brev(out[threadIdx.x]); break;
    case 3: v = out[threadIdx.x] / 7; break;
    case 4: v = __clz(out[threadIdx.x]); break;
    case 5: v = out[threadIdx.x] ^ 0x55; break;
    case 6: v = -out[threadIdx.x]; break;
    default: v = -1;
    }
    out[threadIdx.x] = v;
}
__device__ __noinline__ float scaled(float x, Big big) { return x * big.values[(int)x & 7]; }
__global__ void structures(float *out, Big big) {
    out[threadIdx.x] = scaled(scaled(threadIdx.x, big), big);
}
__global__ void vote_all(const int *a, int *out) {
    int v = a[threadIdx.x];
    int both = __syncthreads_and(v > 0) * 2 + __syncthreads_or(v > 5);
    unsigned same = __match_any_sync(~0u, v & 3);
    int least = __reduce_min_sync(~0u, v);
    out[threadIdx.x] = both + 10 * __popc(same) + 1000 * least + 100000 * __any_sync(~0u, v == 7);
}
__global__ void half_relu(const half2 *a, half2 *c, half2 k) {
    c[threadIdx.x] = __hmax2(__hfma2(a[threadIdx.x], k, k), __float2half2_rn(0.f));
}
__global__ void tile_sum(const int *a, int *out) {
    namespace cg = cooperative_groups;
    auto tile = cg::tiled_partition<8>(cg::this_thread_block());
    int v = a[threadIdx.x];
    for (int d = 4; d; d >>= 1) v += tile.shfl_down(v, d);
    if (tile.thread_rank() == 0) out[threadIdx.x / 8] = v;
    cg::this_thread_block().sync();
}
"""


@pytest.fixture(scope="module")
def module() -> Module:
    return compile_ptx(SOURCE)


def randoms(*shape: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).standard_normal(shape).astype(np.float32)


def test_coalesced_addition_counts(module: Module) -> None:
    a, b, c = randoms(1000), randoms(1000, seed=1), np.zeros(1000, np.float32)
    result, (*_, got) = execute(module, "add", 4, 256, a, b, c, 1000, outputs=(2,))
    np.testing.assert_array_equal(got, a + b)
    assert result.reports == () and not result.timed_out
    # 1000 elements: 31 full warps and one of 8 lanes; two loads each; 4000 bytes are 125 sectors.
    assert counted(module, result, "ld", "global_requests", "global") == 64
    assert counted(module, result, "ld", "sectors", "global") == 250
    assert counted(module, result, "ld", "lines", "global") == 64
    assert counted(module, result, "ld", "bytes", "global") == 8000
    assert counted(module, result, "st", "sectors", "global") == 125
    assert counted(module, result, "bra", "divergent") == 1
    assert counted(module, result, "add", "threads", "f32") == 1000
    uses = result.uses.values()
    read = [use for use in uses if use.read_sectors]
    assert [use.read_sectors for use in read] == [125, 125]
    assert all(use.read_range == (use.start, use.start + 4000) for use in read)
    assert [use.written_sectors for use in uses if use.written_sectors] == [125]


@pytest.mark.parametrize("stride, sectors, lines", [(1, 4, 1), (2, 8, 2), (8, 32, 8), (32, 32, 32)])
def test_strided_access_counts(module: Module, stride: int, sectors: int, lines: int) -> None:
    a, c = randoms(32 * stride), np.zeros(32 * stride, np.float32)
    result, (_, got) = execute(module, "strided", 1, 32, a, c, stride)
    np.testing.assert_array_equal(got[::stride], a[::stride])
    assert counted(module, result, "ld", "sectors", "global") == sectors
    assert counted(module, result, "ld", "lines", "global") == lines
    assert counted(module, result, "ld", "bytes", "global") == 128


def test_vector_and_broadcast_access_counts(module: Module) -> None:
    a, c = randoms(128), np.zeros(128, np.float32)
    result, (_, got) = execute(module, "vectorised", 1, 32, a, c)
    np.testing.assert_array_equal(got, a + np.tile(np.float32([1, 2, 3, 4]), 32))
    assert counted(module, result, "ld", "global_requests", "global") == 1
    assert counted(module, result, "ld", "sectors", "global") == 16
    assert counted(module, result, "ld", "lines", "global") == 4
    result, _ = execute(module, "broadcast", 1, 64, randoms(2), np.zeros(64, np.float32))
    assert counted(module, result, "ld", "sectors", "global") == 2


@pytest.mark.parametrize("stride, wavefronts", [(1, 1), (2, 2), (32, 32), (33, 1)])
def test_bank_conflicts(module: Module, stride: int, wavefronts: int) -> None:
    a, c = randoms(32), np.zeros(32, np.float32)
    result, (_, got) = execute(module, f"_Z5banksILi{stride}EEvPKfPf", 1, 32, a, c)
    np.testing.assert_array_equal(got, a + 1)
    for opcode in ("ld", "st"):
        assert counted(module, result, opcode, "shared_requests") == 1
        assert counted(module, result, opcode, "shared_wavefronts") == wavefronts
        assert counted(module, result, opcode, "shared_wavefronts_ideal") == 1


@pytest.mark.parametrize("step, wavefronts, ideal", [(1, 4, 4), (0, 2, 2), (2, 8, 4), (8, 8, 2)])
def test_wide_shared_loads(module: Module, step: int, wavefronts: int, ideal: int) -> None:
    """A 16-byte load is two half-warps; each of the 8 bank groups serves one chunk at a time.

    Step 1: 16 chunks a half, two on each group. Step 0, a broadcast: one. Step 2: 16 chunks on
    four groups, so four each. Step 8: chunks 0, 8, 16 and 24, all on one group.
    """
    a, c = randoms(128), np.zeros(128, np.float32)
    result, (_, got) = execute(module, "wide_shared", 1, 32, a, c, step)
    np.testing.assert_array_equal(got, a.reshape(32, 4)[(np.arange(32) * step) & 31].ravel())
    assert counted(module, result, "ld", "shared_wavefronts") == wavefronts
    assert counted(module, result, "ld", "shared_wavefronts_ideal") == ideal


def test_reduction_with_atomics(module: Module) -> None:
    a = randoms(3000)
    result, (_, got) = execute(module, "block_sum", 12, 256, a, np.zeros(1, np.float32), 3000)
    np.testing.assert_allclose(got[0], a.sum(), rtol=1e-4)
    assert result.reports == ()
    assert counted(module, result, "atom", "atomic_lanes") + counted(
        module, result, "red", "atomic_lanes") == 12  # fmt: skip
    assert result.hottest_atomic_sector == 12


def test_softmax_with_shuffles(module: Module) -> None:
    x = randoms(6, 100)
    result, (_, got) = execute(
        module, "softmax_rows", 6, 32, x, np.zeros_like(x), 100, outputs=(1,)
    )
    e = np.exp(x - x.max(1, keepdims=True))
    np.testing.assert_allclose(got, e / e.sum(1, keepdims=True), rtol=1e-5)
    assert result.reports == ()


@pytest.mark.parametrize("seed", [0, 1, 2])
def test_tiled_product(module: Module, seed: int) -> None:
    n = 64
    a, b = randoms(n, n), randoms(n, n, seed=1)
    result, (*_, got) = execute(
        module, "_Z6matmulILi16EEvPKfS1_Pfi", (4, 4, 1), (16, 16, 1), a, b, np.zeros_like(a), n,
        outputs=(2,), seed=seed,
    )  # fmt: skip
    np.testing.assert_allclose(got, a @ b, rtol=1e-4, atol=1e-4)
    assert result.reports == ()


def test_calls_locals_structures_and_constants(module: Module) -> None:
    a, big = randoms(32), np.arange(10, 18, dtype=np.int32)
    d, out = np.zeros(32), np.zeros(32, np.int32)
    wrapped = np.frombuffer(big.tobytes(), dtype=np.dtype("V32"))[0]
    result, (_, got_d, got) = execute(module, "misc", 1, 32, a, d, out, wrapped, 3)
    i = np.arange(32)
    c = np.array([1, 2, 3, 4], np.float32)[i & 3]
    r = (a * c + np.sin(a)).astype(np.float64)
    np.testing.assert_allclose(got_d, r + i**1.5, rtol=1e-5)
    local = big[(1 + i) & 7]  # local[3] was written by j = 1: 1 * 3 & 7
    want = local + big[i & 7] + 1000000007 * (i + 1) % 97 + 16 + 7 + 1 + 5000
    np.testing.assert_array_equal(got, want)
    assert result.reports == ()
    assert int(result.counters["local_requests"].sum()) > 0


def test_divergent_loop(module: Module) -> None:
    result, (got,) = execute(module, "divergent", 1, 64, np.zeros(64, np.int32), 0)

    def steps(v: int) -> int:
        count = 0
        while v != 1:
            v, count = (3 * v + 1 if v & 1 else v // 2), count + 1
        return count

    np.testing.assert_array_equal(got, [steps(i + 1) for i in range(64)])
    assert int(result.counters["active_threads"].sum()) < 32 * int(result.counters["warps"].sum())


def test_atomics(module: Module) -> None:
    keys = np.random.default_rng(0).integers(0, 8, 500).astype(np.int32)
    bins, sums = np.zeros(16, np.int32), np.zeros(8, np.float32)
    pairs = np.zeros(16, np.float16)
    result, (_, got, got_sums, got_pairs) = execute(
        module, "histogram", 4, 128, keys, bins, sums, pairs, 500
    )
    counts = np.bincount(keys, minlength=8)
    np.testing.assert_array_equal(got[:8], counts)
    np.testing.assert_array_equal(got_sums, counts * 0.5)
    np.testing.assert_array_equal(got_pairs[::2], counts)
    np.testing.assert_array_equal(got_pairs[1::2], 2 * counts)
    assert got[8] == 499 and got[9] == got[10] + 1
    assert result.reports == ()


def test_asynchronous_copy(module: Module) -> None:
    a = randoms(256)
    result, (_, got) = execute(module, "copy_async", 1, 64, a, np.zeros(256, np.float32))
    np.testing.assert_array_equal(got, a[::-1])
    assert result.reports == ()


def test_tensor_core_products(module: Module) -> None:
    a, b = randoms(16, 32).astype(np.float16), randoms(16, 32, seed=1).astype(np.float16)
    result, (*_, got) = execute(
        module, "wmma_product", 1, 32, a, b, np.zeros((16, 16), np.float32), 16
    )
    want = 2 * (1 + a.astype(np.float32) @ b.astype(np.float32).T)
    np.testing.assert_allclose(got, want, rtol=1e-5, atol=1e-5)
    assert result.reports == ()
    # Measured on an H200: a 16 x 16 f16 load is 4 requests of 8 sectors.
    load = next(i.index for i in module.instructions if i.text.startswith("wmma.load.a"))
    row = result.counters[load]
    assert (
        row["global_requests"] == 4 * row["warps"] and row["sectors"] == 8 * row["global_requests"]
    )

    a, b = randoms(16, 16).astype(np.float16), randoms(16, 8, seed=1).astype(np.float16)
    result, (*_, got) = execute(module, "mma_product", 1, 32, a, b, np.zeros((16, 8), np.float32))
    np.testing.assert_allclose(
        got, a.astype(np.float32) @ b.astype(np.float32), rtol=1e-4, atol=1e-5
    )
    assert result.reports == ()

    a, b = randoms(16, 8), randoms(8, 8, seed=1)
    _, (*_, got) = execute(module, "tf32_product", 1, 32, a, b, np.zeros((16, 8), np.float32))
    np.testing.assert_allclose(got, a @ b, rtol=1e-2, atol=1e-2)


def test_other_tensor_core_shapes(module: Module) -> None:
    a, b = randoms(16, 8), randoms(8, 8, seed=1)
    top = [(x.view(np.uint32) >> 16).astype(np.uint16) for x in (a, np.ascontiguousarray(b.T))]
    cut = [(x.astype(np.uint32) << 16).view(np.float32) for x in top]
    _, (*_, got) = execute(
        module, "bf16_product", 1, 32, top[0].view(np.uint32), top[1].view(np.uint32),
        np.zeros((16, 8), np.float32),
    )  # fmt: skip
    np.testing.assert_allclose(got, 1 + cut[0] @ cut[1].T, rtol=1e-5, atol=1e-5)

    a, b = randoms(16, 32).astype(np.float16), randoms(16, 8, seed=1).astype(np.float16)
    c = randoms(8, 32, seed=2).astype(np.float16)
    result, (*_, got) = execute(module, "wmma_half", 1, 32, a, b, c)
    want = c.astype(np.float32).T + a.astype(np.float32).T @ b.astype(np.float32)
    np.testing.assert_allclose(got.T, want, rtol=1e-2, atol=1e-2)
    assert result.reports == ()


def test_last_block_pattern_is_no_race(module: Module) -> None:
    a = randoms(20)
    result, (*_, got) = execute(
        module, "last_block", 20, 32, a, np.zeros(20, np.float32), np.zeros(1, np.uint32),
        np.zeros(1, np.float32), outputs=(1, 3),
    )  # fmt: skip
    np.testing.assert_allclose(got, [2 * a.sum()], rtol=1e-5)
    assert result.reports == ()


def test_halves_and_groups(module: Module) -> None:
    a = randoms(64).astype(np.float16)
    k = np.array([0.5, 0.5], np.float16)
    _, (_, got) = execute(module, "half_relu", 1, 32, a, np.zeros(64, np.float16), k.view("V4")[0])
    want = np.maximum((a.astype(np.float64) * 0.5 + 0.5).astype(np.float16), np.float16(0))
    np.testing.assert_array_equal(got, want)
    values = np.arange(64, dtype=np.int32)
    result, (_, got) = execute(module, "tile_sum", 1, 64, values, np.zeros(8, np.int32))
    np.testing.assert_array_equal(got, values.reshape(8, 8).sum(1))
    assert kinds(result) == set()


def test_switch(module: Module) -> None:
    random = np.random.default_rng(0)
    values = random.integers(1, 2**30, 64).astype(np.int32)
    choice = random.integers(0, 9, 64).astype(np.int32)
    result, (got, _) = execute(module, "jump", 1, 64, values, choice)

    def expected(v: int, c: int) -> int:
        reverse = int(f"{v:032b}"[::-1], 2)
        cases = [v * 3, v.bit_count(), reverse, v // 7, 32 - v.bit_length(), v ^ 0x55, -v, -1, -1]
        return (cases[c] + 2**31) % 2**32 - 2**31

    want = [expected(int(v), int(c)) for v, c in zip(values, choice, strict=True)]
    np.testing.assert_array_equal(got, want)
    assert result.reports == ()


def test_structures_by_value(module: Module) -> None:
    big = np.arange(1, 9, dtype=np.int32)
    wrapped = np.frombuffer(big.tobytes(), dtype=np.dtype("V32"))[0]
    result, (got,) = execute(module, "structures", 1, 32, np.zeros(32, np.float32), wrapped)
    once = np.arange(32) * big[np.arange(32) & 7]
    np.testing.assert_array_equal(got, once * big[once & 7])
    assert result.reports == ()


def test_votes_and_reductions(module: Module) -> None:
    a = np.random.default_rng(0).integers(1, 5, 64).astype(np.int32)
    result, (_, got) = execute(module, "vote_all", 1, 64, a, np.zeros(64, np.int32))
    warps = a.reshape(2, 32)
    same = (warps[:, :, None] & 3 == warps[:, None, :] & 3).sum(2)
    want = 2 + 10 * same + 1000 * warps.min(1, keepdims=True)
    np.testing.assert_array_equal(got.reshape(2, 32), want)
    assert result.reports == ()


def test_unsupported_instruction_is_named_with_its_line() -> None:
    source = (
        '__global__ void k(int *p) {\n  asm volatile("wgmma.fence.sync.aligned;");\n  p[0] = 1;\n}'
    )
    module = compile_ptx(source, "sm_90a")
    with pytest.raises(UnsupportedInstruction) as caught:
        execute(module, "k", 1, 32, np.zeros(1, np.int32))
    assert "wgmma.fence.sync.aligned" in caught.value.text and caught.value.line == 2
    other = "\n".join([".version 8.3", ".target sm_90", ".visible .entry k() {",
                       ".reg .b32 %r<2>;", "add.s32.wobble %r1, 1, 2;", "ret;", "}"])  # fmt: skip
    with pytest.raises(UnsupportedInstruction, match="wobble"):
        execute(parse(other), "k", 1, 32)


def test_threads_do_not_change_the_result(module: Module) -> None:
    a, b = randoms(64, 64), randoms(64, 64, seed=1)
    results = [
        execute(module, "_Z6matmulILi16EEvPKfS1_Pfi", (4, 4, 1), (16, 16, 1), a, b,
                np.zeros_like(a), 64, checks=False, threads=threads, trace=True)
        for threads in (1, 3)
    ]  # fmt: skip
    (one, one_out), (three, three_out) = results
    np.testing.assert_array_equal(one_out[2], three_out[2])
    np.testing.assert_array_equal(one.counters, three.counters)

    def facts(result):
        uses = result.uses.values()
        base = min(use.start for use in uses)
        return [(u.read_sectors, u.written_sectors, u.block_read_sectors, u.block_written_sectors,
                 u.read_range and u.read_range[0] - base) for u in uses]  # fmt: skip

    assert facts(one) == facts(three)
    assert one.trace.blocks == three.trace.blocks
    np.testing.assert_array_equal(one.trace.records, three.trace.records)


def test_chosen_blocks_only(module: Module) -> None:
    a, c = randoms(1024), np.zeros(1024, np.float32)
    result, (*_, got) = execute(module, "add", 4, 256, a, a, c, 1024, blocks=[2])
    np.testing.assert_array_equal(got[512:768], 2 * a[512:768])
    assert not got[:512].any() and result.blocks == 1
    path = [module.instructions[i].opcode for i in result.first_warp_path]
    assert path[-1] == "ret" and path.count("st") == 1


def test_cache_replay(module: Module) -> None:
    """Two blocks that read the same rows: the second finds them in L1, unless L1 is tiny."""
    a, b = randoms(64, 64), randoms(64, 64, seed=1)
    result, _ = execute(
        module, "_Z6matmulILi16EEvPKfS1_Pfi", (4, 4, 1), (16, 16, 1), a, b, np.zeros_like(a), 64,
        checks=False, trace=True, blocks=[0, 1],
    )  # fmt: skip
    count = len(module.instructions)
    big = replay_l1([result.trace], 128 * 1024, count)
    assert int(big.sectors.sum()) == int(result.counters["sectors"].sum())
    # A rows are shared by the two blocks (512 sectors, read twice); B tiles are not (2 x 128 x 8).
    loads = int(result.counters["sectors"].sum()) - 2 * 32
    distinct = 16 * 8 + 64 * 4
    assert int(big.hits.sum()) == loads - distinct
    alone = replay_l1([result.trace.select([0])], 128 * 1024, count)
    assert int(alone.hits.sum()) == loads // 2 - (16 * 8 + 64 * 2)
    tiny = replay_l1([result.trace], 256, count, ways=1)
    assert int(tiny.hits.sum()) < int(big.hits.sum())


def test_maps_may_be_larger_than_the_machine() -> None:
    total = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    mapped = core.untouched(4 * total)
    assert len(mapped) == 4 * total and mapped[-1] == 0
