"""What the whole grid writes, by few of its blocks: those that leave something out are noticed."""

from __future__ import annotations

import random
from collections import Counter
from dataclasses import replace

import numpy as np
import pytest
from support.timed_kernels import BUDGET, TimedKernels

from kernelblaster.harness.simt.run.block_runs import BlockRuns, LaunchFailed
from kernelblaster.harness.simt.sample.block_choice import MOST_BEHIND, together
from kernelblaster.harness.simt.sample.wide_run import _joining_axis
from kernelblaster.harness.simt.sample.written import written_of

SOURCE = """
__device__ void work(const float* x, float* y, int n, int lines) {
    int i = blockIdx.x * 256 + threadIdx.x;
    float sum = 0.0f;
    for (int k = 0; k < 256; k++) sum += x[(i + k * 1024) % n];
    if (threadIdx.x < lines) y[i] = sum;
}
extern "C" __global__ void whole(const float* x, float* y, int n) { work(x, y, n, 256); }
extern "C" __global__ void lines_left_out(const float* x, float* y, int n) { work(x, y, n, 240); }
extern "C" __global__ void blocks_left_out(const float* x, float* y, int n) {
    if (blockIdx.x % 16 != 5) work(x, y, n, 256);
}
extern "C" __global__ void blocks_of_no_use(const float* x, float* y, int n) {
    if (blockIdx.x < 2000) work(x, y, n, 256);
}
extern "C" __global__ void ragged(const float* x, float* y, int n) {
    work(x, y, n, blockIdx.x % 2 ? 256 : 192);
    if (blockIdx.x % 2 == 0 && threadIdx.x < 64) y[blockIdx.x * 256 + 192 + threadIdx.x] = 0.0f;
}
extern "C" __global__ void thirds(const float* x, float* y, int n) {
    int i = blockIdx.x * 256 + threadIdx.x;
    float sum = 0.0f;
    for (int k = 0; k < 256; k++) sum += x[(i + k * 1024) % n];
    if (blockIdx.x % 3 == 0) for (int k = 0; k < 3; k++) y[i + k * 256] = sum;
}
extern "C" __global__ void far_away(const float* x, float* y, int n) {
    if (blockIdx.x > 40) y[1LL << 40] = 0.0f;
    else work(x, y, n, 256);
}
extern "C" __global__ void joined(const float* x, float* y, int n) {
    atomicAdd(y + blockIdx.PART * 1024 + threadIdx.x, x[blockIdx.OTHER]);
}
"""
BLOCKS, N = 2000, 256 * 2000
X, Y = 0, 1


def timed_kernels(folder_factory: pytest.TempPathFactory, source: str) -> TimedKernels:
    return TimedKernels(source, folder_factory.mktemp("written"), floats=1 << 20)


@pytest.fixture(scope="module")
def timed(tmp_path_factory: pytest.TempPathFactory) -> TimedKernels:
    return timed_kernels(tmp_path_factory, SOURCE.replace("PART", "x").replace("OTHER", "y"))


def share(
    timed: TimedKernels, name: str, budget: int, blocks: int = BLOCKS, thorough: bool = True
) -> float:
    """Return what share of the output eight blocks, and what is then looked at, tell of."""
    runner = BlockRuns(timed.asked(name, blocks, 256, N), BUDGET, [Y])
    generator = random.Random(name)
    result = runner.run(sorted(generator.sample(range(blocks), 8)), random=True)
    cost, sizes = int(result.work.max()), {Y: 4 * N}
    found = written_of(runner, blocks, cost, generator, sizes, budget, thorough=thorough)
    return found[Y].grid_bytes / (4 * N)


@pytest.mark.parametrize(
    ("name", "expected"),
    [("whole", 1.0), ("lines_left_out", 240 / 256), ("blocks_left_out", 15 / 16),
     ("ragged", 1.0)],
)  # fmt: skip
def test_an_output_is_whole_or_what_is_missing_is_told(
    timed: TimedKernels, name: str, expected: float
) -> None:
    assert share(timed, name, 10_000_000) == pytest.approx(expected, abs=1e-9)


@pytest.mark.parametrize("thorough", [True, False])
def test_blocks_of_no_use_are_counted_and_not_estimated(
    timed: TimedKernels, thorough: bool
) -> None:
    found = share(timed, "blocks_of_no_use", 10_000_000, 3000, thorough)
    assert found == pytest.approx(1.0)


