"""Blocks that wait for blocks: what is done in series counts, looking in vain does not."""

from __future__ import annotations

import numpy as np
import pytest
from simt_support import compile_ptx, counted, execute

from kernelblaster.harness.simt.ptx.parser import Module
from kernelblaster.harness.simt.run.core import Result

STORE, ATOMIC = 1000, 1500
HOPS = (STORE, ATOMIC)

SOURCE = r"""
__global__ void chain(volatile int *flags, int *out, int work) {
    int b = blockIdx.x, v = threadIdx.x;
    if (threadIdx.x == 0 && b) while (flags[(b - 1) * 32] == 0) { }
    __syncthreads();
    for (int i = 0; i < work; i++) v = v * 1664525 + 1013904223;
    out[b * blockDim.x + threadIdx.x] = v;
    __threadfence();
    __syncthreads();
    if (threadIdx.x == 0) flags[b * 32] = 1;
}
__global__ void barriers(int *counter, int *out, int rounds) {
    for (int k = 1; k <= rounds; k++) {
        __syncthreads();
        if (threadIdx.x == 0) {
            __threadfence();
            atomicAdd(counter, 1);
            while (*(volatile int *)counter < k * gridDim.x) { }
        }
        __syncthreads();
    }
    out[blockIdx.x * blockDim.x + threadIdx.x] = rounds;
}
// The same, but each look is counted: there is more to a turn than looking.
__global__ void counts_looks(volatile int *zero, int *out, int looks) {
    int v = threadIdx.x;
    for (int i = 0; i < looks; i++) if (zero[0] == 0) v += i;
    out[blockIdx.x * blockDim.x + threadIdx.x] = v;
}
// Who takes a number does not wait for the others.
__global__ void numbers(int *counter, int *out) {
    if (threadIdx.x == 0) out[blockIdx.x] = atomicAdd(counter, 1);
}
// Only the block that comes last goes over what the others left.
__global__ void last(int *ticket, int *parts, int *out, int n) {
    __shared__ int number;
    parts[blockIdx.x] = blockIdx.x;
    __threadfence();
    if (threadIdx.x == 0) number = atomicAdd(ticket, 1);
    __syncthreads();
    if (number != gridDim.x - 1 || threadIdx.x) return;
    int sum = 0;
    for (int i = 0; i < n; i++) sum += ((volatile int *)parts)[i % gridDim.x];
    out[0] = sum;
}
"""


@pytest.fixture(scope="module")
def module() -> Module:
    return compile_ptx(SOURCE)


def _run(module: Module, name: str, blocks: int, *more: object, resident: int = 1024) -> Result:
    first, out = np.zeros(4096, np.int32), np.zeros(64 * max(blocks, 1), np.int32)
    result, _ = execute(
        module, name, blocks, 64, first, out, *more, outputs=(1,), checks=False, hop_clocks=HOPS,
        resident_blocks=resident,
    )  # fmt: skip
    assert not result.reports and not result.timed_out
    return result


@pytest.mark.parametrize("resident", [1, 4, 1024])
def test_a_chain_of_blocks_is_as_long_as_it_has_blocks(module: Module, resident: int) -> None:
    short, long = (_run(module, "chain", n, 200, resident=resident).path for n in (4, 16))
    if resident == 1024:
        assert (short.waits, long.waits) == (3 * STORE, 15 * STORE)
    assert long.clocks > 3 * short.clocks
    assert long.own_clocks == short.own_clocks


def test_blocks_that_do_not_wait_are_no_chain(module: Module) -> None:
    path = _run(module, "numbers", 64).path
    assert path.waits == 0 and path.clocks == path.own_clocks == path.last_clocks


@pytest.mark.parametrize("blocks", [2, 16, 100])
def test_a_barrier_of_the_grid_is_one_wait_whatever_the_blocks(module: Module, blocks: int) -> None:
    one, ten = (_run(module, "barriers", blocks, rounds).path for rounds in (1, 10))
    assert (one.waits, ten.waits) == (ATOMIC, 10 * ATOMIC)
    assert ten.clocks < 10 * one.clocks


@pytest.mark.parametrize("blocks", [2, 16, 100])
def test_looking_in_vain_counts_nothing(module: Module, blocks: int) -> None:
    result = _run(module, "barriers", blocks, 10)
    looks = counted(module, result, "ld", "warps", "volatile", "global")
    assert blocks * 10 <= looks <= 3 * blocks * 10


@pytest.mark.parametrize("looks", [10, 1000])
def test_a_turn_that_does_more_than_look_counts(module: Module, looks: int) -> None:
    result = _run(module, "counts_looks", 2, looks)
    assert counted(module, result, "ld", "warps", "volatile", "global") == 2 * 2 * looks


def test_the_block_that_ends_last_is_the_path(module: Module) -> None:
    parts, out = np.zeros(64, np.int32), np.zeros(1, np.int32)
    result, (*_, found) = execute(
        module, "last", 64, 64, np.zeros(1, np.int32), parts, out, 64 * 8, outputs=(1, 2),
        checks=False, hop_clocks=HOPS,
    )  # fmt: skip
    path = result.path
    assert found[0] == 8 * 63 * 64 // 2
    assert path.last_clocks > 10 * path.own_clocks and path.clocks == path.last_clocks
    rows = result.counters
    assert rows["looks"].sum() and np.array_equal(rows["looks"], rows["looks_at_written"])


def test_without_clocks_there_is_no_path(module: Module) -> None:
    result, _ = execute(
        module, "numbers", 8, 64, np.zeros(1, np.int32), np.zeros(8, np.int32), outputs=(1,),
        checks=False,
    )  # fmt: skip
    assert (result.path.clocks, result.path.waits) == (0, 0)
