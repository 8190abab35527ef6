"""What the whole grid writes, by few of its blocks: those that leave something out are noticed."""

from __future__ import annotations

import random
from collections import Counter
from dataclasses import replace

import numpy as np
import pytest
from support.timed_kernels import BUDGET, TimedKernels

from kernelblaster.harness.judge.launch_writes import UNSURE
from kernelblaster.harness.simt.run.block_runs import BlockRuns, LaunchFailed
from kernelblaster.harness.simt.sample.blocks.block_choice import MOST_BEHIND, Joining, together
from kernelblaster.harness.simt.sample.outputs.written import note_open, written_of
from kernelblaster.harness.simt.sample.wide_run import _joining

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
extern "C" __global__ void side_by_side(const float* x, float* y, int n) {
    atomicAdd(y + blockIdx.x / 8 * 256 + threadIdx.x, x[blockIdx.x]);
}
extern "C" __global__ void handed_on(const float* x, float* y, int n) {
    atomicAdd(y + blockIdx.x * 192 + threadIdx.x, x[blockIdx.x]);
}
extern "C" __global__ void edges_in_common(const float* x, float* y, int n) {
    atomicAdd(y + blockIdx.x * 252 + threadIdx.x, x[blockIdx.x]);
}
extern "C" __global__ void seven_of_eight(const float* x, float* y, int n) {
    int i = blockIdx.x * 256 + threadIdx.x;
    if (i % 8 != 3) y[i] = x[i];
    if (i % 8 == 1) y[i] = 2.0f;
}
extern "C" __global__ void reads_its_own(const float* x, float* y, int n) {
    int i = blockIdx.x * 256 + threadIdx.x;
    y[i] = x[i & 15];
    __syncthreads();
    if (y[i ^ 128] > 1.0f) y[i] = 1.0f;
}
extern "C" __global__ void reads_others(const float* x, float* y, int n) {
    int i = blockIdx.x * 256 + threadIdx.x;
    if (i % 4 == 0) y[i] = x[i & 15];
    if (y[i ^ 2] > 1.0f) y[i] = 1.0f;
}
extern "C" __global__ void less_further_on(const float* x, float* y, int n) {
    work(x, y, n, blockIdx.x < 800 ? 256 : 128);
}
extern "C" __global__ void of_the_last_row(const float* x, float* y, int n) {
    if (blockIdx.y == gridDim.y - 1) y[blockIdx.x * 256 + threadIdx.x] = x[threadIdx.x];
}
extern "C" __global__ void of_most_of_the_last_row(const float* x, float* y, int n) {
    if (blockIdx.x != 3 && blockIdx.y == gridDim.y - 1) y[blockIdx.x * 256 + threadIdx.x] = *x;
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
    found = _joining(BlockRuns(asked, BUDGET, [Y]), {Y: 4 * N})
    assert found == Joining(axis, grid[axis] - 1)
    assert _joining(BlockRuns(asked, BUDGET, [X]), {X: 4 * N}) is None


@pytest.mark.parametrize(
    ("name", "found"),
    [("side_by_side", Joining(0, 7)), ("handed_on", Joining(0, 1)), ("edges_in_common", None)],
)
def test_it_is_found_how_far_blocks_reach(
    timed: TimedKernels, name: str, found: Joining | None
) -> None:
    asked = timed.asked(name, 400, 256, N)
    assert _joining(BlockRuns(asked, BUDGET, [Y]), {Y: 4 * N}) == found


@pytest.mark.parametrize("axis", [0, 1, 2])
@pytest.mark.parametrize("extent", [4, 32])
def test_all_blocks_along_an_axis_are_chosen_together(axis: int, extent: int) -> None:
    grid = tuple(extent if each == axis else 20 for each in range(3))
    x, y, _ = grid
    joining = Joining(axis, extent - 1)
    near, apart, beside = together(grid, 200, joining, random.Random(1))  # type: ignore[arg-type]
    assert not apart and not beside and 168 < len(near) == len(set(near)) <= 200
    at = [(block % x, block // x % y, block // x // y) for block in near]
    lines = Counter(tuple(c for a, c in enumerate(each) if a != axis) for each in at)
    assert set(lines.values()) == {extent}


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize(("extent", "count", "reach"), [(2816, 1200, 7), (264, 80, 1), (40, 36, 3)])
def test_of_stretches_all_blocks_are_known_that_reach_into_them(
    extent: int, count: int, reach: int, seed: int
) -> None:
    near, apart, beside = together((extent, 1, 1), count, Joining(0, reach), random.Random(seed))
    ran = set(near)
    assert not apart and count * 0.7 < len(ran) == len(near) <= count
    reaching = {
        each for each in range(extent)
        if each not in ran and ran & set(range(each - reach, each + reach + 1))
    }  # fmt: skip
    assert set(beside) == reaching and 0 < len(reaching) <= len(ran) / 4


def test_what_blocks_beside_would_touch_is_noted_and_nothing_of_them_stays(
    timed: TimedKernels,
) -> None:
    asked = timed.asked("side_by_side", 400, 256, N)
    runner, found = BlockRuns(asked, BUDGET, [Y]), {}
    note_open(runner, [8, 15, 24], {Y: 4 * N}, found)
    assert sorted({*np.concatenate(found[Y])}) == [*range(32, 64), *range(96, 128)]
    assert not runner.ran and not runner.atomics(Y).size


def test_what_blocks_write_is_counted_in_bytes_and_once(timed: TimedKernels) -> None:
    assert share(timed, "seven_of_eight", 0) == pytest.approx(7 / 8)


@pytest.mark.parametrize(
    ("name", "of_x", "of_y"), [("reads_its_own", 64, 0), ("reads_others", 16, 4 * 256 * 3 // 4)]
)
def test_what_blocks_read_and_have_not_written_is_counted(
    timed: TimedKernels, name: str, of_x: int, of_y: int
) -> None:
    runner = BlockRuns(timed.asked(name, BLOCKS, 256, N), BUDGET, [X, Y])
    result = runner.run([5, 6, 900])
    assert result.uses[X].read_bytes == of_x and result.uses[Y].read_bytes == 3 * of_y


@pytest.mark.parametrize("near", [range(800), range(700, 900), range(1200, 2000)])
def test_neighbours_that_ran_are_known_and_those_drawn_stand_for_the_rest(
    timed: TimedKernels, near: range
) -> None:
    runner = BlockRuns(timed.asked("less_further_on", BLOCKS, 256, N), 4 * BUDGET, [Y])
    runner.run(near)
    others = [block for block in range(BLOCKS) if block not in near]
    runner.run(random.Random(2).sample(others, 150), random=True)
    found = written_of(runner, BLOCKS, 8192, random.Random(1), {Y: 4 * N}, 0)
    share = found[Y].grid_bytes / (4 * (800 * 256 + 1200 * 128))
    assert 1.0 <= share + 1e-9 and share < (1.0 + 1e-9 if near == range(800) else 1.12)


@pytest.mark.parametrize(
    ("name", "whole"), [("of_the_last_row", 10), ("of_most_of_the_last_row", 9)]
)
def test_of_an_output_that_few_blocks_write_the_rims_tell(
    timed: TimedKernels, name: str, whole: int
) -> None:
    runner, size = BlockRuns(timed.asked(name, (10, 200, 1), 256, N), BUDGET, [Y]), 256 * 10 * 4
    near, alone, _ = together((10, 200, 1), 200, None, random.Random(1))
    assert {0, 9, 1990, 1999} <= set(near)
    runner.run(near)
    runner.run(alone, random=True)
    found = written_of(runner, BLOCKS, 100, random.Random(1), {Y: size}, 1 << 20, thorough=True)
    assert found[Y].grid_bytes == pytest.approx(whole / 10 * size)
    assert found[Y].raised == 0


@pytest.mark.parametrize("seed", range(20))
def test_some_blocks_of_each_rim_run_that_are_no_corners(seed: int) -> None:
    near, _, _ = together((160, 8, 1), 100, None, random.Random(seed))
    assert sum(block % 160 == 0 and 0 < block // 160 < 7 for block in near) >= 2


def test_an_estimate_of_few_that_differ_is_raised(timed: TimedKernels) -> None:
    raised = []
    for name in ("whole", "of_the_last_row"):
        runner = BlockRuns(timed.asked(name, (10, 200, 1), 256, N), BUDGET, [Y])
        # Of ten blocks that write to it one was drawn.
        runner.run([*random.Random(3).sample(range(1990), 149), 1995], random=True)
        (found,) = written_of(runner, BLOCKS, 100, random.Random(1), {Y: 4 * N}, 0).values()
        raised.append(found.raised / found.grid_bytes)
    assert raised[0] == 0 and raised[1] > UNSURE


def test_where_nothing_is_joined_some_blocks_are_drawn_by_themselves() -> None:
    near, apart, _ = together((40, 30, 2 * MOST_BEHIND), 100, None, random.Random(1))
    assert len(apart) == 25 and not set(near) & set(apart)