def test_without_the_means_to_look_closer_an_estimate_is_given_its_error(
    timed: TimedKernels,
) -> None:
    names = ("whole", "lines_left_out", "blocks_left_out")
    shares = [share(timed, name, 0, thorough=False) for name in names]
    assert shares[:2] == pytest.approx([1.0, 240 / 256]) and shares[2] > 0.99


def test_blocks_that_are_begun_leave_nothing(timed: TimedKernels) -> None:
    runner = BlockRuns(timed.asked("blocks_left_out", BLOCKS, 256, N), BUDGET, [Y])
    before = timed.bytes.copy()
    result = runner.looked_at(range(32), 400)
    assert result is not None and (timed.bytes == before).all() and not runner.ran
    ended = [block for block, work in enumerate(result.work.tolist()) if work <= 400]
    assert ended == [5, 21] and not result.stored[ended].any()
    assert int(result.work.max()) < 1000


@pytest.mark.parametrize("draw", range(8))
def test_blocks_that_take_turns_at_outputs_are_given_what_they_differ_by(
    timed: TimedKernels, draw: int
) -> None:
    runner = BlockRuns(timed.asked("thirds", 1998, 256, N), BUDGET, [Y])
    generator = random.Random(draw)
    runner.run(sorted(generator.sample(range(1998), 16)), random=True)
    found = written_of(runner, 1998, 8192, generator, {Y: 4 * 256 * 1998}, 0)
    assert found[Y].grid_bytes >= 0.99 * 4 * 256 * 1998


def test_what_is_known_of_memory_stays_as_it_was(timed: TimedKernels) -> None:
    asked = timed.asked("blocks_left_out", BLOCKS, 256, N)
    known = np.zeros(timed.memory.size // 4 + 1, dtype=np.uint8)
    memory = replace(timed.memory, initialised=known)
    memory.mark_initialised(memory.starts[X], memory.ends[X] - memory.starts[X])
    runner, before = BlockRuns(replace(asked, memory=memory), BUDGET, [Y]), known.copy()
    runner.alone(3)
    assert runner.looked_at(range(64)) is not None and (known == before).all()
    runner.run([3])
    assert (known != before).any()


def test_looking_closer_takes_what_it_is_given_and_finds_faults(timed: TimedKernels) -> None:
    runner = BlockRuns(timed.asked("ragged", BLOCKS, 256, N), BUDGET, [Y])
    runner.run([0, 1, 2, 3], random=True)
    before, budget = runner.spent, 300_000
    written_of(runner, BLOCKS, 8192, random.Random(1), {Y: 8 * N}, budget)
    assert 0 < runner.spent - before <= 2 * budget
    runner = BlockRuns(timed.asked("far_away", BLOCKS, 256, N), BUDGET, [Y])
    runner.run([0, 1, 2, 3], random=True)
    with pytest.raises(LaunchFailed):
        written_of(runner, BLOCKS, 8192, random.Random(1), {Y: 4 * N}, 10_000_000, thorough=True)


@pytest.mark.parametrize(("part", "other", "axis"), [("x", "y", 1), ("y", "x", 0), ("x", "z", 2)])
def test_the_axis_along_which_blocks_join_is_found(
    tmp_path_factory: pytest.TempPathFactory, part: str, other: str, axis: int
) -> None:
    kernels = timed_kernels(
        tmp_path_factory, SOURCE.replace("PART", part).replace("OTHER", other)
    )
    grid = (8, 6, 1) if axis < 2 else (8, 1, 6)
    asked = kernels.asked("joined", grid, 256, N)
    assert _joining_axis(BlockRuns(asked, BUDGET, [Y]), {Y: 4 * N}) == axis
    assert _joining_axis(BlockRuns(asked, BUDGET, [X]), {X: 4 * N}) is None


@pytest.mark.parametrize("axis", [0, 1, 2])
@pytest.mark.parametrize("extent", [4, 32])
def test_all_blocks_along_an_axis_are_chosen_together(axis: int, extent: int) -> None:
    grid = tuple(extent if each == axis else 20 for each in range(3))
    x, y, _ = grid
    near, apart = together(grid, 200, axis, random.Random(1))  # type: ignore[arg-type]
    assert not apart and 168 < len(near) == len(set(near)) <= 200
    at = [(block % x, block // x % y, block // x // y) for block in near]
    lines = Counter(tuple(c for a, c in enumerate(each) if a != axis) for each in at)
    assert set(lines.values()) == {extent}


def test_where_nothing_is_joined_some_blocks_are_drawn_by_themselves() -> None:
    near, apart = together((40, 30, 2 * MOST_BEHIND), 100, None, random.Random(1))
    assert len(apart) == 25 and not set(near) & set(apart)
