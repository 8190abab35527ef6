"""Atomics elsewhere make neither hot ones nor stores of a part of a sector any cheaper."""

from __future__ import annotations

import pytest
from support.timed_kernels import Timed, TimedKernels

SOURCE = r"""
#define KERNEL(NAME, WORK, MORE) \
    extern "C" __global__ void NAME(const float *x, float *y, int n) { \
        int i = blockIdx.x * 256 + threadIdx.x; \
        if (i < n) { WORK MORE } \
    }
#define HOT atomicAdd(y + i % 64, x[i]);
#define IN_PART y[i * 8] = x[i * 8];
#define ELSEWHERE atomicAdd(y + (1 << 23) + i, 0.f);
KERNEL(hot, HOT, )
KERNEL(hot_and_elsewhere, HOT, ELSEWHERE)
KERNEL(in_part, IN_PART, )
KERNEL(in_part_and_elsewhere, IN_PART, ELSEWHERE)
KERNEL(elsewhere, ELSEWHERE, )
#define USED y[1024 + i] = atomicAdd((int *)y + i % 2, (int)x[i]);
#define COUNTED atomicAdd((int *)y + 512, 1);
#define FLOATS y[1024 + i] = atomicAdd(y + i % 2, x[i]);
KERNEL(floats, FLOATS, )
KERNEL(floats_and_counted, FLOATS, COUNTED)
KERNEL(used, USED, )
KERNEL(used_and_counted, USED, COUNTED)
KERNEL(counted, COUNTED, )
#define LONG float u = x[i]; \
    _Pragma("unroll 1") for (int k = 0; k < 3000; k++) u = u * 1.5f + 2.f; \
    if (u == 0.3f) y[0] = u;
#define OF_ALL LONG if (threadIdx.x % 32 == 0) atomicAdd(y, x[i]);
#define OWN atomicAdd(y + (1 << 23) + blockIdx.x * 32, x[i]);
KERNEL(of_all, OF_ALL, )
KERNEL(of_all_and_own, OF_ALL, OWN OWN OWN OWN)
"""


@pytest.fixture(scope="module")
def timed(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Timed]:
    kernels = TimedKernels(SOURCE, tmp_path_factory.mktemp("contention"))
    names = ("hot", "hot_and_elsewhere", "in_part", "in_part_and_elsewhere", "elsewhere", "used",
             "used_and_counted", "counted", "floats", "floats_and_counted", "of_all",
             "of_all_and_own")  # fmt: skip
    return {name: kernels.run(name, 2048, 256, 1 << 19) for name in names}


def test_hot_lines_take_as_long_beside_others(timed: dict[str, Timed]) -> None:
    alone, both = timed["hot"], timed["hot_and_elsewhere"]
    assert both.profile.microseconds >= alone.profile.microseconds
    assert both.profile.terms["atomic"] == pytest.approx(alone.profile.terms["atomic"], rel=0.05)
    assert (alone.counters.contended_lines, alone.counters.contended_share) == (2.0, 1.0)
    assert both.counters.contended_share == pytest.approx(0.5, abs=0.01)


def test_lines_that_are_all_alike_count_all(timed: dict[str, Timed]) -> None:
    found = timed["elsewhere"].counters
    assert found.contended_lines == found.atomic_lines > 1000 and found.contended_share == 1.0


@pytest.mark.parametrize("name", ["used", "floats"])
def test_atomics_for_which_a_lane_is_elected_make_others_no_faster(
    timed: dict[str, Timed], name: str
) -> None:
    alone, both, counted = timed[name], timed[f"{name}_and_counted"], timed["counted"]
    assert both.profile.microseconds >= alone.profile.microseconds
    assert both.profile.terms["atomic"] == pytest.approx(alone.profile.terms["atomic"], rel=0.1)
    (sample, *_) = counted.counters.samples
    assert sample.hottest_atomic == (1 << 19) / 32


def test_a_hot_word_of_each_block_hides_none_of_all_blocks(timed: dict[str, Timed]) -> None:
    for name in ("of_all", "of_all_and_own"):
        counters = timed[name].counters
        assert counters.sampled_blocks < 200
        for sample in counters.samples:
            assert sample.hottest_atomic == pytest.approx((1 << 19) / 32)


def test_a_store_of_a_part_of_a_sector_reads_the_rest_beside_atomics(
    timed: dict[str, Timed],
) -> None:
    alone, both = timed["in_part"], timed["in_part_and_elsewhere"]
    assert alone.counters.filled_bytes == pytest.approx((1 << 19) * 28)
    assert both.counters.filled_bytes == pytest.approx(alone.counters.filled_bytes, rel=0.05)
    assert both.profile.microseconds >= alone.profile.microseconds
    assert timed["elsewhere"].counters.filled_bytes == 0
