"""Agents that do a whole job with the tools alone: on the text device, and on the simulated one."""

from __future__ import annotations

import re
from pathlib import Path
from types import ModuleType
from typing import Any

import graph_support
import pytest
from langchain_core.messages import AIMessage, BaseMessage, HumanMessage, ToolMessage
from places import EXAMPLES, resized
from scripted_chat_model import ScriptedChatModel
from scripts import import_script
from simt_support import nvcc

import kernelblaster

RACE = "us: 40.0\noutcome: race\n"
MENDED = "```cuda\nus: 40.0\n```"


@pytest.fixture(scope="module")
def example() -> ModuleType:
    return import_script(EXAMPLES / "langgraph" / "agent_with_tools.py")


def answers(conversation: list[BaseMessage]) -> list[str]:
    return [str(each.content) for each in conversation if isinstance(each, ToolMessage)]


def calls(name: str, **arguments: Any) -> AIMessage:
    return AIMessage("", tool_calls=[{"name": name, "args": arguments, "id": f"call_{name}"}])


def newest(messages: list[BaseMessage]) -> str:
    said = " ".join(str(message.content) for message in messages)
    return str(re.findall(r"kernel-[0-9a-f]{12}", said)[-1])


def script() -> ScriptedChatModel:
    return ScriptedChatModel(
        [
            calls("show_task"),
            calls("run_kernel", source=RACE),
            calls("run_kernel", source=MENDED),
            lambda messages: calls("profile_kernel", source=newest(messages)),
            calls("search_knowledge", query="latency"),
            calls("profile_kernel", source="us: 25.0"),
            lambda messages: f"The fastest is {newest(messages)}.",
        ]
    )


@pytest.mark.parametrize("waited", [True, False])
async def test_an_agent_writes_mends_and_profiles_with_the_tools_alone(
    example: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, waited: bool
) -> None:
    graph_support.install_agent_tools(monkeypatch.setattr)
    (tmp_path / "text.py").write_text("")
    with kernelblaster.agent_tools(tmp_path / "text.py", knowledge=tmp_path / "kb") as tools:
        agent = example.react(script(), tools)
        asked: dict[str, Any] = {"messages": [HumanMessage("Make it fast.")]}
        state = agent.invoke(asked) if waited else await agent.ainvoke(asked)
    told = answers(state["messages"])
    assert "without a barrier" in told[1] and "is right" in told[2]
    assert "40 us" in told[3] and "25 us" in told[5]
    assert state["messages"][-1].content == f"The fastest is {told[5].split()[0]}."


async def test_an_agent_that_calls_badly_is_answered_and_goes_on(
    example: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    graph_support.install_agent_tools(monkeypatch.setattr)
    (tmp_path / "text.py").write_text("")
    bad = calls("compile_kernel", code="us: 1", gpu=["A100"])
    model = ScriptedChatModel([bad, calls("compile_kernel", source="us: 1"), "Done."])
    with kernelblaster.agent_tools(tmp_path / "text.py", knowledge=tmp_path / "kb") as tools:
        agent = example.react(model, tools)
        state = await agent.ainvoke({"messages": [HumanMessage("Compile it.")]})
    first, second = answers(state["messages"])
    assert "source is missing" in first and "compiles" in second


async def test_an_agent_can_have_the_whole_loop_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    graph_support.install(monkeypatch.setattr)
    graph_support.install_agent_tools(monkeypatch.setattr)
    (tmp_path / "text.py").write_text("")
    with kernelblaster.agent_tools(tmp_path / "text.py", knowledge=tmp_path / "kb") as tools:
        told = await tools[-1].ainvoke({"task": str(tmp_path / "text.py")})
    assert '"gain":' in told


def test_the_example_does_the_job_on_a_simulated_gpu(
    example: ModuleType, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """With a small matrix: a kernel refused twice, mended, made faster by a built-in rewrite."""
    nvcc()
    task = resized(example.TASK, tmp_path, ROWS=1024, COLUMNS=512)
    conversation = example.main(task=task, device="simulated", knowledge=tmp_path / "kb")
    told = answers(conversation)
    assert "launch must be, word for word" in told[1]
    assert "out of bounds" in told[2] and "is right on every case" in told[3]
    before, after = (
        float(re.findall(r"launch\(\) takes ([\d.]+) us", told[place])[0]) for place in (4, 7)
    )
    assert after < before and "Performance state" in told[4]
    assert "parallelize_row_reduction" in told[5]
    assert "one warp a row" in told[6] and "--> profile_kernel" in capsys.readouterr().out
