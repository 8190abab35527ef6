"""`jobs run`: each job through every gate, each result kept, a file that is data and no more."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import deferred_support
import graph_support
import pytest
from deferred_support import open_text, run_jobs_on_text
from text_jobs import job_of, lay_out

from kernelblaster.harness.devices.job_records import (
    read_jobs,
    read_results,
)
from kernelblaster.harness.devices.protocol import Capability, Measurement
from kernelblaster.harness.errors import UserError
from kernelblaster.harness.jobs import command as harness_jobs
from kernelblaster.harness.jobs import run as job_run
from kernelblaster.harness.records.evaluations import DeviceIdentity, StageResult
from kernelblaster.harness.records.identity import sha256_of_json
from kernelblaster.harness.records.tasks import Task

GOOD = "us: 10.0\n"
SOURCES = [f"{GOOD}variant: {number}\n" for number in range(4)]


@pytest.fixture(autouse=True)
def text_tasks(monkeypatch: pytest.MonkeyPatch) -> None:
    deferred_support.install(monkeypatch.setattr)


class Counting(graph_support.TextDevice):
    """Counts what it verifies and gives out where it is told to."""

    verified: list[str] = []
    give_out_at = 99

    async def verify(self, task: Task, source: str, sample: int = 0) -> StageResult:
        if len(self.verified) == self.give_out_at:
            raise RuntimeError("the machine went down")
        self.verified.append(source)
        return await super().verify(task, source, sample)


def counting(give_out_at: int = 99) -> tuple[list[str], job_run.Open]:
    verified: list[str] = []
    kind = type("Here", (Counting,), {"verified": verified, "give_out_at": give_out_at})
    return verified, lambda name, gpu, index: kind("H100")


def test_what_is_finished_is_kept_and_never_run_again(tmp_path: Path) -> None:
    jobs, results = lay_out(tmp_path, *map(job_of, SOURCES)), tmp_path / "results.json"
    verified, opened = counting(give_out_at=2)
    with pytest.raises(RuntimeError, match="went down"):
        run_jobs_on_text(jobs, results, opened)
    assert len(read_results(results).results) == len(verified) == 2
    again, opened = counting()
    summary = run_jobs_on_text(jobs, results, opened)
    assert (summary.ran, summary.known) == (2, 2)
    assert sorted(verified + again) == sorted(SOURCES)
    written = results.read_text()
    third, opened = counting()
    assert run_jobs_on_text(jobs, results, opened).ran == 0
    assert third == [] and results.read_text() == written


def test_a_failed_candidate_is_a_result(tmp_path: Path) -> None:
    sources = [GOOD, GOOD + "outcome: race\n", GOOD + "outcome: compile_error\n"]
    jobs, results = lay_out(tmp_path, *map(job_of, sources)), tmp_path / "results.json"
    summary = run_jobs_on_text(jobs, results)
    assert summary.outcomes == {"passed": 1, "race": 1, "compile_error": 1}
    assert not summary.unanswered
    failed = [found for found in read_results(results).results if found.measured is None]
    assert len(failed) == 2 and all(found.verified.reason for found in failed)


def test_confirmation_asks_for_fresh_processes_and_another_sample(tmp_path: Path) -> None:
    asked: list[str] = []

    class Confirming(graph_support.TextDevice):
        @property
        def capabilities(self) -> frozenset[Capability]:
            return frozenset({Capability.CONFIRM, Capability.FRESH})

        async def confirm(self, task: Task, source: str, sample: int = 0) -> StageResult:
            asked.append("confirm")
            return await self.verify(task, source)

        async def time_fresh(self, task: Task, source: str) -> Measurement:
            asked.append("fresh")
            return await super().profile(task, source)

        async def profile(self, task: Task, source: str, sample: int = 0) -> Measurement:
            asked.append(f"sample {sample}")
            return await super().profile(task, source, sample)

    jobs = lay_out(tmp_path, job_of(GOOD, kind="confirm"), job_of(SOURCES[1]))
    run_jobs_on_text(jobs, tmp_path / "r.json", lambda kind, gpu, index: Confirming("H100"))
    assert asked == ["confirm", "fresh", "sample 0"]


def test_several_gpus_share_the_jobs(tmp_path: Path) -> None:
    took: dict[int, list[str]] = {0: [], 1: []}

    def opened(kind: str, gpu: str, index: int) -> Any:
        class Numbered(graph_support.TextDevice):
            @property
            def identity(self) -> DeviceIdentity:
                return super().identity.model_copy(update={"kind": "cuda", "gpu": "NVIDIA H100"})

            async def verify(self, task: Task, source: str, sample: int = 0) -> StageResult:
                took[index].append(source)
                await asyncio.sleep(0.05)
                return StageResult(outcome="wrong_answer", reason="as told")

        return Numbered("H100")

    jobs = lay_out(tmp_path, *(job_of(source, executor="cuda") for source in SOURCES))
    summary = run_jobs_on_text(jobs, tmp_path / "results.json", opened, gpus=(0, 1))
    assert summary.ran == 4 and took[0] and took[1]
    assert sorted(took[0] + took[1]) == sorted(SOURCES)


def test_a_task_that_fails_costs_its_own_jobs_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def load(path: Path, *given: Any) -> Task:
        if path.stem == "broken":
            raise UserError(f"{path}: its forward() raises RuntimeError: broken inside")
        return graph_support.text_task(path.stem)

    monkeypatch.setattr("kernelblaster.harness.jobs.run.load_task", load)
    good = job_of(GOOD)
    broken = job_of(
        SOURCES[1], task=good.task.model_copy(update={"name": "broken", "id": "1" * 64})
    )
    jobs = lay_out(tmp_path, broken, good)
    said: list[str] = []
    summary = run_jobs_on_text(jobs, tmp_path / "results.json", say=said.append)
    assert summary.ran == 1 and len(said) == 1
    (reason,) = summary.unanswered
    assert "1 job: broken.py: its forward() raises" in reason and "/tmp" not in reason
    assert harness_jobs.conclude(summary, tmp_path / "results.json") == 2


def test_a_task_that_is_another_one_here_is_no_task_to_judge_by(tmp_path: Path) -> None:
    other = graph_support.text_task().model_copy(update={"reference_sha256": "1" * 64})
    job = job_of(GOOD, task=job_of(GOOD).task.model_copy(update={"id": other.id}))
    summary = run_jobs_on_text(lay_out(tmp_path, job), tmp_path / "results.json")
    assert summary.ran == 0 and "another task here" in summary.unanswered[0]


def test_jobs_for_another_gpu_or_kind_are_left_and_said(tmp_path: Path) -> None:
    device = deferred_support.DeferredTextDevice("A100").identity
    jobs = lay_out(tmp_path, job_of(GOOD), job_of(SOURCES[1], device=device))
    summary = run_jobs_on_text(jobs, tmp_path / "results.json")
    assert summary.ran == 1
    assert summary.unanswered == ("1 job: the GPU A100 is asked for, this is H100",)
    left = run_jobs_on_text(jobs, tmp_path / "other.json", device="cuda")
    assert left.ran == 0 and "--device leaves out" in left.unanswered[0]


def test_two_processes_do_not_write_one_file(tmp_path: Path) -> None:
    jobs, results = lay_out(tmp_path, job_of(GOOD)), tmp_path / "results.json"
    with job_run._held(results):
        with pytest.raises(UserError, match="written by another process"):
            run_jobs_on_text(jobs, results)
    assert run_jobs_on_text(jobs, results).ran == 1


Change = Callable[[dict[str, Any]], None]


def one_job(change: Change) -> Change:
    return lambda document: change(document["body"]["jobs"][0])


TAMPERED: dict[str, tuple[Change, str]] = {
    "another source": (one_job(lambda job: job.update(source="us: 1.0\n")), "key is not that"),
    "another task": (one_job(lambda job: job["task"].update(id="2" * 64)), "key is not that"),
    "a task that is a path": (one_job(lambda job: job["task"].update(name="../up")), "file name"),
    "a field too many": (one_job(lambda job: job.update(shell="rm -rf /")), "shell"),
    "a kind unknown": (one_job(lambda job: job.update(kind="obey")), "kind"),
    "no source": (one_job(lambda job: job.pop("source")), "source"),
    "jobs nobody asked for": (lambda document: document["body"].update(runs={}), "list other"),
    "no body": (lambda document: document.update(body=[]), "damaged"),
    "another version": (lambda document: document.update(format="kernelblaster-jobs/9"), "jobs/9"),
    "results": (lambda document: document.update(format="kernelblaster-results/1"), "results/1"),
    "another harness": (lambda document: document.update(harness="0"), "harness version '0'"),
}


@pytest.mark.parametrize("name", TAMPERED)
def test_a_jobs_file_is_checked_whole_before_anything_runs(tmp_path: Path, name: str) -> None:
    change, words = TAMPERED[name]
    path = lay_out(tmp_path, job_of(GOOD), job_of(SOURCES[1]))
    document = json.loads(path.read_text())
    change(document)
    document["sha256"] = sha256_of_json(document["body"])
    path.write_text(json.dumps(document))
    with pytest.raises(UserError) as caught:
        run_jobs_on_text(path, tmp_path / "results.json")
    assert words in str(caught.value) and "\n" not in str(caught.value)
    assert not (tmp_path / "results.json").exists()


def test_a_changed_byte_is_seen(tmp_path: Path) -> None:
    path = lay_out(tmp_path, job_of(GOOD))
    path.write_text(path.read_text().replace("us: 10.0", "us: 10.1"))
    with pytest.raises(UserError, match="sha256 does not match"):
        read_jobs(path)


FILES = {
    "no such file": (None, "no such file"),
    "not JSON": (b"{", "not JSON"),
    "not text": (b"\xff\xfe\x00", "not JSON"),
    "nested too deep": (b"[" * 200_000, "not JSON"),
    "another program's": (b'{"jobs": []}', "no file of this program"),
    "a list": (b"[1]", "no file of this program"),
}


@pytest.mark.parametrize("name", FILES)
def test_a_file_that_is_none_is_one_clear_line(
    tmp_path: Path, name: str, capsys: pytest.CaptureFixture[str]
) -> None:
    data, words = FILES[name]
    path = tmp_path / "jobs.json"
    if data is not None:
        path.write_bytes(data)
    code = harness_jobs.main(["run", str(path), "-o", str(tmp_path / "results.json")])
    said = capsys.readouterr().err
    assert code == 2 and words in said and said.count("\n") == 1


@pytest.mark.parametrize(
    "flags", [("--device", "abacus"), ("--gpus", "one"), ("--gpus", "0,0"), ("--gpus", "")]
)
def test_flags_that_mean_nothing(
    tmp_path: Path, flags: tuple[str, str], capsys: pytest.CaptureFixture[str]
) -> None:
    path = lay_out(tmp_path, job_of(GOOD))
    assert harness_jobs.main(["run", str(path), "-o", str(tmp_path / "r.json"), *flags]) == 2
    said = capsys.readouterr().err
    assert said.count("\n") == 1 and flags[0].strip("-")[:5] in said


def test_a_damaged_results_file_is_not_written_over(tmp_path: Path) -> None:
    jobs, results = lay_out(tmp_path, job_of(GOOD)), tmp_path / "results.json"
    results.write_text("my thesis")
    with pytest.raises(UserError, match="not JSON"):
        run_jobs_on_text(jobs, results, open_text)
    assert results.read_text() == "my thesis"
