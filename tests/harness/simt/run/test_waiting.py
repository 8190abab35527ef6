"""Threads, warps and blocks that wait for each other: barriers, spinning, deadlock."""

from __future__ import annotations

import numpy as np
import pytest
from simt_support import compile_ptx, execute, kinds

from kernelblaster.harness.simt.ptx.parser import Module
from kernelblaster.harness.simt.run.core import Result

SOURCE = r"""
#include <cooperative_groups.h>
#include <cuda/barrier>
#include <cuda/pipeline>
namespace cg = cooperative_groups;

__global__ void grid_sync(int *a, int *b, int rounds) {
    auto grid = cg::this_grid();
    int i = grid.thread_rank(), n = grid.size();
    for (int r = 0; r < rounds; r++) {
        b[i] = a[(i + 1) % n] + 1;
        grid.sync();
        a[i] = b[(i + n - 1) % n] * 2;
        grid.sync();
    }
}
__global__ void waits_for_the_next_block(volatile int *flags, int *out) {
    int b = blockIdx.x;
    if (threadIdx.x == 0) {
        if (b + 1 < gridDim.x) while (flags[b + 1] == 0) { }
        __threadfence();
        out[b] = b + 1 < gridDim.x ? out[b + 1] + 1 : 1;
        __threadfence();
        flags[b] = 1;
    }
}
__global__ void never(volatile int *flag, int *out) {
    while (*flag == 0) { }
    out[threadIdx.x] = 1;
}
__global__ void spin_lock_in_a_warp(int *lock, int *sum) {
    while (atomicCAS(lock, 0, 1) != 0) { }
    *(volatile int *)sum = *(volatile int *)sum + threadIdx.x;
    __threadfence();
    atomicExch(lock, 0);
    __syncwarp();
    atomicAdd(sum + 1, 1);
}
__device__ __forceinline__ void named_sync(int id, int n) {
    asm volatile("bar.sync %0, %1;" :: "r"(id), "r"(n) : "memory");
}
__device__ __forceinline__ void named_arrive(int id, int n) {
    asm volatile("bar.arrive %0, %1;" :: "r"(id), "r"(n) : "memory");
}
// One warp produces, two consume; full barriers 1 and 2, empty barriers 3 and 4.
template <bool GUARDED> __device__ void pass_tiles(const int *x, int *out, int tiles) {
    __shared__ int stage[2][64];
    int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
    if (warp == 0) {
        for (int t = 0; t < tiles; t++) {
            int s = t & 1;
            if (GUARDED && t >= 2) named_sync(3 + s, 96);
            stage[s][lane] = x[64 * t + lane];
            stage[s][lane + 32] = x[64 * t + 32 + lane];
            __threadfence_block();
            named_arrive(1 + s, 96);
        }
    } else {
        int sum = 0;
        for (int t = 0; t < tiles; t++) {
            int s = t & 1;
            named_sync(1 + s, 96);
            sum += stage[s][threadIdx.x - 32] * (t + 1);
            if (GUARDED && t + 2 < tiles) named_arrive(3 + s, 96);
        }
        out[threadIdx.x - 32] = sum;
    }
}
__global__ void producer_consumer(const int *x, int *out, int n) { pass_tiles<true>(x, out, n); }
__global__ void hasty_producer(const int *x, int *out, int n) { pass_tiles<false>(x, out, n); }
__global__ void two_halves(int *out) {
    __shared__ int s[128];
    int half = threadIdx.x / 64, t = threadIdx.x % 64;
    s[threadIdx.x] = threadIdx.x;
    named_sync(1 + half, 64);
    out[threadIdx.x] = s[64 * half + (t + 33) % 64];
}
__global__ void no_barrier_between_halves(int *out) {
    __shared__ int s[128];
    s[threadIdx.x] = threadIdx.x;
    named_sync(1 + threadIdx.x / 64, 64);
    out[threadIdx.x] = s[(threadIdx.x + 64) % 128];
}
__global__ void too_few_arrive(int *out) {
    if (threadIdx.x < 32) named_sync(1, 64);
    out[threadIdx.x] = 1;
}
__global__ void mbarrier_pipeline(const float *x, float *out, int tiles) {
    using barrier = cuda::barrier<cuda::thread_scope_block>;
    __shared__ float stage[2][32];
    __shared__ barrier full[2], empty[2];
    if (threadIdx.x == 0)
        for (int s = 0; s < 2; s++) { init(&full[s], 64); init(&empty[s], 64); }
    __syncthreads();
    int lane = threadIdx.x % 32;
    if (threadIdx.x < 32) {
        for (int t = 0; t < tiles; t++) {
            int s = t & 1;
            if (t >= 2) empty[s].arrive_and_wait();
            stage[s][lane] = x[32 * t + lane];
            auto token = full[s].arrive();
            (void)token;
        }
    } else {
        float sum = 0;
        for (int t = 0; t < tiles; t++) {
            int s = t & 1;
            full[s].arrive_and_wait();
            sum += stage[s][31 - lane];
            if (t + 2 < tiles) { auto token = empty[s].arrive(); (void)token; }
        }
        out[lane] = sum;
    }
}
__global__ void pipelined_copy(const int4 *x, int4 *out, int tiles) {
    constexpr int STAGES = 3;
    __shared__ int4 stage[STAGES][64];
    __shared__ cuda::pipeline_shared_state<cuda::thread_scope_block, STAGES> state;
    auto block = cg::this_thread_block();
    auto pipe = cuda::make_pipeline(block, &state);
    int fetched = 0;
    for (int t = 0; t < tiles; t++) {
        for (; fetched < tiles && fetched < t + STAGES; fetched++) {
            pipe.producer_acquire();
            cuda::memcpy_async(&stage[fetched % STAGES][threadIdx.x],
                               &x[64 * fetched + threadIdx.x],
                               cuda::aligned_size_t<16>(16), pipe);
            pipe.producer_commit();
        }
        pipe.consumer_wait();
        int4 v = stage[t % STAGES][63 - threadIdx.x];
        out[64 * t + threadIdx.x] = v;
        pipe.consumer_release();
    }
}
__global__ void look_back(const int *x, int *out, unsigned *state, int *ticket) {
    __shared__ int tile, prefix;
    if (threadIdx.x == 0) tile = atomicAdd(ticket, 1);
    __syncthreads();
    int v = x[tile * 32 + threadIdx.x], s = v;
    for (int d = 1; d < 32; d *= 2) {
        int o = __shfl_up_sync(~0u, s, d);
        if (threadIdx.x >= d) s += o;
    }
    int total = __shfl_sync(~0u, s, 31);
    if (threadIdx.x == 0) {
        volatile unsigned *v = state;
        v[tile] = (unsigned)total << 2 | 1;
        int sum = 0;
        for (int before = tile - 1; before >= 0; before--) {
            unsigned seen;
            do { seen = v[before]; } while ((seen & 3) == 0);
            sum += seen >> 2;
            if (seen & 2) break;
        }
        v[tile] = (unsigned)(sum + total) << 2 | 2;
        prefix = sum;
    }
    __syncthreads();
    out[tile * 32 + threadIdx.x] = s + prefix;
}
__global__ void flag_in_shared(int *out) {
    __shared__ volatile int ready;
    __shared__ int value[32];
    if (threadIdx.x == 0) ready = 0;
    __syncthreads();
    if (threadIdx.x >= 32) {
        value[threadIdx.x - 32] = threadIdx.x * 3;
        __threadfence_block();
        __syncwarp();
        if (threadIdx.x == 32) ready = 1;
    } else {
        while (ready == 0) { }
        __threadfence_block();
        out[threadIdx.x] = value[31 - threadIdx.x];
    }
}
"""


