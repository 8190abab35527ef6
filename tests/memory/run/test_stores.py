"""Artifacts, run store and replay buffer: written once, whole, with faults in one clear line."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from kernelblaster.harness.errors import UserError
from kernelblaster.harness.records.evaluations import (
    DeviceIdentity,
    Evaluation,
    StageResult,
    evaluation_key,
)
from kernelblaster.harness.records.identity import sha256_of
from kernelblaster.harness.records.outcomes import Outcome
from kernelblaster.harness.records.timings import Provenance, Timing
from kernelblaster.memory.records.evidence import Step
from kernelblaster.memory.run.artifacts import ArtifactStore
from kernelblaster.memory.run.run_store import RunStore

DEVICE = DeviceIdentity(kind="simulated", gpu="H100", arch="sm_90", toolchain="nvcc 13.0")


def evaluation(source: str, microseconds: float | None = 10.0) -> Evaluation:
    digest = sha256_of(source)
    timing = microseconds and Timing(
        microseconds=microseconds,
        samples=(microseconds,),
        interval=(microseconds, microseconds),
        method="time model",
        provenance=Provenance.SIMULATED,
    )
    return Evaluation(
        key=evaluation_key(digest, "task", DEVICE),
        source_sha256=digest,
        task_id="task",
        device=DEVICE,
        outcome=Outcome.PASSED if timing else Outcome.WRONG_ANSWER,
        reason="" if timing else "out0[0] is 1, expected 2",
        timing=timing or None,
    )


def step(iteration: int, rollout: int, number: int, technique: str = "unroll_loop") -> Step:
    return Step(
        run="r",
        iteration=iteration,
        rollout=rollout,
        step=number,
        state_id="dram_bandwidth_bound",
        technique=technique,
        expected_log_gain=0.1,
        outcome="passed",
        log_gain=0.2,
        parent_sha256="p",
        child_sha256="c",
        microseconds_before=12.0,
        microseconds_after=10.0,
        bottleneck_before="dram",
        bottleneck_after="dram",
        author="builtin",
    )


def test_artifacts_come_back_by_the_hash_of_their_content(tmp_path: Path) -> None:
    store = ArtifactStore(tmp_path / "artifacts")
    name = store.put_text("__global__ void k() {} // \u00fc")
    assert store.get_text(name) == "__global__ void k() {} // \u00fc"
    assert store.put_text("__global__ void k() {} // \u00fc") == name
    files = [path for path in (tmp_path / "artifacts").rglob("*") if path.is_file()]
    assert len(files) == 1


def test_a_missing_or_damaged_artifact_is_one_clear_line(tmp_path: Path) -> None:
    store = ArtifactStore(tmp_path)
    with pytest.raises(UserError, match="missing"):
        store.get_text("0" * 64)
    name = store.put_text("source")
    (tmp_path / name[:2] / name[2:]).write_text("other")
    with pytest.raises(UserError, match="damaged"):
        store.get_text(name)


def test_an_artifact_that_is_no_file_or_has_no_end_is_not_waited_for(tmp_path: Path) -> None:
    store = ArtifactStore(tmp_path)
    name = store.put_text("kernel")
    (path,) = (each for each in tmp_path.rglob("*") if each.is_file())
    os.truncate(path, 1 << 40)
    with pytest.raises(UserError, match="an artifact has at most"):
        store.get_text(name)
    path.unlink()
    os.mkfifo(path)
    with pytest.raises(UserError, match="is a pipe"):
        store.get_text(name)


def test_threads_may_store_the_same_artifact_at_once(tmp_path: Path) -> None:
    store = ArtifactStore(tmp_path)
    with ThreadPoolExecutor(8) as pool:
        names = set(pool.map(lambda i: store.put_text(f"text {i % 3}"), range(60)))
    assert len(names) == 3
    assert not list(tmp_path.rglob(".writing-*"))


def test_the_first_evaluation_under_a_key_stays(tmp_path: Path) -> None:
    with RunStore(tmp_path / "run.sqlite") as store:
        first, failed = evaluation("a"), evaluation("b", None)
        assert store.put(first) and store.put(failed)
        assert not store.put(first.model_copy(update={"facts": {"cases": 5}}))
        assert store.count() == 2
        assert store.outcomes() == {"passed": 1, "wrong_answer": 1}
    with RunStore(tmp_path / "run.sqlite") as store:
        assert store.get(first.key) == first
        assert store.get(failed.key) == failed
        assert store.get("none") is None


def test_stage_results_are_kept_by_key_and_stage(tmp_path: Path) -> None:
    with RunStore(tmp_path / "run.sqlite") as store:
        passed = StageResult(outcome=Outcome.PASSED)
        assert store.put_stage("k", "compile", passed.model_dump_json())
        assert not store.put_stage("k", "compile", '{"outcome":"crashed"}')
        assert store.get_stage("k", "compile", StageResult) == passed
        assert store.get_stage("k", "verify", StageResult) is None
        assert store.has_stage("k", "compile") and not store.has_stage("k", "verify")


@pytest.mark.parametrize("body", [b"\xff\x00", "[" * 50_000, "{}", 5, '{"outcome": "none"}'])
def test_a_damaged_stage_is_one_clear_line(tmp_path: Path, body: object) -> None:
    with RunStore(tmp_path / "run.sqlite") as store:
        store.put_stage("k", "verify", body)  # type: ignore[arg-type]
        with pytest.raises(UserError, match=r"run.sqlite is damaged"):
            store.get_stage("k", "verify", StageResult)


def test_an_evaluation_is_read_once(tmp_path: Path) -> None:
    with RunStore(tmp_path / "run.sqlite") as store:
        stored = evaluation("a")
        store.put(stored)
        assert store.get(stored.key) == stored
        assert store.get(stored.key) is store.get(stored.key)


def test_a_replayed_step_is_stored_once_and_steps_come_in_order(tmp_path: Path) -> None:
    with RunStore(tmp_path / "run.sqlite") as store:
        steps = [step(1, 1, 0), step(0, 1, 1), step(0, 0, 0), step(0, 1, 0)]
        assert store.replay.add(steps) == 4
        assert store.replay.add([step(0, 0, 0, "fast_math"), step(1, 1, 1)]) == 1
        assert [(s.rollout, s.step) for s in store.replay.steps(0)] == [(0, 0), (1, 0), (1, 1)]
        assert store.replay.steps(0)[0].technique == "unroll_loop"
        assert len(store.replay.steps()) == 5
        with RunStore(tmp_path / "run.sqlite") as other:  # What comes later finds its place.
            other.replay.add([step(0, 0, 1)])
        assert [(s.rollout, s.step) for s in store.replay.steps(0)] == [
            (0, 0), (0, 1), (1, 0), (1, 1)
        ]  # fmt: skip


def test_threads_share_one_run_store(tmp_path: Path) -> None:
    with RunStore(tmp_path / "run.sqlite") as store, ThreadPoolExecutor(8) as pool:
        list(pool.map(lambda i: store.put(evaluation(f"source {i % 10}")), range(100)))
        list(pool.map(lambda i: store.replay.add([step(0, i % 4, i)]), range(40)))
        assert store.count() == 10 and len(store.replay.steps()) == 40


def test_a_full_disk_is_one_clear_line_and_loses_nothing(tmp_path: Path) -> None:
    with RunStore(tmp_path / "run.sqlite") as store:
        store.put(evaluation("kept"))
        pages = store._database.value("PRAGMA page_count")
        store._database.value(f"PRAGMA max_page_count = {pages}")
        with pytest.raises(UserError, match="disk is full.*run.sqlite"):
            for i in range(1000):
                store.put(evaluation(f"source {i}"))
        with pytest.raises(UserError, match="disk is full"):
            store.replay.add([step(0, 0, i) for i in range(1000)])
        assert store.replay.steps() == []
        assert store.get(evaluation("kept").key) == evaluation("kept")


def test_what_is_no_database_is_refused_untouched(tmp_path: Path) -> None:
    path = tmp_path / "run.sqlite"
    path.write_bytes(b"not a database, but long enough to be read as one" * 100)
    before = path.read_bytes()
    with pytest.raises(UserError, match="not a sqlite database"):
        RunStore(path)
    assert path.read_bytes() == before
    (tmp_path / "folder.sqlite").mkdir()
    with pytest.raises(UserError, match="cannot write"):
        RunStore(tmp_path / "folder.sqlite")


KILLED = """
import sys
from pathlib import Path
from kernelblaster.harness.records.evaluations import Evaluation
from kernelblaster.memory.run.run_store import RunStore
store = RunStore(Path(sys.argv[1]))
for line in sys.stdin:
    store.put(Evaluation.model_validate_json(line))
    print("stored", flush=True)
"""


def test_kill_9_loses_no_stored_evaluation(tmp_path: Path) -> None:
    path = tmp_path / "run.sqlite"
    child = subprocess.Popen(
        [sys.executable, "-c", KILLED, str(path)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
    )
    assert child.stdin and child.stdout
    for name in "abc":
        child.stdin.write(evaluation(name).model_dump_json() + "\n")
        child.stdin.flush()
        assert child.stdout.readline() == "stored\n"
    child.send_signal(signal.SIGKILL)
    child.wait()
    with RunStore(path) as store:
        assert store.count() == 3
        assert all(store.get(evaluation(name).key) for name in "abc")


def test_many_processes_may_open_a_new_file_at_once(tmp_path: Path) -> None:
    path = tmp_path / "run.sqlite"
    children = [
        subprocess.Popen(
            [sys.executable, "-c", KILLED, str(path)],
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            text=True,
            env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
        )
        for _ in range(3)
    ]
    started = time.monotonic()
    for i, child in enumerate(children):
        child.communicate(evaluation(f"of child {i}").model_dump_json() + "\n", timeout=60)
        assert child.returncode == 0
    assert time.monotonic() - started < 60
    with RunStore(path) as store:
        assert store.count() == 3
