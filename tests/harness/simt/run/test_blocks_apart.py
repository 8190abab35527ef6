"""Runs of some blocks: taken back, in turns, told apart; and looks at what others store plainly."""

from __future__ import annotations

import random

import numpy as np
import pytest
from simt_support import Arena, compile_ptx, execute, kinds

from kernelblaster.harness.simt.ptx.parser import Module
from kernelblaster.harness.simt.run.core import Launch, run, take_back
from kernelblaster.harness.simt.run.orders import mixed_order
from kernelblaster.harness.simt.sample.blocks.dependence import shared_counter

SOURCE = r"""
__global__ void add(const float *x, float *y) {
    int i = blockIdx.x * 32 + threadIdx.x;
    y[i] += x[i];
    atomicAdd(y + 512, 1.f);
}
__global__ void turns(int *counter, int *out, int jobs) {
    __shared__ int job;
    for (;;) {
        if (threadIdx.x == 0) job = atomicAdd(counter, 1);
        __syncthreads();
        int mine = job;
        __syncthreads();
        if (mine >= jobs) return;
        unsigned v = mine;
        for (int i = 0; i < 3000; i++) v = (v ^ v >> 7) * 1664525 + 1013904223;
        out[mine * 64 + threadIdx.x] = v;
    }
}
__global__ void others(int *begun, int *out, int steps) {
    if (threadIdx.x) return;
    atomicAdd(begun, 1);
    unsigned v = blockIdx.x;
    for (int i = 0; i < steps; i++) v = (v ^ v >> 7) * 1664525 + 1013904223;
    out[blockIdx.x] = atomicAdd(begun, v == 1) - blockIdx.x - 1;
}
__global__ void counts(int *counter) { atomicAdd(counter, 1); }
__global__ void own(float *y) { y[blockIdx.x * 32 + threadIdx.x] *= 2.f; }
__global__ void beside(float *y) {
    int i = blockIdx.x * 32 + threadIdx.x;
    y[i] = y[(i + 32) % 512] + 1.f;
}
__global__ void looks(float *y, int with_flag, volatile int *flag) {
    if (threadIdx.x) return;
    if (blockIdx.x == 0) {
        y[0] = 3.f;
        if (with_flag) { __threadfence(); *flag = 1; }
    } else {
        if (with_flag) { while (!*flag) {} __threadfence(); }
        y[1] = ((volatile float *)y)[0];
    }
}
__global__ void looks_in_a_block(float *y, int with_barrier) {
    __shared__ volatile float v[64];
    __shared__ float plain[64];
    plain[threadIdx.x] = threadIdx.x;
    v[threadIdx.x] = threadIdx.x;
    if (with_barrier) __syncthreads();
    y[threadIdx.x] = ((volatile float *)plain)[63 - threadIdx.x];
}
"""


@pytest.fixture(scope="module")
def module() -> Module:
    return compile_ptx(SOURCE)


def test_what_a_run_did_is_taken_back(module: Module) -> None:
    arena = Arena()
    x, y = arena.place(np.ones(512, np.float32)), arena.place(np.full(520, 7, np.float32))
    launch = Launch(
        module, next(name for name in module.functions if "add" in name), (16, 1, 1), (32, 1, 1), 0,
        [x.to_bytes(8, "little"), y.to_bytes(8, "little")],
    )  # fmt: skip
    before = arena.memory(), arena._bytes.copy()
    kept = [run(launch, before[0], blocks, checks=False, keep=True) for blocks in ([3], [3, 9])]
    assert not np.array_equal(arena._bytes, before[1])
    for result in reversed(kept):
        take_back(result)
    assert np.array_equal(arena._bytes, before[1])
    assert run(launch, before[0], [3], checks=False).before.size == 0


