"""Deferred runs on text: rounds of export, run and resume end as the same run done directly."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sqlite3
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import deferred_support
import graph_support
import pytest
from asked import Asked
from deferred_support import advance, exchange, finish, run_jobs_on_text
from text_runs import comparable, replayed, request, run

from kernelblaster.harness.devices.job_records import (
    ResultsFile,
    read_jobs,
    read_results,
    write_results,
)
from kernelblaster.harness.errors import UserError
from kernelblaster.harness.records.evaluations import DeviceIdentity, Evaluation
from kernelblaster.harness.records.identity import sha256_of_json
from kernelblaster.harness.records.outcomes import Outcome
from kernelblaster.harness.records.timings import Provenance
from kernelblaster.memory.run.exchange import export_jobs, import_results, take_results
from kernelblaster.memory.run.run_store import RunStore
from kernelblaster.nodes.records.result import RunResult
from kernelblaster.nodes.run.reading.overview import list_runs


@pytest.fixture
def deferred(monkeypatch: pytest.MonkeyPatch) -> None:
    deferred_support.install(monkeypatch.setattr)


def deferred_request(folder: Path, **changes: Any) -> Asked:
    return request(folder, device="deferred", gpu="H100", **changes)


def waiting(directory: Path) -> list[str]:
    with RunStore(directory / "run.sqlite") as store:
        return [job.id for job in store.jobs.waiting()]


def import_file(directory: Path, path: Path) -> int:
    return import_results(directory, read_results(path), path)


def rows(directory: Path, table: str) -> list[Any]:
    with sqlite3.connect(directory / "run.sqlite") as database:
        return database.execute(f"SELECT * FROM {table} ORDER BY rowid").fetchall()


def told(result: RunResult) -> dict[str, Any]:
    """What a direct and a deferred run must agree on."""
    found = comparable(result)
    return {name: value for name, value in found.items() if name not in ("device", "notes")}


def steps_of(directory: Path) -> list[Any]:
    """The replay buffer, less the keys: the device is a part of them."""
    return [
        {name: value for name, value in step.items() if name != "evaluation_key"}
        for step in replayed(directory)
    ]


def test_a_deferred_run_ends_as_the_direct_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "direct").mkdir()
    with monkeypatch.context() as patch:
        graph_support.install(patch.setattr)
        direct = run(tmp_path / "direct", seed=4, gpu="H100", rollouts=3)
    deferred_support.install(monkeypatch.setattr)
    deferred = finish(tmp_path / "run", deferred_request(tmp_path, seed=4, rollouts=3))
    assert told(deferred) == told(direct)
    assert {"race", "wrong_answer", "compile_error"} & set(deferred.outcomes)
    assert steps_of(tmp_path / "run") == steps_of(tmp_path / "direct" / "run")
    assert deferred.device == "deferred" and "another host" in " ".join(deferred.notes)
    best = (tmp_path / "run" / "best.cu").read_text()
    assert best == (tmp_path / "direct" / "run" / "best.cu").read_text()


def test_every_number_says_where_it_was_measured(tmp_path: Path, deferred: None) -> None:
    finish(tmp_path / "run", deferred_request(tmp_path, steps=3))
    kinds = set()
    with sqlite3.connect(tmp_path / "run" / "run.sqlite") as database:
        for (body,) in database.execute("SELECT body FROM evaluations"):
            evaluation = Evaluation.model_validate_json(body)
            kinds.add((evaluation.outcome is Outcome.COMPILE_ERROR, evaluation.device.kind))
    assert (False, "simulated") in kinds  # The host's own identity, not the run's.
    assert kinds <= {(False, "simulated"), (True, "deferred")}
    with sqlite3.connect(tmp_path / "kb" / "evidence.sqlite") as database:
        bodies = [json.loads(body) for (body,) in database.execute("SELECT body FROM entries")]
    kinds_of_evidence = {body["device_kind"] for body in bodies if "log_gain" in body}
    assert kinds_of_evidence == {"simulated"}


def test_all_rollouts_stop_together_and_nothing_is_lost_by_looking(
    tmp_path: Path, deferred: None
) -> None:
    directory = tmp_path / "run"
    assert advance(directory, deferred_request(tmp_path, rollouts=3)) == 1  # The initial kernel.
    exchange(directory, "first")
    assert advance(directory) == 3
    assert list_runs(tmp_path)[0]["status"] == "waiting"
    assert list_runs(tmp_path)[0]["waiting"] == 3
    assert advance(directory) == 3  # Resumed without results: it waits again.
    texts = []
    for name in ("a.json", "b.json"):
        assert export_jobs([directory], tmp_path / name) == {str(directory): 3}
        texts.append((tmp_path / name).read_text())
    assert texts[0] == texts[1]
    jobs = read_jobs(tmp_path / "a.json")
    assert len({job.key for job in jobs.jobs}) == 3
    assert {job.kind for job in jobs.jobs} == {"evaluate"}


def test_a_run_goes_as_far_as_the_results_that_are_there(tmp_path: Path, deferred: None) -> None:
    directory = tmp_path / "run"
    advance(directory, deferred_request(tmp_path, rollouts=2, iterations=1, steps=2))
    exchange(directory, "first")
    assert advance(directory) == 2
    export_jobs([directory], tmp_path / "jobs.json")
    run_jobs_on_text(tmp_path / "jobs.json", tmp_path / "results.json")
    whole = read_results(tmp_path / "results.json")
    first, second = whole.results
    half = ResultsFile(runs=whole.runs, results=(first,))
    write_results(tmp_path / "half.json", half)
    assert import_file(directory, tmp_path / "half.json") == 1
    advance(directory)
    left = waiting(directory)
    assert second.id in left and first.id not in left
    assert len(left) == 2, "the other rollout has gone on to its next step"
    assert import_file(directory, tmp_path / "results.json") == 1
    assert import_file(directory, tmp_path / "results.json") == 0
    ended: Any = advance(directory)
    for number in range(6):
        if isinstance(ended, RunResult):
            break
        exchange(directory, f"later{number}")
        ended = advance(directory)
    assert isinstance(ended, RunResult)


def test_two_runs_share_a_file_and_their_equal_jobs(tmp_path: Path, deferred: None) -> None:
    runs = [tmp_path / "one", tmp_path / "two"]
    for directory in runs:
        assert advance(directory, deferred_request(tmp_path)) == 1
    assert set(export_jobs(runs, tmp_path / "jobs.json").values()) == {1}
    jobs = read_jobs(tmp_path / "jobs.json")
    assert len(jobs.runs) == 2 and len(jobs.jobs) == 1
    summary = run_jobs_on_text(tmp_path / "jobs.json", tmp_path / "results.json")
    assert summary.ran == 1
    for directory in runs:
        assert import_file(directory, tmp_path / "results.json") == 1
        assert advance(directory) == 2


def test_the_winner_is_confirmed_by_a_job_of_its_own(tmp_path: Path, deferred: None) -> None:
    directory = tmp_path / "run"
    ended: Any = advance(directory, deferred_request(tmp_path, iterations=1, rollouts=1, steps=1))
    kinds = []
    while not isinstance(ended, RunResult):
        kinds.append(waiting(directory)[0].split("-")[0])
        exchange(directory, str(len(kinds)))
        ended = advance(directory)
    assert kinds == ["evaluate", "evaluate", "confirm"]
    assert not waiting(directory)
    with pytest.raises(UserError, match="no job waits"):
        export_jobs([directory], tmp_path / "none.json")


def other_device(**changes: Any) -> Callable[[dict[str, Any]], None]:
    def change(document: dict[str, Any]) -> None:
        for result in document["body"]["results"]:
            result["device"] |= changes

    return change


def never_asked(document: dict[str, Any]) -> None:
    (result,) = document["body"]["results"]
    result["key"] = "0" * 64
    for asked in document["body"]["runs"].values():
        asked["jobs"] = [f"evaluate-{'0' * 64}"]


def of_another_run(document: dict[str, Any]) -> None:
    ((_, asked),) = document["body"]["runs"].items()
    document["body"]["runs"] = {"another-run": asked}


def timed_failure(document: dict[str, Any]) -> None:
    document["body"]["results"][0]["verified"]["outcome"] = "wrong_answer"


def as_measured(document: dict[str, Any]) -> None:
    document["body"]["results"][0]["measured"]["timing"]["provenance"] = "events"


WRONG: dict[str, tuple[Callable[[dict[str, Any]], None], str]] = {
    "another GPU": (other_device(gpu="A100"), "the GPU H100 is asked for, this is A100"),
    "a GPU whose name holds ours": (other_device(gpu="GH100"), "this is GH100"),
    "another architecture": (other_device(arch="sm_80"), "sm_90 is asked for, this is sm_80"),
    "another harness": (other_device(harness="0"), "harness version"),
    "never asked": (never_asked, "never asked for"),
    "another run's": (of_another_run, "holds no results for"),
    "a time for a failure": (timed_failure, "belongs to a passed verification"),
    "measured by a simulated device": (as_measured, "events numbers from a simulated device"),
    "a file of another version": (
        lambda document: document.update(format="kernelblaster-results/9"),
        "kernelblaster-results/9",
    ),
    "a file of another harness": (lambda document: document.update(harness="0"), "harness"),
}


@pytest.mark.parametrize("name", WRONG)
def test_results_that_do_not_fit_are_one_clear_line_and_change_nothing(
    tmp_path: Path, deferred: None, name: str
) -> None:
    change, words = WRONG[name]
    directory = tmp_path / "run"
    advance(directory, deferred_request(tmp_path))
    export_jobs([directory], tmp_path / "jobs.json")
    run_jobs_on_text(tmp_path / "jobs.json", tmp_path / "results.json")
    document = json.loads((tmp_path / "results.json").read_text())
    change(document)
    document["sha256"] = sha256_of_json(document["body"])
    (tmp_path / "wrong.json").write_text(json.dumps(document))
    before = rows(directory, "stages")
    with pytest.raises(UserError) as caught:
        import_file(directory, tmp_path / "wrong.json")
    assert words in str(caught.value) and "\n" not in str(caught.value)
    assert rows(directory, "stages") == before and len(waiting(directory)) == 1
    assert import_file(directory, tmp_path / "results.json") == 1


def test_measured_results_are_no_answer_to_a_run_that_asks_for_simulated_ones(
    tmp_path: Path, deferred: None
) -> None:
    directory = tmp_path / "run"
    advance(directory, deferred_request(tmp_path))
    export_jobs([directory], tmp_path / "jobs.json")
    run_jobs_on_text(tmp_path / "jobs.json", tmp_path / "results.json")
    found = read_results(tmp_path / "results.json")
    result = found.results[0]
    measured = result.measured
    assert measured and measured.timing and measured.profile
    timing = measured.timing.model_copy(update={"provenance": Provenance.EVENTS})
    profile = measured.profile.model_copy(update={"provenance": Provenance.NCU})
    changed = result.model_copy(
        update={
            "device": result.device.model_copy(update={"kind": "cuda"}),
            "measured": measured.model_copy(update={"timing": timing, "profile": profile}),
        }
    )
    write_results(tmp_path / "cuda.json", ResultsFile(runs=found.runs, results=(changed,)))
    with pytest.raises(UserError, match="results from simulated are asked for, .* device cuda"):
        import_file(directory, tmp_path / "cuda.json")


class Elsewhere(graph_support.TextDevice):
    """The same GPU behind another driver."""

    @property
    def identity(self) -> DeviceIdentity:
        return super().identity.model_copy(update={"toolchain": "another driver"})


def test_all_results_of_a_run_come_from_one_machine(tmp_path: Path, deferred: None) -> None:
    directory = tmp_path / "run"
    advance(directory, deferred_request(tmp_path))
    exchange(directory, "first")
    advance(directory)
    export_jobs([directory], tmp_path / "jobs.json")
    summary = run_jobs_on_text(
        tmp_path / "jobs.json", tmp_path / "other.json", lambda kind, gpu, index: Elsewhere("H100")
    )
    assert summary.ran == 0 and "one kind of machine" in summary.unanswered[0]
    # Also where the jobs file did not know better.
    run_jobs_on_text(tmp_path / "jobs.json", tmp_path / "results.json")
    found = read_results(tmp_path / "results.json")
    foreign = tuple(
        result.model_copy(update={"device": Elsewhere("H100").identity})
        for result in found.results
    )
    write_results(tmp_path / "foreign.json", ResultsFile(runs=found.runs, results=foreign))
    before = rows(directory, "stages")
    with pytest.raises(UserError, match="another driver.*earlier ones"):
        import_file(directory, tmp_path / "foreign.json")
    assert rows(directory, "stages") == before
    assert import_file(directory, tmp_path / "results.json") == 2


def test_a_run_without_results_keeps_no_other_from_its_own(
    tmp_path: Path, deferred: None, capsys: pytest.CaptureFixture[str]
) -> None:
    from kernelblaster.cli import app as cli

    first, second = tmp_path / "a", tmp_path / "b"
    for directory in (first, second):
        (tmp_path / f"of-{directory.name}").mkdir()
        advance(directory, deferred_request(tmp_path / f"of-{directory.name}"))
    export_jobs([first], tmp_path / "jobs.json")
    run_jobs_on_text(tmp_path / "jobs.json", tmp_path / "r.json")
    jobs = set(waiting(first))
    cli.resume([second, first], results=tmp_path / "r.json")
    said = capsys.readouterr().out.splitlines()
    assert any("holds no results for" in line and "goes on without" in line for line in said)
    assert any(line.startswith(f"{first}: ") and "new results" in line for line in said)
    assert not jobs & set(waiting(first)) and waiting(second)
    with pytest.raises(UserError, match="holds no results"):
        cli.resume([second], results=tmp_path / "r.json")


def test_one_wrong_result_changes_no_run(tmp_path: Path, deferred: None) -> None:
    runs = [tmp_path / "a", tmp_path / "b"]
    for directory in runs:
        (tmp_path / f"of-{directory.name}").mkdir()
        advance(directory, deferred_request(tmp_path / f"of-{directory.name}"))
    export_jobs(runs, tmp_path / "jobs.json")
    run_jobs_on_text(tmp_path / "jobs.json", tmp_path / "r.json")
    found = read_results(tmp_path / "r.json")
    with RunStore(runs[1] / "run.sqlite") as store:
        name = store.jobs.run()
    assert name is not None
    asked = found.runs[name]
    foreign = found.of_run(name)[0].model_copy(update={"key": "0" * 64})
    wrong = ResultsFile(
        runs={**found.runs, name: asked.model_copy(update={"jobs": (*asked.jobs, foreign.id)})},
        results=(*found.results, foreign),
    )
    before = [waiting(directory) for directory in runs]
    with pytest.raises(UserError, match="b: it answers a job.*nothing was taken"):
        take_results(runs, wrong, Path("r.json"))
    assert [waiting(directory) for directory in runs] == before and all(before)
    take_results(runs, found, Path("r.json"))
    assert not any(waiting(directory) for directory in runs)


def test_results_for_a_run_that_defers_nothing(tmp_path: Path, deferred: None) -> None:
    (tmp_path / "direct").mkdir()
    with pytest.raises(UserError, match="asked for no results"):
        import_results(tmp_path / "direct", ResultsFile(runs={}, results=()), Path("r.json"))


async def test_in_studio_the_interrupt_says_what_is_awaited_and_any_answer_goes_on(
    tmp_path: Path, deferred: None
) -> None:
    from langgraph.checkpoint.memory import InMemorySaver
    from langgraph.types import Command

    from kernelblaster.graph.optimize import build_graph

    directory = tmp_path / "run"
    graph = build_graph().compile(checkpointer=InMemorySaver())
    config: Any = {"configurable": {"thread_id": "studio"}}
    asked = deferred_request(tmp_path, run=str(directory), iterations=1, rollouts=1, steps=1)
    stopped = await graph.ainvoke(asked.request, config, context=asked.context)
    (job,) = waiting(directory)
    assert [found.value["first"] for found in stopped["__interrupt__"]] == [[job]]
    early = await graph.ainvoke(Command(resume="I am impatient"), config)
    assert [found.value["first"] for found in early["__interrupt__"]] == [[job]]
    for number in range(3):
        await asyncio.to_thread(exchange, directory, str(number))
        ended = await graph.ainvoke(Command(resume="done"), config)
    assert ended["result"].outcome in ("improved", "not_improved")


def test_a_kill_between_import_and_the_next_wait_loses_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two children: one is killed as soon as it has gone on, the other finishes the round."""
    (tmp_path / "whole").mkdir()
    with monkeypatch.context() as patch:
        deferred_support.install(patch.setattr)
        small = deferred_request(tmp_path / "whole", iterations=1, rollouts=2, steps=1)
        whole = finish(tmp_path / "whole" / "run", small)
    deferred_support.install(monkeypatch.setattr)
    directory = tmp_path / "run"
    advance(directory, deferred_request(tmp_path, iterations=1, rollouts=2, steps=1))
    exchange(directory, "first")
    log = tmp_path / "log"
    process = child(directory, log)
    while not log.exists() or not log.stat().st_size:  # It compiles the first step's kernel.
        assert process.poll() is None, process.communicate()
        time.sleep(0.01)
    process.send_signal(signal.SIGKILL)
    process.wait()
    assert advance(directory) == len(waiting(directory)) > 0
    exchange(directory, "second")
    ended: Any = advance(directory)
    if not isinstance(ended, RunResult):
        exchange(directory, "third")
        ended = advance(directory)
    assert comparable(ended) == comparable(whole)
    assert replayed(directory) == replayed(tmp_path / "whole" / "run")


def child(directory: Path, log: Path) -> subprocess.Popen[str]:
    code = (
        "import importlib, sys, deferred_support\n"
        "from pathlib import Path\n"
        "def replace(name, value):\n"
        "    module, _, attribute = name.rpartition('.')\n"
        "    setattr(importlib.import_module(module), attribute, value)\n"
        "deferred_support.install(replace)\n"
        "deferred_support.advance(Path(sys.argv[1]))\n"
    )
    environment = {
        **os.environ,
        "PYTHONPATH": os.pathsep.join(filter(None, sys.path)),
        "TEXT_DEVICE_LOG": str(log),
        "TEXT_DEVICE_SECONDS": "0.5",
    }
    return subprocess.Popen(
        [sys.executable, "-c", code, str(directory)],
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment,
    )  # fmt: skip
