"""A whole run with a model in every role: what it learns, its ledger, and kill -9 in any call."""

from __future__ import annotations

import asyncio
import json
import signal
import subprocess
import time
from collections import Counter
from pathlib import Path
from typing import Any

import graph_support
import pytest
from asked import Asked
from every_role import NEW, every_role
from run_child import start_run
from scripted_chat_model import CURRENT, use

from kernelblaster.graph.session import Capped, Session
from kernelblaster.memory.knowledge.knowledge_base import KnowledgeBase
from kernelblaster.memory.run.run_store import RunStore
from kernelblaster.nodes.common.policies import RULES
from kernelblaster.tools.models.budgets import write_budgets
from kernelblaster.tools.models.records import ANSWERED_ONCE, Budgets
from kernelblaster.tools.techniques.catalogue import knowledge_seed


def asked_of_every_role(
    folder: Path, monkeypatch: pytest.MonkeyPatch, **changes: Any
) -> tuple[Session, Any]:
    """Return a new run that asks a model in every role, and the script that answers."""
    graph_support.install(monkeypatch.setattr)
    scripted = every_role()
    request = Asked.of(
        task="text.py", knowledge=str(folder / "kb"), iterations=2, rollouts=2, steps=3,
        model=CURRENT, models=use(monkeypatch, scripted), **changes,
    )  # fmt: skip
    return request.session(folder / "run"), scripted


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Any:
    folder = tmp_path_factory.mktemp("run")
    with pytest.MonkeyPatch.context() as monkeypatch:
        session, scripted = asked_of_every_role(folder, monkeypatch)
        events: list[Any] = []
        try:
            result = asyncio.run(session.run(events.append))
        finally:
            session.close()
    return folder, result, scripted, events


def test_every_role_was_asked_and_every_call_is_in_the_ledger(finished: Any) -> None:
    folder, result, scripted, _ = finished
    assert {call.role for call in scripted.calls} == set(RULES["kernelblaster"].roles)
    with RunStore(folder / "run" / "run.sqlite") as store:
        rows = store.ledger.rows()
    sent = [row for row in rows if row.outcome != "reused"]
    assert len(sent) == len(scripted.calls) == result.model_calls
    assert {row.outcome for row in sent} == {"answered"}
    asked = {(row.role, row.prompt_sha256) for row in sent}
    for row in rows:
        if row.outcome == "reused":
            assert row.role in ANSWERED_ONCE and (row.role, row.prompt_sha256) in asked
    judged = [(row.role, row.prompt_sha256) for row in sent if row.role in ANSWERED_ONCE]
    assert len(set(judged)) == len(judged), "no question to one who judges was sent twice"
    assert result.tokens == sum(row.tokens_in + row.tokens_out for row in rows) > 0
    assert result.outcome == "improved" and result.best_us < 70.0


def test_a_new_technique_goes_from_proposal_to_knowledge(finished: Any) -> None:
    folder, result, scripted, _ = finished
    assert NEW in result.techniques
    prompts = [call.prompt for call in scripted.calls_of("kernel_writer")]
    assert any(f"{NEW}: Load each row once into shared memory." in text for text in prompts)
    with KnowledgeBase.open(folder / "kb", knowledge_seed()) as knowledge:
        rows = [row for row in knowledge.snapshot().evidence() if row.technique == NEW]
        listed = [under[NEW] for under in knowledge.snapshot().optimizations("simulated").values()
                  if NEW in under]  # fmt: skip
        lessons = [lesson for lesson in knowledge.lessons() if lesson.technique == NEW]
    assert rows and all(row.log_gain and row.author == CURRENT for row in rows)
    assert listed[0].applies_when == "Rows are reread." and "Pad rows." in listed[0].notes
    assert 0 < listed[0].prior_log_gain < max(row.log_gain or 0 for row in rows), "from evidence"
    assert {lesson.author for lesson in lessons} >= {CURRENT}
    assert any("It pays where rows are read again. Simulated:" in x.text for x in lessons)


def test_the_second_iteration_reads_what_the_first_wrote(finished: Any) -> None:
    _, _, scripted, _ = finished
    later = [call for call in scripted.calls_of("optimization_proposer") if call.place[0] == 1]
    assert later and any("It pays where rows are read again" in call.prompt for call in later)