@pytest.fixture(scope="module")
def module() -> Module:
    return compile_ptx(SOURCE)


def faults(result: Result) -> set[str]:
    return kinds(result) - {"race_benign"}


@pytest.mark.parametrize("seed", [0, 7])
def test_the_grid_waits_for_itself(module: Module, seed: int) -> None:
    a, b = np.arange(6 * 64, dtype=np.int32), np.zeros(384, np.int32)
    workspace = np.zeros(64, np.int32)
    expected, other = a.copy(), b.copy()
    for _ in range(3):
        other = np.roll(expected, -1) + 1
        expected = np.roll(other, 1) * 2
    result, found = execute(module, "grid_sync", 6, 64, a, b, 3, workspace, seed=seed,
                            grid_workspace=2)  # fmt: skip
    np.testing.assert_array_equal(found[0], expected)
    assert not faults(result), result.reports


def test_without_a_cooperative_launch_the_grid_cannot_wait(module: Module) -> None:
    a = np.zeros(64, np.int32)
    result, _ = execute(module, "grid_sync", 1, 64, a, a, 1)
    assert faults(result) == {"trap"}


def test_a_block_may_wait_for_a_later_one(module: Module) -> None:
    flags, out = np.zeros(20, np.int32), np.zeros(20, np.int32)
    result, found = execute(module, "waits_for_the_next_block", 20, 32, flags, out)
    np.testing.assert_array_equal(found[1], np.arange(20, 0, -1))
    assert not faults(result), result.reports


