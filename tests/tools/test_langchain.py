"""The LangChain tools: what an agent that calls tools can see and do."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import graph_support
import pytest
from langchain_core.tools import BaseTool

from kernelblaster.memory.knowledge.knowledge_base import KnowledgeBase
from kernelblaster.memory.records import KnowledgeUpdate, Lesson, PolicyContext
from kernelblaster.memory.run.run_store import RunStore
from kernelblaster.tools.langchain import evaluation_tools, knowledge_tool
from kernelblaster.tools.techniques.catalogue import knowledge_seed

CONTEXT = PolicyContext(
    device_kind="simulated",
    gpu="H100",
    arch="sm_90",
    family="hopper",
    op_class="elementwise",
    dtype="float32",
)


@pytest.fixture
def tools(tmp_path: Path) -> Iterator[dict[str, BaseTool]]:
    with RunStore(tmp_path / "run.sqlite") as store:
        made = evaluation_tools(graph_support.TextDevice(), store, graph_support.text_task())
        yield {tool.name: tool for tool in made}


def ask(tool: BaseTool, source: str) -> dict[str, Any]:
    answer = asyncio.run(tool.ainvoke({"source": source}))
    found = json.loads(answer)
    assert isinstance(found, dict)
    return found


def test_every_stage_is_a_tool_with_a_description_and_one_argument(
    tools: dict[str, BaseTool],
) -> None:
    assert set(tools) == {"compile_kernel", "verify_kernel", "profile_kernel"}
    for tool in tools.values():
        assert tool.description
        assert list(tool.args) == ["source"] and tool.args["source"]["description"]


def test_a_good_kernel_passes_every_stage(tools: dict[str, BaseTool]) -> None:
    assert ask(tools["compile_kernel"], "us: 12.0\n")["outcome"] == "passed"
    assert ask(tools["verify_kernel"], "us: 12.0\n")["outcome"] == "passed"
    measured = ask(tools["profile_kernel"], "us: 12.0\n")
    assert measured["stage"]["outcome"] == "passed"
    assert measured["timing"]["microseconds"] == 12.0
    assert measured["timing"]["provenance"] == "simulated"


@pytest.mark.parametrize(
    ("stage", "outcome"), [("compile_kernel", "compile_error"), ("verify_kernel", "race")]
)
def test_a_candidates_failure_is_an_answer(
    tools: dict[str, BaseTool], stage: str, outcome: str
) -> None:
    answer = ask(tools[stage], f"us: 1.0\noutcome: {outcome}\n")
    assert answer["outcome"] == outcome and outcome in answer["reason"]


def test_a_finished_stage_is_not_repeated(
    tools: dict[str, BaseTool], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = tmp_path / "log"
    monkeypatch.setenv("TEXT_DEVICE_LOG", str(log))
    answers = [ask(tools["profile_kernel"], "us: 3.0\n") for _ in range(3)]
    assert answers[0] == answers[1] == answers[2]
    assert len(log.read_text().splitlines()) == 1


def search(directory: Path, state: str) -> str:
    answer = knowledge_tool(directory, CONTEXT).invoke({"state": state})
    assert isinstance(answer, str)
    return answer


def test_knowledge_search_answers_best_first_with_lessons(tmp_path: Path) -> None:
    lesson = Lesson(
        text="Fast math broke it.",
        kind="deprecation",
        technique="fast_math",
        state="dram_bandwidth_bound",
        device_kind="simulated",
        author="builtin",
        run="r",
        iteration=0,
    )
    with KnowledgeBase.open(tmp_path / "kb", knowledge_seed()) as knowledge:
        knowledge.apply_update(KnowledgeUpdate(run="r", iteration=0, lessons=(lesson,)))
        expected = [
            optimization.technique
            for optimization, _ in knowledge.candidates("dram_bandwidth_bound", CONTEXT)
        ]
    found = json.loads(search(tmp_path / "kb", "dram_bandwidth_bound"))
    assert [item["technique"] for item in found["techniques"]] == expected
    assert "fast_math" not in expected and found["lessons"] == ["Fast math broke it."]
    assert {"expected_log_gain", "success_probability", "tries", "notes"} <= set(
        found["techniques"][0]
    )


def test_an_unknown_state_is_answered_with_those_that_exist(tmp_path: Path) -> None:
    answer = search(tmp_path / "kb", "nowhere")
    assert "no state 'nowhere'" in answer and "dram_bandwidth_bound" in answer
