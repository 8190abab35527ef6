"""The whole loop on the text device: results, determinism, resuming, and what never gets lost."""

from __future__ import annotations

import asyncio
import gc
import json
import math
import random
import signal
import sqlite3
import subprocess
import time
from pathlib import Path
from typing import Any

import graph_support
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from run_child import start_run
from text_runs import comparable, replayed, request, resume, run

from kernelblaster.graph.session import Interrupted, Session
from kernelblaster.harness.devices.protocol import Capability, Comparison
from kernelblaster.harness.errors import UserError
from kernelblaster.harness.judge.timing import Ratio
from kernelblaster.harness.records.evaluations import StageResult
from kernelblaster.harness.records.outcomes import Outcome
from kernelblaster.harness.records.tasks import Task
from kernelblaster.memory.knowledge.knowledge_base import KnowledgeBase
from kernelblaster.nodes.records.result import RunResult
from kernelblaster.nodes.run.reading.overview import list_runs
from kernelblaster.tools.techniques.catalogue import knowledge_seed


@pytest.fixture
def text_device(monkeypatch: pytest.MonkeyPatch) -> None:
    graph_support.install(monkeypatch.setattr)


def test_a_run_improves_learns_and_writes_its_results(tmp_path: Path, text_device: None) -> None:
    events: list[dict[str, Any]] = []
    result = run(tmp_path, events=events)
    assert result.outcome == "improved" and result.gain > 2
    assert result.initial_us == 100.0
    assert math.isclose(math.prod(step.gain for step in result.path), result.gain)
    assert (tmp_path / "run" / "best.cu").read_text().startswith("us: ")
    assert result.evaluations == sum(result.outcomes.values())
    assert {"race", "wrong_answer", "compile_error"} & set(result.outcomes)
    assert json.loads((tmp_path / "run" / "result.json").read_text())["gain"] == result.gain
    kinds = [event["event"] for event in events]
    assert kinds.count("policy_evaluation") == kinds.count("parameter_update") == 2
    with KnowledgeBase.open(tmp_path / "kb", knowledge_seed()) as knowledge:
        stats = knowledge.stats()
    steps = replayed(tmp_path / "run")
    mended = sum(len(step["refused"]) for step in steps)
    assert stats["evidence"] == kinds.count("step") + mended > len(steps), "every attempt is a row"
    assert 0 < stats["lessons"] <= len(result.lessons), "several may be one"


class PairingDevice(graph_support.TextDevice):
    """Also times two sources side by side, and finds the second twice as fast as it is."""

    @property
    def capabilities(self) -> frozenset[Capability]:
        return frozenset({Capability.COMPARE})

    async def compare(self, task: Task, first: str, second: str) -> Comparison:
        stage = self._stage("compare", second, {"forbidden"})
        if "did: tune_block_size" in second:
            return Comparison(stage=StageResult(outcome=Outcome.RACE, reason="beside the other"))
        return Comparison(stage=stage, ratio=Ratio(ratio=7.0, interval=(6.9, 7.1), rounds=20))


