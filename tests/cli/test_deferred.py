"""A deferred run as a user does it: three commands, real compiler, simulated GPU host."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from typing import Any

import pytest
import simulated_kernels as kernels
from asked import Asked
from commands import assert_one_clear_line, kernelblaster
from deferred_support import advance
from places import EXAMPLES, resized
from slim_host import run_slim

from kernelblaster.harness.devices.job_records import read_results
from kernelblaster.memory.run.exchange import export_jobs, import_results
from kernelblaster.nodes.records.result import RunResult

SMALL = ("--iterations", "1", "--rollouts", "2", "--steps", "1", "--seed", "3", "--shapes", "0",
         "--gpu", "H100")  # fmt: skip


def answered(done: subprocess.CompletedProcess[str]) -> dict[str, Any]:
    assert done.returncode == 0, done.stdout + done.stderr
    found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return found


@pytest.fixture(scope="module")
def task(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An example, of a small matrix: that of test_main_job, whose kernels are compiled then."""
    return resized(EXAMPLES / "softmax.py", tmp_path_factory.mktemp("task"), ROWS=512, COLUMNS=1024)


def small(task: Path, folder: Path, device: str) -> Asked:
    """What SMALL asks for, for runs inside this process."""
    return Asked.of(
        task=str(task), gpu="H100", device=device, knowledge=str(folder / "kb"),
        iterations=1, rollouts=2, steps=1, seed=3, shapes=0,
    )  # fmt: skip


def comparable(result: RunResult) -> dict[str, Any]:
    place = {"run", "best_source", "lessons", "device", "notes"}
    return result.model_dump(mode="json", exclude=place)


@pytest.mark.seldom
@pytest.mark.slow
def test_rounds_through_a_slim_host_end_as_the_direct_run(task: Path, tmp_path: Path) -> None:
    (tmp_path / "direct").mkdir()
    direct = advance(tmp_path / "direct" / "run", small(task, tmp_path / "direct", "simulated"))
    assert isinstance(direct, RunResult)
    run = tmp_path / "run"
    ended = advance(run, small(task, tmp_path, "deferred:simulated"))
    rounds = 0
    while not isinstance(ended, RunResult):
        jobs, results = tmp_path / f"jobs{rounds}.json", tmp_path / f"results{rounds}.json"
        assert export_jobs([run], jobs) == {str(run): ended}
        done = run_slim(jobs, results, "auto")
        assert done.returncode == 0, done.stderr
        import_results(run, read_results(results), results)
        ended = advance(run)
        rounds += 1
    assert rounds >= 3  # The first kernel, the step, the confirmation.
    assert comparable(ended) == comparable(direct)
    assert (run / "best.cu").read_text() == (tmp_path / "direct/run/best.cu").read_text()
    assert "another host: simulated H100" in (run / "report.txt").read_text()


@pytest.mark.seldom
@pytest.mark.slow
def test_the_three_commands(task: Path, tmp_path: Path) -> None:
    run, jobs, results = (tmp_path / name for name in ("run", "jobs.json", "results.json"))
    started = kernelblaster(
        "optimize", task, *SMALL, "--device", "deferred:simulated",
        "--run", run, "--kb", tmp_path / "kb", "--json",
    )  # fmt: skip
    assert answered(started) == {"outcome": "waiting", "jobs": 1, "run": str(run)}
    exported = answered(kernelblaster("jobs", "export", run, "-o", jobs, "--json"))
    assert exported["runs"] == {str(run): 1}
    ran = answered(kernelblaster("jobs", "run", jobs, "-o", results, "--json"))
    assert ran["ran"] == 1 and ran["outcomes"] == {"passed": 1}
    gone_on = answered(kernelblaster("resume", run, "--results", results, "--json"))
    assert gone_on["outcome"] == "waiting" and gone_on["jobs"] >= 1


@pytest.mark.seldom
@pytest.mark.slow
def test_waiting_is_said_in_words_and_bad_files_in_one_line(task: Path, tmp_path: Path) -> None:
    run = tmp_path / "run"
    started = kernelblaster(
        "optimize", task, *SMALL, "--device", "deferred", "--run", run
    )
    assert started.returncode == 0, started.stderr
    assert f"1 job waits for the GPU host; export with: kernelblaster jobs export {run}" in (
        started.stdout.splitlines()[-1]
    )
    (tmp_path / "no.json").write_text("no")
    for name, word in (("none.json", "no such file"), ("no.json", "not JSON")):
        done = kernelblaster("resume", run, "--results", tmp_path / name)
        assert_one_clear_line(done, word)
    assert_one_clear_line(kernelblaster("report", run), "waits for 1 job of the GPU host")
    waits = answered(kernelblaster("resume", run, "--json"))
    assert waits["outcome"] == "waiting" and waits["jobs"] == 1
    jobs = tmp_path / "jobs.json"
    assert "jobs run" in kernelblaster("jobs", "export", run, "-o", jobs).stdout
    left = kernelblaster("jobs", "run", jobs, "-o", tmp_path / "r.json", "--device", "simulated")
    assert left.returncode == 2 and "results from cuda" in left.stderr
    listed = json.loads(
        kernelblaster("runs", "--json", KERNELBLASTER_RUNS=str(tmp_path)).stdout
    )
    assert listed["runs"][0]["status"] == "waiting"


def test_a_deferred_device_evaluates_no_single_file(tmp_path: Path) -> None:
    (tmp_path / "scale.py").write_text(kernels.SCALE_TASK)
    (tmp_path / "scale.cu").write_text(kernels.SCALE)
    done = kernelblaster(
        "evaluate", tmp_path / "scale.cu", "--task", tmp_path / "scale.py",
        "--device", "deferred", "--gpu", "H200",
    )  # fmt: skip
    assert_one_clear_line(done, "device deferred gives no result at once", "optimize")