@pytest.mark.parametrize("fair", [False, True])
def test_blocks_that_take_turns_do_alike_where_it_is_fair(module: Module, fair: bool) -> None:
    result, (_, out) = execute(
        module, "turns", 8, 64, np.zeros(1, np.int32), np.zeros(64 * 64, np.int32), 64,
        outputs=(1,), checks=False, fair=fair,
    )  # fmt: skip
    expected = np.arange(64, dtype=np.uint64)
    for _ in range(3000):
        expected = ((expected ^ (expected >> np.uint64(7))) * 1664525 + 1013904223) % 2**32
    assert np.array_equal(out.reshape(64, 64)[:, 5].view(np.uint32), expected.astype(np.uint32))
    assert result.work.size == 8 and result.work.sum() == result.counters["warps"].sum()
    assert bool(result.work.max() < 2 * result.work.min()) is fair


@pytest.mark.parametrize("steps", [2, 20, 2000])
def test_blocks_of_any_length_take_turns(module: Module, steps: int) -> None:
    """How many later blocks have begun when one ends: none where each ends first."""
    for fair in (False, True):
        _, (_, out) = execute(
            module, "others", 64, 32, np.zeros(1, np.int32), np.zeros(64, np.int32), steps,
            outputs=(1,), checks=False, fair=fair, seed=3,
        )  # fmt: skip
        assert bool(out.any()) is fair


@pytest.mark.parametrize("grid", [(1, 1, 1), (40, 1, 1), (7, 30, 1), (3, 5, 9)])
def test_a_mixed_order_has_all_blocks_and_keeps_neighbours_together(
    grid: tuple[int, int, int]
) -> None:
    order = mixed_order(grid, random.Random(1))
    x, y, z = grid
    assert sorted(order) == list(range(x * y * z))
    place = {block: at for at, block in enumerate(order)}
    for step, width in ((1, x), (x, y), (x * y, z)):
        pairs = [(block, block + step) for block in order
                 if block // step % width + 1 < width]  # fmt: skip
        near = sum(abs(place[a] - place[b]) < 8 for a, b in pairs)
        assert near >= 0.15 * len(pairs)
    assert len(order) < 20 or order != sorted(order)


@pytest.mark.parametrize(("kernel", "counter"), [("turns", True), ("counts", False)])
def test_a_counter_is_one_whose_value_is_used(
    module: Module, kernel: str, counter: bool
) -> None:
    name = next(name for name in module.functions if kernel in name)
    sizes = [parameter.size for parameter in module.functions[name].parameters]
    launch = Launch(module, name, (1, 1, 1), (64, 1, 1), 0, [bytes(size) for size in sizes])
    assert bool(shared_counter(launch)) is counter


@pytest.mark.parametrize(("kernel", "looks"), [("own", False), ("beside", True)])
def test_who_reads_what_others_store_is_told(module: Module, kernel: str, looks: bool) -> None:
    result, _ = execute(module, kernel, 16, 32, np.ones(512, np.float32), checks=False)
    (use,) = result.uses.values()
    assert use.written_sectors == 64
    assert bool(result.looked_at_by.any()) is looks


@pytest.mark.parametrize(("flag", "race"), [(0, True), (1, False)])
def test_a_volatile_look_is_no_order(module: Module, flag: int, race: bool) -> None:
    values = np.zeros(2, np.float32), flag, np.zeros(1, np.int32)
    result, _ = execute(module, "looks", 2, 32, *values)
    assert ("race" in kinds(result)) is race


@pytest.mark.parametrize(("barrier", "race"), [(0, True), (1, False)])
def test_a_volatile_look_at_another_warp_is_no_order(
    module: Module, barrier: int, race: bool
) -> None:
    result, _ = execute(module, "looks_in_a_block", 1, 64, np.zeros(64, np.float32), barrier)
    assert ("race" in kinds(result)) is race


def test_each_of_two_warps_goes_first_in_one_of_the_runs(module: Module) -> None:
    found = [
        execute(module, "looks_in_a_block", 1, 64, np.zeros(64, np.float32), 0, outputs=(0,),
                checks=False, seed=seed)[1][0]
        for seed in (0, 1)
    ]  # fmt: skip
    right = 63 - np.arange(64)
    assert [np.flatnonzero(each == right).tolist() for each in found] == [
        list(range(32, 64)), list(range(32))
    ]  # fmt: skip
