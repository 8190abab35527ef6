"""Every check of the simulated GPU: the seeded fault is reported, its clean twin is silent."""

from __future__ import annotations

import numpy as np
import pytest
from simt_support import compile_ptx, execute, kinds

from kernelblaster.harness.simt.ptx.parser import Module
from kernelblaster.harness.simt.run.core import Result

SOURCE = r"""
#include <cassert>
__global__ void bounds(const float *a, float *c, int n) {
    int i = blockIdx.x * 32 + threadIdx.x;
    if (i < n) c[i] = a[i];
}
__global__ void misaligned(const float *a, float *c, int shift) {
    c[threadIdx.x] = *(const float *)((const char *)a + 4 * threadIdx.x + shift);
}
__global__ void shared_bounds(float *c, int n) {
    extern __shared__ float s[];
    s[threadIdx.x] = 1.f;
    __syncthreads();
    c[threadIdx.x] = s[threadIdx.x + n];
}
__global__ void shared_unset(float *c, int n) {
    __shared__ float s[64];
    if (threadIdx.x < n) s[threadIdx.x] = 1.f;
    __syncthreads();
    c[threadIdx.x] = s[threadIdx.x];
}
__global__ void global_unset(const float *a, float *scratch, float *c, int n) {
    if (threadIdx.x < n) scratch[threadIdx.x] = a[threadIdx.x];
    __syncthreads();
    c[threadIdx.x] = scratch[threadIdx.x];
}
template <bool BARRIER> __global__ void reverse(const float *a, float *c) {
    __shared__ float s[128];
    s[threadIdx.x] = a[threadIdx.x];
    if (BARRIER) __syncthreads();
    c[threadIdx.x] = s[127 - threadIdx.x];
}
template __global__ void reverse<true>(const float *, float *);
template __global__ void reverse<false>(const float *, float *);
template <bool BARRIER> __global__ void overwrite(float *c) {
    __shared__ float s[128];
    s[threadIdx.x] = 1.f;
    __syncthreads();
    float v = s[127 - threadIdx.x];
    if (BARRIER) __syncthreads();
    s[threadIdx.x] = v + threadIdx.x;
    __syncthreads();
    c[threadIdx.x] = s[threadIdx.x];
}
template __global__ void overwrite<true>(float *);
template __global__ void overwrite<false>(float *);
__global__ void flag(float *c, int same) {
    __shared__ int found;
    found = same ? 1 : threadIdx.x / 32;
    __syncthreads();
    c[threadIdx.x] = found;
}
__global__ void one_store(float *c, int same) {
    c[0] = same ? 1.f : (float)threadIdx.x;
}
__global__ void across_blocks(const float *a, float *c, int write_shared_place) {
    c[write_shared_place ? 0 : blockIdx.x] = a[0] + blockIdx.x;
}
__global__ void neighbour(float *a, int reach) {
    int i = blockIdx.x * 32 + threadIdx.x;
    float v = i + reach < gridDim.x * 32 ? a[i + reach] : 0.f;
    a[i] = v + 1.f;
}
__global__ void zero_then_add(float *out, int zero) {
    if (zero && blockIdx.x == 0 && threadIdx.x == 0) out[0] = 0.f;
    __syncthreads();
    if (threadIdx.x == 0) atomicAdd(out, 1.f);
}
__global__ void unfenced(const float *a, float *partial, unsigned *done, float *out) {
    __shared__ bool last;
    if (threadIdx.x == 0) {
        partial[blockIdx.x] = a[blockIdx.x];
        last = atomicAdd(done, 1) == gridDim.x - 1;
    }
    __syncthreads();
    if (last && threadIdx.x == 0)
        for (int i = 0; i < gridDim.x; i++) out[0] += partial[i];
}
__global__ void two_barriers(float *c, int split) {
    float *p = c + threadIdx.x;
    if (threadIdx.x < split) { *p = 1.f; asm volatile("bar.sync 0;"); *p = 2.f; }
    else { *p = 3.f; asm volatile("bar.sync 0;"); }
}
__global__ void shuffle(float *c, int active) {
    float v = threadIdx.x;
    if (threadIdx.x < active) v = __shfl_down_sync(active == 32 ? ~0u : (1u << active) - 1, v, 1);
    c[threadIdx.x] = v;
}
__global__ void stops(float *c, int bad) {
    if (bad && threadIdx.x == 5) __trap();
    c[threadIdx.x] = 1.f;
}
__global__ void asserts(float *c, int bad) {
    assert(!(bad && threadIdx.x == 5));
    c[threadIdx.x] = 1.f;
}
__global__ void spin(volatile int *flag) { while (*flag == 0) {} }
__global__ void wait_for_warp(volatile int *flag, float *c) {
    if (threadIdx.x < 32) { while (*flag == 0) {} c[threadIdx.x] = 2.f; }
    else if (threadIdx.x == 32) *flag = 1;
}
template <bool WAIT> __global__ void async_copy(const float *a, float *c) {
    __shared__ alignas(16) float tile[128];
    unsigned at = (unsigned)__cvta_generic_to_shared(&tile[threadIdx.x * 4]);
    asm volatile("cp.async.ca.shared.global [%0], [%1], 16;" :: "r"(at), "l"(a + threadIdx.x * 4));
    asm volatile("cp.async.commit_group;");
    if (WAIT) asm volatile("cp.async.wait_all;");
    __syncthreads();
    for (int k = 0; k < 4; k++) c[k * 32 + threadIdx.x] = tile[k * 32 + threadIdx.x];
}
template __global__ void async_copy<true>(const float *, float *);
template __global__ void async_copy<false>(const float *, float *);
__global__ void halves(const unsigned short *a, unsigned short *c, int n) {
    int i = blockIdx.x * 33 + threadIdx.x;
    if (i < n) c[i] = a[i];
}
"""

