"""A machine that cannot run candidates is the user's to mend, and no candidate's outcome."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import simulated_kernels as kernels

from kernelblaster.harness.devices.simulated import runs
from kernelblaster.harness.devices.simulated.device import SimulatedDevice
from kernelblaster.harness.errors import UserError
from kernelblaster.harness.process.children import TimedOut
from kernelblaster.harness.records.outcomes import Outcome
from kernelblaster.harness.records.tasks import Task
from kernelblaster.harness.simt import child
from kernelblaster.harness.task.loading import load_task


@pytest.fixture(scope="module")
def task(tmp_path_factory: pytest.TempPathFactory) -> Task:
    path = tmp_path_factory.mktemp("tasks") / "scale.py"
    path.write_text(kernels.SCALE_TASK)
    return asyncio.run(load_task(path))


def with_limits(monkeypatch: pytest.MonkeyPatch, **changes: Any) -> SimulatedDevice:
    monkeypatch.setattr(
        runs, "Limits", lambda **given: child.Limits(**{**given, **changes})
    )
    return SimulatedDevice("H100")


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        # Python starts; the simulated GPU's 80 GB do not fit.
        ({"address_space": 32 << 30}, "cannot reserve 80"),
        # Not even what is imported does.
        ({"address_space": 64 << 20}, "does not start on this machine"),
    ],
)
async def test_what_fails_before_the_candidate_is_loaded_is_not_its_fault(
    task: Task, monkeypatch: pytest.MonkeyPatch, changes: dict[str, Any], words: str
) -> None:
    device = with_limits(monkeypatch, **changes)
    for stage in (device.verify, device.profile):
        with pytest.raises(UserError, match=words) as caught:
            await stage(task, kernels.SCALE)
        assert "\n" not in str(caught.value) and "ulimit" in str(caught.value)


async def test_a_worker_that_never_reads_its_request_is_the_machines_fault(
    task: Task, monkeypatch: pytest.MonkeyPatch
) -> None:
    def too_late(*_: Any, **__: Any) -> int:
        raise TimedOut

    monkeypatch.setattr(child, "run_forked", too_late)
    device = with_limits(monkeypatch, seconds=7.0)
    for stage in (device.verify, device.profile):
        with pytest.raises(UserError, match="no start within 70 s"):
            await stage(task, kernels.SCALE)


async def test_what_fails_after_it_is(task: Task, monkeypatch: pytest.MonkeyPatch) -> None:
    device = SimulatedDevice("H100")
    for name, (source, outcomes, _) in kernels.WRONG.items():
        if "crashed" in outcomes.split("|"):
            result = await device.verify(task, source)
            assert result.outcome is Outcome.CRASHED, name
            return
    raise AssertionError("no kernel of the collection crashes")


@pytest.mark.slow
def test_evaluate_under_a_limit_of_the_shell(tmp_path: Path) -> None:
    (tmp_path / "scale.py").write_text(kernels.SCALE_TASK)
    (tmp_path / "scale.cu").write_text(kernels.SCALE)
    done = subprocess.run(
        ["/bin/sh", "-c", 'ulimit -v 60000000; exec "$@"', "sh", sys.executable, "-m",
         "kernelblaster", "evaluate", str(tmp_path / "scale.cu"), "--task",
         str(tmp_path / "scale.py"), "--device", "simulated", "--gpu", "H100"],
        env={**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
        capture_output=True, text=True, timeout=200,
    )  # fmt: skip
    assert done.returncode == 2 and "cannot reserve" in done.stderr, done.stderr
    assert "Traceback" not in done.stderr and done.stderr.count("\n") == 1