def test_the_announced_gain_is_that_of_the_same_rounds(
    tmp_path: Path, text_device: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(
        "kernelblaster.tools.workspace.open_device", lambda kind, gpu: PairingDevice(gpu)
    )
    result = run(tmp_path)
    assert (result.gain, result.gain_ci) == (7.0, (6.9, 7.1))
    # What failed beside the initial kernel is not announced, though it was faster alone.
    assert "tune_block_size" not in result.techniques
    assert any("beside the other" in note for note in result.notes)


def test_the_outer_loop_moves_expected_gains_between_iterations(
    tmp_path: Path, text_device: None
) -> None:
    events: list[dict[str, Any]] = []
    run(tmp_path, events=events)
    updates = [event["moved"] for event in events if event["event"] == "parameter_update"]
    vectorize = [v for moved in updates for k, v in moved.items() if "vectorize" in k]
    assert vectorize and all(after > before for before, after in vectorize)
    unroll = [v for moved in updates for k, v in moved.items() if "unroll" in k]
    assert all(after < before for before, after in unroll)


def test_same_seed_and_knowledge_same_run_other_seed_another(
    tmp_path: Path, text_device: None
) -> None:
    for name in ("a", "b", "c"):
        (tmp_path / name).mkdir()
    first = run(tmp_path / "a", seed=5)
    second = run(tmp_path / "b", seed=5)
    assert comparable(first) == comparable(second)
    steps = [replayed(tmp_path / name / "run") for name in ("a", "b")]
    assert steps[0] == steps[1]
    run(tmp_path / "c", seed=6)
    assert replayed(tmp_path / "c" / "run") != steps[0]


def test_parallel_rollouts_do_not_all_try_the_same_first(tmp_path: Path, text_device: None) -> None:
    run(tmp_path, rollouts=3, steps=1, iterations=1)
    techniques = [step["technique"] for step in replayed(tmp_path / "run")]
    assert len(set(techniques)) == 3


rewrite_lists = st.lists(
    st.builds(
        graph_support.TextRewrite,
        technique=st.sampled_from([r.technique for r in graph_support.REWRITES]),
        factor=st.floats(0.2, 3.0),
        outcome=st.sampled_from(["passed", "passed", "race", "compile_error", "wrong_answer"]),
    ),
    max_size=5,
    unique_by=lambda rewrite: rewrite.technique,
)


@settings(
    max_examples=8,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
@given(rewrites=rewrite_lists, seed=st.integers(0, 3))
def test_best_so_far_is_never_lost(
    tmp_path_factory: pytest.TempPathFactory,
    monkeypatch: pytest.MonkeyPatch,
    rewrites: list[graph_support.TextRewrite],
    seed: int,
) -> None:
    """Whatever the rewrites do, the announced best is the fastest kernel that ever passed."""
    folder = tmp_path_factory.mktemp("property")
    graph_support.install(monkeypatch.setattr, tuple(rewrites))
    result = run(folder, seed=seed, iterations=2, steps=2)
    with sqlite3.connect(folder / "run" / "run.sqlite") as database:
        (fastest,) = database.execute("SELECT MIN(microseconds) FROM evaluations").fetchone()
    assert result.best_us == fastest <= result.initial_us


def test_an_empty_library_ends_in_the_initial_kernel(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    graph_support.install(monkeypatch.setattr, ())
    result = run(tmp_path)
    assert result.outcome == "not_improved" and result.evaluations == 1
    assert result.techniques == ()


def test_drain_saves_the_place_and_resume_goes_on(tmp_path: Path, text_device: None) -> None:
    (tmp_path / "whole").mkdir()
    whole = run(tmp_path / "whole")
    session = request(tmp_path).session(tmp_path / "run")

    def stop_at_the_third_step(event: dict[str, Any]) -> None:
        seen.append(event)
        if sum(e["event"] == "step" for e in seen) == 3:
            session.drain()

    seen: list[dict[str, Any]] = []
    with pytest.raises(Interrupted, match=f"kernelblaster resume {tmp_path / 'run'}"):
        asyncio.run(session.run(stop_at_the_third_step))
    session.close()
    resumed = Session.open(tmp_path / "run")
    result = asyncio.run(resumed.run())
    resumed.close()
    assert comparable(result) == comparable(whole)


def test_a_finished_run_is_not_run_again(tmp_path: Path, text_device: None) -> None:
    result = run(tmp_path)
    events: list[Any] = []
    session = Session.open(tmp_path / "run")
    assert asyncio.run(session.run(events.append)) == result
    session.close()
    assert events == []


def child(mode: str, folder: Path, log: Path, seconds: str) -> subprocess.Popen[str]:
    asked = request(folder, seed=1) if mode == "create" else None
    return start_run(folder / "run", asked, TEXT_DEVICE_LOG=str(log), TEXT_DEVICE_SECONDS=seconds)


def stages(directory: Path) -> set[str]:
    """Return `stage source-sha256` of every stage whose result is stored."""
    try:
        with sqlite3.connect(f"file:{directory / 'run.sqlite'}?mode=ro", uri=True) as database:
            rows = database.execute("SELECT DISTINCT stage, key FROM stages").fetchall()
    except sqlite3.OperationalError:
        return set()
    return {f"{stage} {key}" for stage, key in rows}


MOST_KILLS = 4
"""Of one run; each begins a process."""


def test_kill_at_any_moment_then_resume_gives_the_uninterrupted_result(
    tmp_path: Path, text_device: None
) -> None:
    """SIGKILL again and again at random moments, then it gets through."""
    (tmp_path / "whole").mkdir()
    whole = run(tmp_path / "whole", seed=1)
    log = tmp_path / "log"
    chance = random.Random(20)
    kills = 0
    mode = "create"
    while True:
        process = child(mode, tmp_path, log, "0.02")
        before = log.stat().st_size if log.exists() else 0
        while process.poll() is None and not (log.exists() and log.stat().st_size > before):
            time.sleep(0.01)  # Until it does real work: earlier kills are the next test's.
        try:
            process.wait(timeout=chance.uniform(0.02, 0.25) if kills < MOST_KILLS else None)
        except subprocess.TimeoutExpired:
            process.send_signal(signal.SIGKILL)
            process.wait()
            kills += 1
            mode = "open"
            continue
        break
    out, error = process.communicate()
    assert process.returncode == 0, error
    assert kills >= 3
    result = RunResult.model_validate_json(out.strip().splitlines()[-1])
    assert comparable(result) == comparable(whole)
    assert replayed(tmp_path / "run") == replayed(tmp_path / "whole" / "run")
    # A stage may run twice only when a kill hit it in the middle; each kill hits at most one
    # stage of each of the two rollouts.
    lines = log.read_text().splitlines()
    assert len(lines) - len(set(lines)) <= 2 * kills + confirmations(lines)
    with KnowledgeBase.open(tmp_path / "kb", knowledge_seed()) as knowledge:
        steps = replayed(tmp_path / "run")
        attempts = len(steps) + sum(len(step["refused"]) for step in steps)
        assert knowledge.stats()["evidence"] == attempts


def confirmations(lines: list[str]) -> int:
    """The winner is verified and profiled once more on purpose."""
    return 2


def test_no_stored_stage_runs_again_after_a_kill(tmp_path: Path, text_device: None) -> None:
    log = tmp_path / "log"
    process = child("create", tmp_path, log, "0.05")
    while not log.exists() or len(log.read_text().splitlines()) < 8:
        assert process.poll() is None, process.communicate()[1]
        time.sleep(0.01)
    process.send_signal(signal.SIGKILL)
    process.wait()
    stored = len(stages(tmp_path / "run"))
    ran = len(log.read_text().splitlines())
    log.unlink()
    process = child("open", tmp_path, log, "0")
    assert process.wait(timeout=60) == 0, process.communicate()[1]
    again = len(log.read_text().splitlines())
    total = len(stages(tmp_path / "run"))
    assert stored <= ran and again == total - stored


def test_a_kill_before_the_first_checkpoint_is_resumed_from_the_request(
    tmp_path: Path, text_device: None
) -> None:
    request(tmp_path).session(tmp_path / "run").close()  # run.json and nothing more
    assert resume(tmp_path / "run").outcome == "improved"


def test_a_directory_in_use_is_refused(tmp_path: Path, text_device: None) -> None:
    session = request(tmp_path).session(tmp_path / "run")
    with pytest.raises(UserError, match="in use by another process"):
        Session.open(tmp_path / "run")
    assert list_runs(tmp_path)[0]["status"] == "in use"
    session.close()


def test_a_directory_with_something_in_it_is_refused_and_untouched(tmp_path: Path) -> None:
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "thesis.txt").write_text("precious")
    with pytest.raises(UserError, match="not empty"):
        request(tmp_path).session(tmp_path / "mine")
    assert [path.name for path in (tmp_path / "mine").iterdir()] == ["thesis.txt"]


@pytest.mark.parametrize("text", ["", "{}", '{"format": "other/9", "request": {}}', "[1]"])
def test_a_damaged_or_foreign_run_is_one_clear_line(tmp_path: Path, text: str) -> None:
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "run.json").write_text(text)
    with pytest.raises(UserError) as caught:
        Session.open(tmp_path / "run")
    assert "\n" not in str(caught.value)


def test_a_disk_that_fills_up_is_one_clear_line_and_resumable(
    tmp_path: Path, text_device: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    from kernelblaster.memory.run.run_store import RunStore

    real = RunStore.put
    calls = []

    def full(self: RunStore, evaluation: Any) -> bool:
        calls.append(evaluation)
        if len(calls) == 3:
            raise UserError("cannot write run.sqlite: database or disk is full; free some space")
        return real(self, evaluation)

    monkeypatch.setattr(RunStore, "put", full)
    session = request(tmp_path).session(tmp_path / "run")
    complaint = ""
    try:
        asyncio.run(session.run())
    except UserError as error:
        complaint = str(error)
    assert "free some space" in complaint
    session.close()
    # The exception's frames may hold an sqlite cursor, and with it a lock, until they are gone.
    gc.collect()
    assert resume(tmp_path / "run").outcome == "improved"


class Shaky(graph_support.TextDevice):
    """Measures one kernel faster the first time than ever again."""

    async def profile(self, task: Any, source: str, sample: int = 0) -> Any:
        measured = await super().profile(task, source, sample)
        if "did: vectorize" not in source or measured.timing is None or sample:
            return measured
        us = measured.timing.microseconds / 10
        flattered = measured.timing.model_copy(
            update={"microseconds": us, "samples": (us,), "interval": (us, us)}
        )
        return measured.model_copy(update={"timing": flattered})


def test_a_winner_that_does_not_hold_is_not_announced(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    graph_support.install(monkeypatch.setattr)
    for name in ("kernelblaster.tools.workspace", "kernelblaster.nodes.run.beginning.begin"):
        monkeypatch.setattr(f"{name}.open_device", lambda kind, gpu: Shaky(gpu))
    result = run(tmp_path, rollouts=3)
    announced = (tmp_path / "run" / "best.cu").read_text()
    assert "did: vectorize" not in announced
    assert any("did not hold" in note for note in result.notes)
    assert "Note: " in (tmp_path / "run" / "report.txt").read_text()


def test_a_run_is_resumed_with_no_other_device_or_harness(
    tmp_path: Path, text_device: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    session = request(tmp_path).session(tmp_path / "run")
    with pytest.raises(Interrupted):
        asyncio.run(session.run(lambda event: session.drain()))
    session.close()

    def newer(kind: str, gpu: str) -> Any:
        device = graph_support.TextDevice(gpu)
        other = device.identity.model_copy(update={"harness": "999"})
        monkeypatch.setattr(graph_support.TextDevice, "identity", other)
        return device

    monkeypatch.setattr("kernelblaster.graph.session.open_device", newer)
    session = Session.open(tmp_path / "run")
    with pytest.raises(UserError, match="harness was .* and is '999'"):
        asyncio.run(session.run())
    session.close()


def test_a_run_is_resumed_from_another_working_directory(
    tmp_path: Path, text_device: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path)
    session = request(tmp_path, knowledge="kb").session(Path("run"))
    with pytest.raises(Interrupted):
        asyncio.run(session.run(lambda event: session.drain()))
    session.close()
    monkeypatch.chdir(tmp_path / "elsewhere")
    assert resume(Path("../run")).outcome == "improved"
    assert list((tmp_path / "elsewhere").iterdir()) == []


def test_two_runs_of_one_name_keep_their_lessons_apart(tmp_path: Path, text_device: None) -> None:
    for name in ("a", "b"):
        (tmp_path / name).mkdir()
    first = run(tmp_path / "a", knowledge=str(tmp_path / "kb"), choice="random")
    second = run(tmp_path / "b", knowledge=str(tmp_path / "kb"), seed=9, choice="random")
    assert first.lessons and second.lessons
    assert not set(first.lessons) & set(second.lessons)