def test_blocks_that_are_not_resident_together_cannot_wait_for_each_other(module: Module) -> None:
    flags, out = np.zeros(20, np.int32), np.zeros(20, np.int32)
    result, _ = execute(module, "waits_for_the_next_block", 20, 32, flags, out, resident_blocks=8,
                        max_instructions=100_000)  # fmt: skip
    assert result.timed_out
    (report,) = result.reports
    assert "never changes" in report.detail and report.line


def test_spinning_for_ever_ends_with_a_report(module: Module) -> None:
    result, _ = execute(module, "never", 2, 64, np.zeros(1, np.int32), np.zeros(64, np.int32),
                        max_instructions=100_000)  # fmt: skip
    assert result.timed_out
    assert "never changes" in result.reports[0].detail
    assert "ld.volatile" in result.reports[0].instruction


def test_lanes_of_a_warp_take_a_lock_one_by_one(module: Module) -> None:
    result, found = execute(module, "spin_lock_in_a_warp", 2, 64, np.zeros(1, np.int32),
                            np.zeros(2, np.int32), max_instructions=2_000_000)  # fmt: skip
    np.testing.assert_array_equal(found[1], [2 * sum(range(64)), 128])
    assert not result.timed_out


@pytest.mark.parametrize("seed", [0, 3])
def test_named_barriers_join_producers_and_consumers(module: Module, seed: int) -> None:
    x = np.arange(64 * 7, dtype=np.int32)
    result, found = execute(module, "producer_consumer", 1, 96, x, np.zeros(64, np.int32), 7,
                            seed=seed)  # fmt: skip
    expected = (x.reshape(7, 64) * np.arange(1, 8)[:, None]).sum(axis=0)
    np.testing.assert_array_equal(found[1], expected)
    assert not faults(result), result.reports


def test_a_producer_that_does_not_wait_for_empty_stages_is_caught(module: Module) -> None:
    x = np.arange(64 * 7, dtype=np.int32)
    result, _ = execute(module, "hasty_producer", 1, 96, x, np.zeros(64, np.int32), 7)
    assert faults(result)  # it arrives twice where once is awaited: a deadlock


