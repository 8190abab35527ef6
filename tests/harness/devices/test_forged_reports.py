"""What a device makes of reports that no honest process writes: a failure, never a traceback."""

from __future__ import annotations

import asyncio
import copy
import json
from collections.abc import Callable, Iterator
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pytest
import simulated_kernels as kernels

from kernelblaster.harness.devices.simulated.device import SimulatedDevice
from kernelblaster.harness.devices.simulated.time_taken import measured
from kernelblaster.harness.gpus import Gpu
from kernelblaster.harness.judge.border import Malformed, read_report
from kernelblaster.harness.judge.full_size import judge_full_size
from kernelblaster.harness.judge.full_size_findings import Checked
from kernelblaster.harness.records.builds import Build
from kernelblaster.harness.records.outcomes import Outcome
from kernelblaster.harness.records.tasks import Task
from kernelblaster.harness.simt import child
from kernelblaster.harness.simt.counters import ProfileReport
from kernelblaster.harness.task.loading import load_task

Read = Callable[[Path, str], dict[str, Any] | None]

COPIES = kernels.WORKSPACE_AND_TWO_LAUNCHES


@pytest.fixture(scope="module")
def device() -> SimulatedDevice:
    return SimulatedDevice("H200")


@pytest.fixture(scope="module")
def task(tmp_path_factory: pytest.TempPathFactory) -> Task:
    path = tmp_path_factory.mktemp("tasks") / "scale.py"
    path.write_text(kernels.SCALE_TASK)
    return asyncio.run(load_task(path))


def forging(monkeypatch: pytest.MonkeyPatch, change: Callable[[dict[str, Any]], Any]) -> None:
    honest: Read = child._read

    def read(path: Path, token: str) -> dict[str, Any] | None:
        found = honest(path, token)
        assert found is not None
        change(found)
        return found

    monkeypatch.setattr(child, "_read", read)


CHANGES: dict[str, Callable[[dict[str, Any]], Any]] = {
    "a key too many": lambda report: report.update(verdict="passed"),
    "no list": lambda report: report.update(isolation_missing=7),
    "half of a report": lambda report: report.pop("cases" if "cases" in report else "launches"),
}


@pytest.mark.parametrize("name", CHANGES)
async def test_a_forged_report_fails_the_candidate(
    device: SimulatedDevice, task: Task, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    forging(monkeypatch, CHANGES[name])
    for stage in (
        await device.verify(task, kernels.SCALE),
        (await device.profile(task, kernels.SCALE)).stage,
    ):
        assert stage.outcome is Outcome.CRASHED and "a report that cannot be" in stage.reason
        assert stage.diagnostics


async def test_a_launch_of_nothing_has_no_time(
    device: SimulatedDevice, task: Task, monkeypatch: pytest.MonkeyPatch
) -> None:
    forging(monkeypatch, lambda report: report["launches"][0].update(grid=[0, 1, 1]))
    measured = await device.profile(task, kernels.SCALE)
    assert measured.stage.outcome is Outcome.CRASHED and "of nothing" in measured.stage.reason
    assert measured.timing is None


def leaves(value: Any, place: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    yield place
    if isinstance(value, dict | list):
        for step, part in value.items() if isinstance(value, dict) else enumerate(value):
            yield from leaves(part, (*place, step))


ODD = (None, -1, 0, 1 << 61, 0.5, float("nan"), 1e300, "", "x" * 70_000, True, [], {}, [[]])


async def test_no_odd_value_anywhere_in_a_profile_is_more_than_a_failure(
    device: SimulatedDevice, task: Task, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    kept: list[ProfileReport] = []

    def keep(gpu: Gpu, report: ProfileReport, *given: Any) -> Any:
        kept.append(report)
        return measured(gpu, report, *given)

    monkeypatch.setattr("kernelblaster.harness.devices.simulated.device.measured", keep)
    await device.profile(task, COPIES)
    (report,) = kept
    honest = json.loads(json.dumps(asdict(report)))
    for launch in honest["launches"]:  # Two samples and two lines stand for the others.
        if "samples" in launch:
            launch["samples"] = launch["samples"][:2]
        for sample in launch.get("samples", []):
            sample["lines"] = dict(list(sample["lines"].items())[:2])
    assert read_report(ProfileReport, honest).launches
    build = Build(key="k", succeeded=True, arch="sm_90", compiler="nvcc")
    refused = taken = 0
    escaped: set[str] = set()
    for place in list(leaves(honest))[1:]:
        for odd in ODD:
            forged = copy.deepcopy(honest)
            part = forged
            for step in place[:-1]:
                part = part[step]
            part[place[-1]] = odd
            try:
                found = read_report(ProfileReport, forged)
                child.require_sense(found)
                judge_full_size(task, None, found.launches, tmp_path)
                measured(device.gpu, found, build, Checked(0), False)
                taken += 1
            except Malformed:
                refused += 1
            except Exception as error:
                escaped.add(f"{place} {odd!r:.20}: {error!r:.200}")
    assert not escaped
    assert refused > taken > 0