def test_two_rollouts_are_two_samples(finished: Any) -> None:
    _, _, scripted, _ = finished
    places = [call.place for call in scripted.calls_of("optimization_proposer")]
    assert len(set(places)) == len(places)
    assert {(0, 0, 0), (0, 1, 0)} <= set(places)


def test_the_same_replies_give_the_same_run(
    finished: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    _, result, scripted, _ = finished
    session, again = asked_of_every_role(tmp_path, monkeypatch)
    try:
        second = asyncio.run(session.run())
    finally:
        session.close()
    assert second.path == result.path
    kinds = "optimization_proposer"
    assert sorted(c.prompt for c in again.calls_of(kinds)) == sorted(
        c.prompt for c in scripted.calls_of(kinds)
    )


def test_a_cap_in_any_role_stops_the_run_and_a_higher_one_pays_only_for_the_rest(
    finished: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    _, result, scripted, _ = finished
    session, again = asked_of_every_role(tmp_path, monkeypatch, budgets=Budgets(calls=0))
    stops = set()
    for cap in range(0, 200, 4):
        write_budgets(tmp_path / "run", Budgets(calls=cap))
        try:
            found = asyncio.run(session.run())
            break
        except Capped:
            stops.add(again.calls[-1].role if again.calls else "")
            assert len(again.calls) == cap
        finally:
            session.close()
        session = Session.open(tmp_path / "run")
    assert found.best_us == result.best_us and len(stops) > 4
    assert len(again.calls) == len(scripted.calls), "no call was made twice"
    places = [(call.role, call.place) for call in again.calls]
    assert len(set(places)) == len(places)


# Kills -----------------------------------------------------------------------------------------


def start(mode: str, folder: Path, log: Path, seconds: float) -> subprocess.Popen[str]:
    asked = Asked.of(
        task="text.py", knowledge=str(folder / "kb"), iterations=1, rollouts=2, steps=2,
        model="import:every_role:model",
    )  # fmt: skip
    return start_run(
        folder / "run", asked if mode == "create" else None,
        MODEL_LOG=str(log), MODEL_SECONDS=str(seconds),
    )  # fmt: skip


def begun(log: Path) -> list[str]:
    lines = log.read_text().splitlines() if log.exists() else []
    return [line.removeprefix("begin ") for line in lines if line.startswith("begin")]


def kill_in(role: str, child: subprocess.Popen[str], log: Path) -> None:
    """Kill the child once it is in the middle of a call of a role."""
    deadline = time.monotonic() + 120
    while role not in begun(log):
        assert child.poll() is None, child.communicate()
        assert time.monotonic() < deadline, begun(log)
        time.sleep(0.01)
    child.send_signal(signal.SIGKILL)
    child.wait()


@pytest.mark.seldom
@pytest.mark.parametrize(
    ("early", "late"),
    [
        ("optimization_proposer", "parameter_update"),
        ("state_extractor", "optimization_selector"),
        ("policy_evaluation", "gap_analysis"),
    ],
)
def test_a_kill_in_the_middle_of_a_call_pays_for_no_finished_call_again(
    tmp_path: Path, early: str, late: str
) -> None:
    calls: Counter[str] = Counter()
    mode = "create"
    for number, role in enumerate((early, late)):
        log = tmp_path / f"log{number}"
        kill_in(role, start(mode, tmp_path, log, 0.15), log)
        calls += Counter(begun(log))
        mode = "open"
    log = tmp_path / "log"
    out, errors = start("open", tmp_path, log, 0.0).communicate(timeout=240)
    assert json.loads(out.splitlines()[-1])["outcome"] == "improved", errors
    calls += Counter(begun(log))
    with RunStore(tmp_path / "run" / "run.sqlite") as store:
        rows = store.ledger.rows()
        steps = store.replay.steps()
    answered = [row.key for row in rows if row.outcome in ("answered", "reused")]
    assert len(set(answered)) == len(answered), "no finished call was made twice"
    killed = [row for row in rows if row.outcome == "maybe_paid"]
    assert killed and {row.role for row in killed} >= {early}
    assert {row.outcome for row in rows} <= {"answered", "maybe_paid", "reused"}
    assert all(row.key in answered for row in killed), "what was cut off was asked once more"
    assert sum(calls.values()) <= len(rows), "no call is missing from the ledger"
    places = Counter(
        (row.role, row.place) for row in rows if row.outcome in ("answered", "reused")
    )
    assert set(places.values()) == {1}, "no place was asked with another prompt after the kill"
    assert len({step.id for step in steps}) == len(steps)