CLEAN_REVERSE, RACY_REVERSE = "_Z7reverseILb1EEvPKfPf", "_Z7reverseILb0EEvPKfPf"


@pytest.fixture(scope="module")
def module() -> Module:
    return compile_ptx(SOURCE)


def zeros(n: int) -> np.ndarray:
    return np.zeros(n, np.float32)


def line_of(text: str) -> int:
    return next(n for n, line in enumerate(SOURCE.splitlines(), 1) if text in line)


def only(result: Result, kind: str) -> None:
    assert kinds(result) == {kind}, result.reports


def test_global_bounds(module: Module) -> None:
    result, _ = execute(module, "bounds", 4, 32, zeros(100), zeros(100), 100)
    assert result.reports == ()
    result, _ = execute(module, "bounds", 4, 32, zeros(100), zeros(128), 128)
    only(result, "out_of_bounds")
    (report,) = result.reports
    assert (report.block, report.thread, report.count, report.space) == (3, 4, 28, "global")
    assert report.line == line_of("if (i < n) c[i] = a[i];")
    assert "just past the end of an allocation of 400 bytes" in report.detail
    result, (_, got) = execute(module, "bounds", 4, 32, zeros(128), zeros(100), 128)
    only(result, "out_of_bounds")  # and nothing was written past the end
    result, _ = execute(module, "bounds", 1, 32, np.uint64(0), zeros(32), 32)
    only(result, "out_of_bounds")


def test_alignment(module: Module) -> None:
    assert execute(module, "misaligned", 1, 16, zeros(32), zeros(32), 4)[0].reports == ()
    only(execute(module, "misaligned", 1, 16, zeros(32), zeros(32), 2)[0], "misaligned")


def test_shared_bounds(module: Module) -> None:
    assert execute(module, "shared_bounds", 1, 32, zeros(32), 0, shared=128)[0].reports == ()
    result, _ = execute(module, "shared_bounds", 1, 32, zeros(32), 8, shared=128)
    only(result, "out_of_bounds")
    assert result.reports[0].space == "shared" and result.reports[0].count == 8


def test_uninitialised_shared_memory(module: Module) -> None:
    assert execute(module, "shared_unset", 2, 64, zeros(64), 64, outputs=(0,))[0].reports[1:] == ()
    result, (got,) = execute(module, "shared_unset", 1, 64, zeros(64), 60)
    only(result, "uninitialized_read")
    assert result.reports[0].count == 4 and result.reports[0].thread == 60
    assert not np.isin(got[60:], [0.0, 1.0]).any()  # poison, not a lucky zero


def test_uninitialised_global_memory(module: Module) -> None:
    a, s, c = zeros(64), zeros(64), zeros(64)
    assert execute(module, "global_unset", 1, 64, a, s, c, 64, outputs=(1, 2))[0].reports == ()
    result, _ = execute(module, "global_unset", 1, 64, a, s, c, 50, outputs=(1, 2))
    only(result, "uninitialized_read")
    assert result.reports[0].count == 14 and result.reports[0].space == "global"
    assert execute(module, "global_unset", 1, 64, a, s, c, 50, outputs=(2,))[0].reports == ()


def test_missing_barrier_is_a_race_and_a_wrong_answer(module: Module) -> None:
    a = np.arange(128, dtype=np.float32)
    wrong = 0
    for seed in range(4):
        result, (_, got) = execute(module, CLEAN_REVERSE, 1, 128, a, zeros(128), seed=seed)
        assert result.reports == ()
        np.testing.assert_array_equal(got, a[::-1])
        result, (_, got) = execute(module, RACY_REVERSE, 1, 128, a, zeros(128), seed=seed)
        assert "race" in kinds(result)
        wrong += not np.array_equal(got, a[::-1])
    assert wrong


def test_overwriting_what_others_still_read(module: Module) -> None:
    assert execute(module, "_Z9overwriteILb1EEvPf", 1, 128, zeros(128))[0].reports == ()
    result, _ = execute(module, "_Z9overwriteILb0EEvPf", 1, 128, zeros(128), seed=1)
    assert "race" in kinds(result)
    (found,) = [r for r in result.reports if "overwrites what thread" in r.detail]
    assert "(warp" in found.detail and found.space == "shared"


