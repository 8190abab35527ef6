"""What a launch is said to take hangs little on which of its blocks were drawn."""

from __future__ import annotations

import math
from statistics import median

import pytest
from often_or_seldom import every
from support.timed_kernels import TimedKernels

from kernelblaster.harness.devices.gates import AGREEMENT

SOURCE = """
#define AT long long i = blockIdx.x * 256ll + threadIdx.x
extern "C" __global__ void tail(const float* x, float* y, int n) {
    AT;
    if (i < n) y[i] = x[i] * 2.0f + 1.0f;
}
extern "C" __global__ void a_third_idle(const float* x, float* y, int n) {
    if (blockIdx.x % 3 == 2) return;
    AT;
    float sum = 0.0f;
    for (int k = 0; k < 16; k++) sum += x[(i + k * 1024) % n];
    y[i] = sum;
}
extern "C" __global__ void one_in_ten_long(const float* x, float* y, int n) {
    AT;
    float sum = 0.0f;
    for (int k = 0; k < (blockIdx.x % 10 ? 4 : 40); k++) sum += x[(i + k * 1024) % n];
    y[i] = sum;
}
extern "C" __global__ void most_idle(const float* x, float* y, int n) {
    if (blockIdx.x % 8) return;
    AT;
    float sum = 0.0f;
    for (int k = 0; k < 64; k++) sum += x[(i + k * 1024) % n];
    y[i] = sum;
}
extern "C" __global__ void triangle(const float* x, float* y, int n) {
    int side = 1;
    while (side * side < gridDim.x) side++;
    int row = blockIdx.x / side, column = blockIdx.x % side;
    if (column > row) return;
    AT;
    float sum = 0.0f;
    for (int k = 0; k <= row - column; k++) sum += x[(i + k * 1024) % n];
    y[i] = sum;
}
extern "C" __global__ void most_end_at_once(const float* x, float* y, int n) {
    if (blockIdx.x % 20 < 11) return;
    AT;
    float sum = 0.0f;
    for (int k = 0; k < 160; k++) sum += x[(i + k * 1024) % n];
    y[i] = sum;
}
extern "C" __global__ void slow_warps(const float* x, float* y, int n) {
    __shared__ float part[256];
    AT;
    float sum = 0.0f;
    if (blockIdx.x % 4 == 0)
        for (int k = 0; k < (threadIdx.x < 32 ? 64 : 4); k++) sum += x[(i + k * 1024) % n];
    part[threadIdx.x] = sum;
    __syncthreads();
    y[i] = part[255 - threadIdx.x];
}
extern "C" __global__ void one_long(const float* x, float* y, int n) {
    AT;
    float sum = 0.0f;
    for (int k = 0; k < (blockIdx.x == 77 ? 20000 : 1); k++) sum += x[(i + k * 1024) % n];
    y[i] = sum;
}
extern "C" __global__ void rows_in_order(const float* x, float* y, int n) {
    AT;
    if (i >= n) return;
    float sum = 0.0f;
    for (int k = 0; k < 4000; k++) sum += x[i * 4000 + k];
    y[i] = sum;
}
extern "C" __global__ void counts(const float* x, float* y, int n) {
    AT;
    atomicAdd(y + (i % n + 31 * (i % 7)) % 512, x[i]);
}
"""
KERNELS = (
    "tail", "a_third_idle", "one_in_ten_long", "most_idle", "triangle", "slow_warps", "counts",
)  # fmt: skip
SMALL, LARGE = 1024, 16_000
"""Blocks of which all are run, and blocks of which few are."""
DRAWS = range(5)


@pytest.fixture(scope="module")
def timed(tmp_path_factory: pytest.TempPathFactory) -> TimedKernels:
    return TimedKernels(SOURCE, tmp_path_factory.mktemp("draws"), floats=1 << 24)


@pytest.mark.parametrize("name", KERNELS)
def test_a_small_grid_takes_one_time(timed: TimedKernels, name: str) -> None:
    times = [_time(timed, name, SMALL, draw)[0] for draw in DRAWS]
    assert max(times) / min(times) < AGREEMENT


def test_the_block_that_does_the_work_is_met_by_some_draws_and_counts_by_all(
    timed: TimedKernels,
) -> None:
    times = [_time(timed, "one_long", 300, draw)[0] for draw in range(8)]
    assert max(times) / min(times) < AGREEMENT


@pytest.mark.parametrize("name", every(6, KERNELS))
def test_a_large_grid_takes_one_time_as_far_as_it_was_seen(timed: TimedKernels, name: str) -> None:
    found = [_time(timed, name, LARGE, draw) for draw in DRAWS]
    middle = median(time for time, _ in found)
    for time, error in found:
        assert abs(math.log(time / middle)) < math.log(AGREEMENT) + 2 * error, found


def test_where_most_blocks_end_at_once_the_others_are_no_exception(timed: TimedKernels) -> None:
    """All of them, which are more than may be run, were run for the few that they seemed."""
    times = [_time(timed, "most_end_at_once", LARGE, draw)[0] for draw in range(2)]
    assert max(times) / min(times) < 1.3


@pytest.mark.parametrize("blocks", [2, 3, 5, 12])
@pytest.mark.parametrize("name", ["tail", "triangle", "slow_warps"])
def test_a_grid_of_few_blocks_takes_one_time(timed: TimedKernels, name: str, blocks: int) -> None:
    # Of the last block one lane has an element.
    times = [
        timed.run(name, blocks, 256, 256 * (blocks - 1) + 1, draw).profile.microseconds
        for draw in DRAWS
    ]
    assert max(times) / min(times) < 1.001


def test_blocks_of_unlike_work_are_timed_by_the_longest_where_all_run(
    timed: TimedKernels,
) -> None:
    alone, beside = (timed.run("rows_in_order", count, 256, 256 + 32 * (count - 1))
                     for count in (1, 2))  # fmt: skip
    assert beside.counters.longest_block > 1.7
    assert beside.profile.microseconds == pytest.approx(alone.profile.microseconds, rel=0.1)


def _time(timed: TimedKernels, name: str, blocks: int, draw: int) -> tuple[float, float]:
    """Return microseconds and their relative standard error."""
    # The last block of `tail` has no element.
    n = 256 * (blocks - 1) if name == "tail" else 256 * blocks
    run = timed.run(name, blocks, 256, n, draw)
    return run.profile.microseconds, run.counters.standard_error
