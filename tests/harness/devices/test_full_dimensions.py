"""What the simulated device says of kernels that are right at shrunken dimensions only."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
from full_size_kernels import (
    BUGS,
    CHEATS,
    FEW_BLOCKS_DO_ALL,
    HONEST,
    PRODUCT_TASK,
    SMALL,
    TASKS,
    Kernel,
)
from often_or_seldom import every

from kernelblaster.harness.devices.protocol import Measurement
from kernelblaster.harness.devices.simulated.device import SimulatedDevice
from kernelblaster.harness.devices.simulated.full_dimensions import sampled_answer
from kernelblaster.harness.judge.full_size_findings import Checked, incomplete
from kernelblaster.harness.records.evaluations import StageResult
from kernelblaster.harness.records.outcomes import Outcome
from kernelblaster.harness.records.tasks import Task
from kernelblaster.harness.task.loading import load_task


@pytest.fixture(scope="module")
def device() -> SimulatedDevice:
    return SimulatedDevice("H200")


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("tasks")


async def judged(device: SimulatedDevice, folder: Path, kernel: Kernel) -> list[Measurement]:
    """Verify, which must pass, profile, and confirm what passed."""
    path = folder / f"{kernel.task}.py"
    path.write_text(TASKS[kernel.task])
    task: Task = await load_task(path, SMALL.get(kernel.task))
    verdict = await device.verify(task, kernel.source)
    assert verdict.outcome is Outcome.PASSED, f"at shrunken dimensions: {verdict.reason}"
    found = [await device.profile(task, kernel.source)]
    if found[0].stage.outcome is Outcome.PASSED:
        found.append(await device.profile(task, kernel.source, sample=1))
    return found


def first_word(name: str) -> str:
    """Return the first that may be said of a kernel: by what rule it does not pass."""
    return (CHEATS | BUGS)[name].words.split("|")[0]


@pytest.mark.parametrize("name", every(40, CHEATS | BUGS, first_word))
async def test_what_is_wrong_at_full_dimensions_does_not_pass(
    device: SimulatedDevice, folder: Path, name: str
) -> None:
    kernel = (CHEATS | BUGS)[name]
    *_, last = await judged(device, folder, kernel)
    assert last.stage.outcome is not Outcome.PASSED and last.timing is None, last.stage.facts
    assert re.search(kernel.words, last.stage.reason), last.stage.reason


@pytest.mark.seldom
async def test_where_a_few_blocks_do_all_their_time_is_told_or_none(
    device: SimulatedDevice, folder: Path
) -> None:
    """Every row by a block of its own takes some ten microseconds."""
    for measured in await judged(device, folder, FEW_BLOCKS_DO_ALL):
        if measured.stage.outcome is Outcome.PASSED:
            assert measured.timing is not None and measured.timing.microseconds > 300
        else:
            assert "differ so much" in measured.stage.reason


@pytest.mark.parametrize("name", every(12, HONEST))
async def test_honest_neighbours_pass(device: SimulatedDevice, folder: Path, name: str) -> None:
    for measured in await judged(device, folder, HONEST[name]):
        assert measured.timing is not None, measured.stage.reason
    assert "full_size_unchecked" not in measured.stage.facts
    coverage = str(measured.stage.facts["full_size_coverage"])
    assert coverage.startswith("all of the elements compared; all of the blocks run, in two orders")


@pytest.mark.seldom
async def test_of_what_is_too_much_work_that_is_compared_which_no_missing_block_feeds(
    device: SimulatedDevice, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    simulated = "kernelblaster.harness.devices.simulated.device"
    monkeypatch.setattr(f"{simulated}.WIDE_INSTRUCTIONS", 6_000_000)
    path = folder / "large_product.py"
    path.write_text(PRODUCT_TASK.replace("N = 256", "N = 512"))
    task = await load_task(path)
    right = HONEST["parts of K are added by another launch"]
    confirmed = await device.profile(task, right.source, sample=1)
    assert confirmed.timing is not None, confirmed.stage.reason
    assert 20_000 < int(confirmed.stage.facts["full_size_checked"]) < 512 * 512
    assert "hang on blocks that were not run" in str(confirmed.stage.facts["full_size_unchecked"])
    wrong = CHEATS["a quarter of K is left out by way of the workspace"]
    refused = await device.profile(task, wrong.source, sample=1)
    assert refused.stage.outcome is Outcome.WRONG_ANSWER, refused.stage.facts


async def test_an_estimate_that_too_little_is_written_is_refuted_by_all_blocks(
    device: SimulatedDevice, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Few blocks of a persistent kernel may all be those that have one tile, and others two."""
    draws: list[str] = []

    def amiss(
        runs: Any, planned: Any, cases: Any, full_case: Any, draw: str
    ) -> tuple[Any, StageResult | None, Checked]:
        reply, failed, checked = sampled_answer(runs, planned, cases, full_case, draw)
        draws.append(draw)
        if not draw.endswith("again"):
            failed, checked = incomplete(task.full.of_role("output")[0], 0.94), Checked(0)
        return reply, failed, checked

    simulated = "kernelblaster.harness.devices.simulated"
    monkeypatch.setattr(f"{simulated}.device.sampled_answer", amiss)
    path = folder / "product_of_few.py"
    path.write_text(PRODUCT_TASK)
    task = await load_task(path)
    right = HONEST["parts of K are added by another launch"].source
    for budget, drawn in ((60_000_000, ["", " again"]), (1_000_000, ["", " again"])):
        monkeypatch.setattr(f"{simulated}.device.WIDE_INSTRUCTIONS", budget)
        found = await device.profile(task, right)
        assert found.timing is not None and draws == drawn, found.stage.reason
        draws.clear()
    monkeypatch.setattr(f"{simulated}.full_dimensions.WHOLE_INSTRUCTIONS", 1_000_000)
    found = await device.profile(task, right)
    assert found.stage.outcome is Outcome.UNSUPPORTED and draws == [""]


async def test_a_counter_over_too_much_work_is_named_at_once(
    device: SimulatedDevice, folder: Path
) -> None:
    path = folder / "huge_product.py"
    path.write_text(PRODUCT_TASK.replace("N = 256", "N = 2048"))
    task = await load_task(path)
    source = HONEST["tiles are taken from a counter"].source
    measured = await device.profile(task, source)
    assert measured.stage.outcome is Outcome.UNSUPPORTED
    assert re.search(r"atom\.global\.add.*line \d+", measured.stage.reason), measured.stage.reason
    assert "needs a real GPU" in measured.stage.reason
