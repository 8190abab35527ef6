"""A launch like an earlier one takes what that took, unless its blocks do other work."""

from __future__ import annotations

import random
from dataclasses import replace

import pytest
from support.timed_kernels import BUDGET, TimedKernels

from kernelblaster.harness.host.plan import Content, Place, PlannedLaunch, first_alike
from kernelblaster.harness.simt.sample.blocks import effort
from kernelblaster.harness.simt.sample.blocks.effort import FULL, Overspent, Shares
from kernelblaster.harness.simt.sample.repeats import repeated

SOURCE = """
extern "C" __global__ void same(const float* x, float* y, int n) {
    int i = blockIdx.x * 256 + threadIdx.x;
    float sum = 0.0f;
    for (int k = 0; k < 64; k++) sum += x[(i + k * 1024) % n];
    y[i] = sum;
}
extern "C" __global__ void other_elsewhere(const float* x, float* y, int n) {
    int i = blockIdx.x * 256 + threadIdx.x;
    float sum = 0.0f;
    int times = (unsigned long long)y % 8192 < 4096 ? 64 : 8;
    for (int k = 0; k < times; k++) sum += x[(i + k * 1024) % n];
    y[i] = sum;
}
"""
BLOCKS, N = 2000, 256 * 2000


@pytest.fixture(scope="module")
def timed(tmp_path_factory: pytest.TempPathFactory) -> TimedKernels:
    return TimedKernels(SOURCE, tmp_path_factory.mktemp("repeats"), floats=1 << 20)


@pytest.mark.parametrize(("name", "stands"), [("same", True), ("other_elsewhere", False)])
def test_blocks_bear_out_that_a_launch_is_like_another(
    timed: TimedKernels, name: str, stands: bool
) -> None:
    earlier = timed.run(name, BLOCKS, 256, N).counters
    other_half = 4096 - timed.memory.starts[1] % 4096
    asked = replace(timed.asked(name, BLOCKS, 256, N, further=other_half), like=3)
    before = timed.bytes.copy()
    found = repeated(asked, earlier, 20_000, BUDGET, random.Random(1), {}, {})
    if not stands:
        assert found is None and (timed.bytes == before).all()
        return
    assert found is not None and found.like == 3 and found.samples == []
    assert found.chain_clocks == earlier.chain_clocks
    assert 0 < found.sampled_blocks < earlier.sampled_blocks
    assert found.simulated < earlier.simulated / 20 and found.written[1].grid_bytes > 0


def _launch(*places: Place, number: int = 7, kernel: str = "k") -> PlannedLaunch:
    pointers = (Content("00" * 8, ((0, place),)) for place in places)
    scalar = Content(number.to_bytes(4, "little").hex())
    return PlannedLaunch(kernel, (4, 1, 1), (32, 1, 1), 0, (), (*pointers, scalar))


def test_launches_are_alike_but_for_addresses() -> None:
    sizes = {"a": 4096, "b": 4096, "c": 8192}
    a, b, c = Place("a", 0), Place("b", 0), Place("c", 0)
    launches = [
        _launch(a, b),
        _launch(b, a),
        _launch(a, Place("b", 256)),
        _launch(a, Place("b", 4)),
        _launch(a, a),
        _launch(Place("a", 128), a),
        _launch(a, c),
        _launch(a, b, number=8),
        _launch(a, b, kernel="other"),
        _launch(b, Place("a", 128)),
    ]
    assert first_alike(launches, sizes) == [0, 0, 0, 3, 4, 5, 6, 7, 8, 0]


def test_few_launches_take_all_they_can_use_and_many_share_a_budget(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    assert Shares(range(30)).effort() == FULL
    shares = Shares(range(320))
    assert shares.effort() == FULL.part(0.1)
    for _ in range(160):
        shares.take(100, first=True)
    assert 0.19 < shares.effort().sample / FULL.sample < 0.21
    steps = Shares([0] * 4001)
    assert steps.effort() == FULL and steps.repeat == effort.REPEAT_INSTRUCTIONS // 4000
    monkeypatch.setattr(effort, "MOST_INSTRUCTIONS", 1000)
    with pytest.raises(Overspent, match="over the limit"):
        shares.take(1001, first=False)