def test_halves_of_a_block_wait_by_themselves(module: Module) -> None:
    result, found = execute(module, "two_halves", 1, 128, np.zeros(128, np.int32))
    t = np.arange(128)
    np.testing.assert_array_equal(found[0], 64 * (t // 64) + (t % 64 + 33) % 64)
    assert not faults(result), result.reports
    result, _ = execute(module, "no_barrier_between_halves", 1, 128, np.zeros(128, np.int32))
    assert "race" in kinds(result) or "uninitialized_read" in kinds(result)


def test_a_barrier_that_waits_for_ever_is_a_deadlock(module: Module) -> None:
    result, _ = execute(module, "too_few_arrive", 1, 64, np.zeros(64, np.int32))
    (report,) = result.reports
    assert str(report.kind) == "barrier_divergence"
    assert "deadlock: barrier 1" in report.detail
    assert report.line


@pytest.mark.parametrize("seed", [0, 5])
@pytest.mark.parametrize("arch", ["sm_80", "sm_90"])
def test_barrier_objects_join_producers_and_consumers(arch: str, seed: int) -> None:
    x = np.arange(32 * 9, dtype=np.float32)
    result, found = execute(compile_ptx(SOURCE, arch), "mbarrier_pipeline", 1, 64, x,
                            np.zeros(32, np.float32), 9, seed=seed)  # fmt: skip
    np.testing.assert_array_equal(found[1], x.reshape(9, 32).sum(axis=0)[::-1])
    assert not faults(result), result.reports


@pytest.mark.parametrize("arch", ["sm_80", "sm_90"])
def test_a_pipeline_of_asynchronous_copies(arch: str) -> None:
    x = np.arange(64 * 4 * 5, dtype=np.int32)
    result, found = execute(compile_ptx(SOURCE, arch), "pipelined_copy", 1, 64, x,
                            np.zeros_like(x), 5)  # fmt: skip
    np.testing.assert_array_equal(found[1].reshape(5, 64, 4), x.reshape(5, 64, 4)[:, ::-1])
    assert not faults(result), result.reports


def test_single_pass_scan_by_look_back(module: Module) -> None:
    x = np.arange(40 * 32, dtype=np.int32) % 17
    result, found = execute(module, "look_back", 40, 32, x, np.zeros_like(x),
                            np.zeros(40, np.uint32), np.zeros(1, np.int32))  # fmt: skip
    np.testing.assert_array_equal(found[1], np.cumsum(x))
    assert not faults(result), result.reports


@pytest.mark.parametrize("seed", [0, 2, 9])
def test_a_flag_in_shared_memory_orders_warps(module: Module, seed: int) -> None:
    result, found = execute(module, "flag_in_shared", 1, 64, np.zeros(32, np.int32), seed=seed)
    np.testing.assert_array_equal(found[0], (63 - np.arange(32)) * 3)
    assert not faults(result), result.reports


ADD_BY_EXCHANGE = r"""
__device__ void add(float *at, float v) {
    int *word = (int *)at, seen = *word, expected;
    do {
        expected = seen;
        seen = atomicCAS(word, expected, __float_as_int(__int_as_float(expected) + v));
    } while (seen != expected);
}
__global__ void added(const float *x, float *out) {
    __shared__ float sum;
    if (threadIdx.x == 0) sum = 0;
    __syncthreads();
    add(&sum, x[threadIdx.x]);
    add(out, x[threadIdx.x]);
    __syncthreads();
    if (threadIdx.x == 0) out[1 + blockIdx.x] = sum;
}
__global__ void looked_at(int *counter, int *out) {
    atomicAdd(counter, 1);
    out[blockIdx.x * 64 + threadIdx.x] = *counter;
}
"""


def test_addition_by_compare_and_swap_is_no_race_but_a_bare_look_is() -> None:
    module = compile_ptx(ADD_BY_EXCHANGE)
    x = np.arange(64, dtype=np.float32)
    result, found = execute(module, "added", 2, 64, x, np.zeros(3, np.float32))
    np.testing.assert_array_equal(found[1], [2 * x.sum(), x.sum(), x.sum()])
    assert not faults(result), result.reports
    result, _ = execute(module, "looked_at", 2, 64, np.zeros(1, np.int32), np.zeros(128, np.int32))
    assert "race" in kinds(result)