def test_same_value_from_two_warps_is_benign(module: Module) -> None:
    only(execute(module, "flag", 1, 64, zeros(64), 1)[0], "race_benign")
    assert "race" in kinds(execute(module, "flag", 1, 64, zeros(64), 0)[0])
    assert execute(module, "flag", 1, 32, zeros(32), 1)[0].reports == ()


def test_lanes_of_one_store_disagree(module: Module) -> None:
    assert execute(module, "one_store", 1, 32, zeros(1), 1)[0].reports == ()
    result, _ = execute(module, "one_store", 1, 32, zeros(1), 0)
    only(result, "race")
    assert "lanes of one store" in result.reports[0].detail


def test_blocks_write_one_place(module: Module) -> None:
    assert execute(module, "across_blocks", 4, 1, zeros(1), zeros(4), 0)[0].reports == ()
    result, _ = execute(module, "across_blocks", 4, 1, zeros(1), zeros(4), 1)
    only(result, "race")
    assert "block 0" in result.reports[0].detail and result.reports[0].block == 1


def test_in_place_neighbours(module: Module) -> None:
    assert execute(module, "neighbour", 4, 32, zeros(128), 0)[0].reports == ()
    assert "race" in kinds(execute(module, "neighbour", 4, 32, zeros(128), 1)[0])


def test_initialising_an_accumulator_in_the_same_launch(module: Module) -> None:
    assert execute(module, "zero_then_add", 4, 32, zeros(1), 0)[0].reports == ()
    only(execute(module, "zero_then_add", 4, 32, zeros(1), 1)[0], "race")


def test_publishing_without_a_fence(module: Module) -> None:
    """The twin with __threadfence() is silent: test_last_block_pattern_is_no_race."""
    result, _ = execute(
        module, "unfenced", 8, 32, zeros(8), zeros(8), np.zeros(1, np.uint32), zeros(1)
    )
    only(result, "race")


def test_barrier_divergence(module: Module) -> None:
    assert execute(module, "two_barriers", 1, 64, zeros(64), 64)[0].reports == ()
    result, _ = execute(module, "two_barriers", 1, 64, zeros(64), 16)
    assert "barrier_divergence" in kinds(result)


def test_shuffle_from_an_inactive_lane(module: Module) -> None:
    assert execute(module, "shuffle", 1, 32, zeros(32), 32)[0].reports == ()
    result, _ = execute(module, "shuffle", 1, 32, zeros(32), 20)
    only(result, "shuffle_inactive")
    assert "lane 20" in result.reports[0].detail and result.reports[0].thread == 19


@pytest.mark.parametrize("kernel, kind", [("stops", "trap"), ("asserts", "assert")])
def test_trap_and_assertion(module: Module, kernel: str, kind: str) -> None:
    assert execute(module, kernel, 1, 32, zeros(32), 0)[0].reports == ()
    result, _ = execute(module, kernel, 1, 32, zeros(32), 1)
    only(result, kind)
    assert result.reports[0].thread == 5 and not result.timed_out


def test_budget(module: Module) -> None:
    result, _ = execute(module, "spin", 1, 32, np.ones(1, np.int32), max_instructions=10_000)
    assert result.reports == () and not result.timed_out
    result, _ = execute(module, "spin", 1, 32, np.zeros(1, np.int32), max_instructions=10_000)
    only(result, "timed_out")
    assert result.timed_out and int(result.counters["warps"].sum()) == 10_001


def test_a_warp_may_wait_for_another(module: Module) -> None:
    result, (_, got) = execute(
        module, "wait_for_warp", 1, 64, np.zeros(1, np.int32), zeros(32), max_instructions=10**7
    )
    assert result.reports == () and (got == 2).all()


def test_missing_wait_for_an_asynchronous_copy(module: Module) -> None:
    a = np.arange(128, dtype=np.float32)
    result, (_, got) = execute(module, "_Z10async_copyILb1EEvPKfPf", 1, 32, a, zeros(128))
    assert result.reports == () and np.array_equal(got, a)
    result, (_, got) = execute(module, "_Z10async_copyILb0EEvPKfPf", 1, 32, a, zeros(128))
    only(result, "race")
    assert "not waited for" in result.reports[0].detail


def test_neighbouring_halves_of_two_blocks_are_no_race(module: Module) -> None:
    a = np.arange(132, dtype=np.uint16)
    result, (_, got) = execute(
        module, "halves", 4, 33, a, np.zeros(132, np.uint16), 132, outputs=(1,)
    )
    assert result.reports == () and np.array_equal(got, a)


def test_checks_can_be_left_out(module: Module) -> None:
    result, _ = execute(module, RACY_REVERSE, 1, 128, zeros(128), zeros(128), checks=False)
    assert result.reports == ()
    result, _ = execute(module, "bounds", 4, 32, zeros(100), zeros(128), 128, checks=False)
    only(result, "out_of_bounds")
