"""Caps and deferred jobs as questions: asked once by all rollouts, answered by the resume value."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import deferred_support
import graph_support
import pytest
from deferred_support import run_jobs_on_text
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.types import Command
from text_runs import replayed, request

from kernelblaster import RunContext
from kernelblaster.graph.optimize import build_graph
from kernelblaster.graph.session import Capped, Session
from kernelblaster.memory.run.exchange import export_jobs
from kernelblaster.tools.models.budgets import read_budgets
from kernelblaster.tools.models.records import Budgets

CONFIG: Any = {"configurable": {"thread_id": "t"}}
WIDE: dict[str, Any] = {"iterations": 1, "rollouts": 3, "steps": 2}


def pending(answer: dict[str, Any]) -> dict[str, Any]:
    """Return what is asked by the id to answer under."""
    return {each.id: each.value for each in answer.get("__interrupt__", ())}


@pytest.fixture
def text_device(monkeypatch: pytest.MonkeyPatch) -> None:
    graph_support.install(monkeypatch.setattr)


async def test_rollouts_at_one_cap_ask_once_and_one_answer_raises_it(
    text_device: None, tmp_path: Path
) -> None:
    graph = build_graph().compile(checkpointer=InMemorySaver())
    context = RunContext(budgets=Budgets(gpu_seconds=0.0), **WIDE)
    asked = {"task": "text.py", "run": str(tmp_path / "run")}
    answer = await graph.ainvoke(asked, CONFIG, context=context)
    ((first, question),) = pending(answer).items()
    assert question["kind"] == "budget_reached" and question["cost"]["evaluations"] == 1
    assert question["answers"] == ['{"max_gpu_seconds": N}']
    words = 'go on with a higher one: Command(resume={"max_gpu_seconds": N})'
    assert words in question["reason"], "no command line can resume what a server holds"
    answer = await graph.ainvoke(None, CONFIG)
    assert len(pending(answer)) == 1, "a plain resume asks again"
    for wrong, hint in (
        ({"max_gpu_secods": 7}, "'max_gpu_secods' is no cap: a cap is raised with max_tokens"),
        ({"max_gpu_seconds": "much"}, "a number each"),
    ):
        answer = await graph.ainvoke(Command(resume=wrong), CONFIG)
        ((_, question),) = pending(answer).items()
        assert hint in question["hint"]
    for low in ({"max_gpu_seconds": 0}, "more"):
        answer = await graph.ainvoke(Command(resume=low), CONFIG)
        assert len(pending(answer)) == 1
    answer = await graph.ainvoke(Command(resume={"max_gpu_seconds": 1e6}), CONFIG)
    assert answer["result"].outcome == "improved" and len(replayed(Path(answer["result"].run))) == 6
    assert read_budgets(tmp_path / "run") == Budgets(gpu_seconds=1e6)


async def test_an_answer_by_id_reaches_all_that_wait(text_device: None, tmp_path: Path) -> None:
    """Also where the cap is reached again, and the question is another rollout's."""
    graph = build_graph().compile(checkpointer=InMemorySaver())
    context = RunContext(budgets=Budgets(gpu_seconds=0.0), **WIDE)
    answer = await graph.ainvoke({"task": "text.py"}, CONFIG, context=context)
    questions = 0
    while found := pending(answer):
        ((key, question),) = found.items()
        questions += 1
        used = question["cost"]["device_seconds"]
        answer = await graph.ainvoke(
            Command(resume={key: {"max_gpu_seconds": used + 1e-9}}), CONFIG
        )
        assert questions < 100
    assert questions > 1 and len(replayed(Path(answer["result"].run))) == 6


def test_the_command_line_holds_its_checkpoints(text_device: None, tmp_path: Path) -> None:
    session = request(tmp_path, budgets=Budgets(gpu_seconds=0.0)).session(tmp_path / "run")
    with pytest.raises(Capped, match=f"kernelblaster resume {tmp_path}/run --max-gpu-seconds N"):
        asyncio.run(session.run())
    session.close()
    session = Session.open(tmp_path / "run")
    with pytest.raises(Capped, match="the cap of 0 s on the device"):
        asyncio.run(session.run())
    session.close()


async def test_results_given_on_resume_are_taken_in(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    deferred_support.install(monkeypatch.setattr)
    graph = build_graph().compile(checkpointer=InMemorySaver())
    directory = tmp_path / "run"
    context = RunContext(device="deferred", gpu="H100", **WIDE)
    asked = {"task": "text.py", "run": str(directory)}
    answer = await graph.ainvoke(asked, CONFIG, context=context)
    counts = []
    while found := pending(answer):
        ((_, question),) = found.items()
        counts.append(question["jobs"])
        assert question["kind"] == "waiting" and len(question["first"]) == question["jobs"]
        assert f"jobs export {directory} -o" in question["asks"]
        assert "then Command(resume=the JSON of results.json)" in question["asks"]
        await asyncio.to_thread(export_jobs, [directory], tmp_path / "jobs.json")
        results = tmp_path / f"results{len(counts)}.json"
        await asyncio.to_thread(run_jobs_on_text, tmp_path / "jobs.json", results)
        document = json.loads(results.read_text())
        damaged = document | {"sha256": "0" * 64}
        answer = await graph.ainvoke(Command(resume=damaged), CONFIG)
        ((_, question),) = pending(answer).items()
        assert "what was given on resume was changed or damaged" in question["hint"]
        answer = await graph.ainvoke(Command(resume=document), CONFIG)
    assert counts[:2] == [1, 3] and counts[-1] == 1, "all rollouts' jobs are one question"
    assert answer["result"].outcome == "improved"
