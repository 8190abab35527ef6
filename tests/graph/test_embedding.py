"""The public face: each name with an example that runs, on the text device; nodes, tools, loops."""

from __future__ import annotations

import ast
import asyncio
import inspect
import json
import textwrap
from pathlib import Path
from typing import Any, TypedDict

import graph_support
import pytest
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.graph import END, START, StateGraph

import kernelblaster
from kernelblaster import RunContext, RunResult
from kernelblaster.graph.checkpoints import checkpoint_serializer
from kernelblaster.memory.run.directory import RunDirectory, is_held, read_plan
from kernelblaster.tools.workspace import open_runs

SHORT: dict[str, Any] = {"iterations": 1, "rollouts": 2, "steps": 3}


@pytest.fixture(autouse=True)
def text_device(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    graph_support.install(monkeypatch.setattr)
    graph_support.install_evaluate(monkeypatch.setattr)
    graph_support.install_agent_tools(monkeypatch.setattr)
    monkeypatch.chdir(tmp_path)
    (tmp_path / "examples").mkdir()
    (tmp_path / "examples" / "softmax.py").write_text("")
    (tmp_path / "kernel.cu").write_text("us: 50\n")


def examples(documentation: str) -> list[str]:
    """Return the code under each `Example:` of a docstring."""
    lines = inspect.cleandoc(documentation).splitlines()
    found = []
    for at, line in enumerate(lines):
        if line.strip() == "Example:":
            inner = []
            for each in lines[at + 1 :]:
                if each.strip() and not each.startswith("    "):
                    break
                inner.append(each)
            found.append(textwrap.dedent("\n".join(inner)).strip() + "\n")
    return found


def test_the_face_lists_about_a_dozen_names_and_each_is_there() -> None:
    assert 8 <= len(kernelblaster.__all__) <= 14
    assert set(kernelblaster.__all__) <= set(dir(kernelblaster))
    with pytest.raises(AttributeError, match="no_such_name"):
        _ = kernelblaster.no_such_name


def test_a_kernel_and_a_task_are_evaluated_as_texts_too() -> None:
    by_path = kernelblaster.evaluate("kernel.cu", "examples/softmax.py")
    by_text = kernelblaster.evaluate(Path("kernel.cu").read_text(), "import torch\n")
    assert by_text == by_path and by_text.timing is not None


@pytest.mark.parametrize("name", kernelblaster.__all__)
async def test_each_name_has_an_example_that_runs(name: str) -> None:
    (code,) = examples(getattr(kernelblaster, name).__doc__)
    space: dict[str, Any] = {
        "kernelblaster": kernelblaster, "RunContext": RunContext, "RunResult": RunResult,
        "TypedDict": TypedDict, "StateGraph": StateGraph, "InMemorySaver": InMemorySaver,
    }  # fmt: skip
    flags = ast.PyCF_ALLOW_TOP_LEVEL_AWAIT
    ran = eval(compile(code, f"example of {name}", "exec", flags, dont_inherit=True), space)
    if inspect.iscoroutine(ran):
        await ran
    assert "kernelblaster." in code


def test_optimize_works_from_plain_code(tmp_path: Path) -> None:
    events: list[dict[str, Any]] = []
    result = kernelblaster.optimize(
        "examples/softmax.py", run=tmp_path / "mine", watch=events.append, **SHORT
    )
    assert result.gain > 1 and Path(result.run) == tmp_path / "mine"
    assert events[0]["event"] == "task" and events[-1]["event"] == "result"
    assert not is_held(tmp_path / "mine")


async def test_optimize_works_where_a_loop_runs() -> None:
    assert kernelblaster.optimize("examples/softmax.py", **SHORT).gain > 1


async def test_ten_at_once_are_ten_runs() -> None:
    results = await asyncio.gather(
        *(kernelblaster.aoptimize("examples/softmax.py", seed=n, **SHORT) for n in range(10))
    )
    assert len({result.run for result in results}) == 10
    assert all(json.loads(Path(r.run, "result.json").read_text())["run"] == r.run for r in results)


@pytest.mark.parametrize(
    ("asked", "words"),
    [
        ({"rolouts": 3}, "rolouts"),
        ({"iterations": 0}, "iterations=0"),
        ({"gpu": "GTX 9000", "device": "no such"}, "unknown device"),
        ({"run": "kernel.cu"}, "is a file"),
        ({"start": "nowhere.cu"}, "nowhere.cu"),
    ],
)
def test_what_cannot_be_served_is_one_line_and_leaves_nothing(
    asked: dict[str, Any], words: str, tmp_path: Path
) -> None:
    with pytest.raises(kernelblaster.UserError, match=words) as refused:
        kernelblaster.optimize("examples/softmax.py", **(SHORT | asked))
    assert "\n" not in str(refused.value)
    assert not (tmp_path / "runs").exists() or not list((tmp_path / "runs").iterdir())


class State(TypedDict, total=False):
    task: str
    kernel_task: str
    kernel_result: RunResult
    result: str


def parent(checkpointer: Any = None) -> Any:
    graph = StateGraph(State)
    graph.add_node("kernel", kernelblaster.as_node(context=RunContext(**SHORT)))
    graph.add_node("talk", lambda state: {"result": f"{state['kernel_result'].gain:.1f}x"})
    graph.add_edge(START, "kernel")
    graph.add_edge("kernel", "talk")
    graph.add_edge("talk", END)
    return graph.compile(checkpointer=checkpointer)


async def test_as_a_node_its_keys_are_its_own() -> None:
    answer = await parent().ainvoke({"task": "write a poem", "kernel_task": "examples/softmax.py"})
    assert answer["task"] == "write a poem" and answer["result"].endswith("x")
    assert isinstance(answer["kernel_result"], RunResult)


async def test_a_parents_checkpointer_keeps_the_result_as_a_record() -> None:
    graph = parent(InMemorySaver(serde=checkpoint_serializer()))
    config = {"configurable": {"thread_id": "p"}, "recursion_limit": 5}
    await graph.ainvoke({"kernel_task": "examples/softmax.py"}, config)
    state = await graph.aget_state(config)
    assert isinstance(state.values["kernel_result"], RunResult)
    assert not is_held(Path(state.values["kernel_result"].run)), "a finished run is let go"


async def test_as_a_tool_it_answers_in_json_or_in_one_line() -> None:
    tool = kernelblaster.as_tool(RunContext(**SHORT))
    told = json.loads(await tool.ainvoke({"task": "examples/softmax.py"}))
    assert told["gain"] > 1 and told["best_source"].endswith("best.cu")
    refused = await tool.ainvoke({"task": "examples/softmax.py", "start": "nowhere.cu"})
    assert "nowhere.cu" in refused and "\n" not in refused
    assert set(tool.args) == {"task", "start", "mode", "dtype", "allow_degenerate"}
    assert "PyTorch" in tool.args["task"]["description"]


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ({}, "task is missing; call optimize_kernel(task, start=...,"),
        ({"task": 3}, "task is 3"),
        ({"task": "\ud800"}, "half a surrogate pair"),
        ({"task": "examples/softmax.py", "gpu": "A100"}, "takes no 'gpu'"),
        ({"task": "x" * 100_000}, ""),
        ({"task": "x\x00.py"}, "half a surrogate pair"),
        ({"task": "examples/softmax.py", "start": ["kernel.cu"]}, "start is ['kernel.cu']"),
    ],
)
async def test_what_a_model_gets_wrong_of_the_tool_is_one_short_sentence(
    arguments: dict[str, Any], words: str
) -> None:
    tool = kernelblaster.as_tool(RunContext(**SHORT))
    for told in (await tool.ainvoke(arguments), await asyncio.to_thread(tool.invoke, arguments)):
        assert words in told and "\n" not in told and len(told) < 700
        told.encode()


async def test_the_tools_answer_is_bounded(tmp_path: Path) -> None:
    start = tmp_path / "long.cu"
    start.write_text("us: 50\n" + "// long\n" * 20_000)
    tool = kernelblaster.as_tool(RunContext(**SHORT))
    answer = await tool.ainvoke({"task": "examples/softmax.py", "start": str(start)})
    assert len(answer) < 10_000 and Path(json.loads(answer)["best_source"]).stat().st_size > 10_000


async def test_threads_of_one_server_on_one_task_are_runs_of_their_own() -> None:
    graph = kernelblaster.build_optimize_graph().compile(checkpointer=InMemorySaver())
    request = kernelblaster.OptimizeRequest(task="examples/softmax.py")

    async def run(number: int) -> dict[str, Any]:
        config: Any = {"configurable": {"thread_id": str(number)}}
        context = RunContext(gpu=f"GPU {number}", seed=number, **SHORT)
        await graph.ainvoke(request, config, context=context)
        return dict((await graph.aget_state(config)).values)

    ended = await asyncio.gather(*(run(number) for number in range(4)))
    assert len({state["plan"].run for state in ended}) == 4
    assert [state["result"].gpu for state in ended] == [f"GPU {number}" for number in range(4)]
    for state in ended:
        assert state["result"].run == state["plan"].run and not is_held(Path(state["plan"].run))


async def test_a_graph_killed_before_its_first_checkpoint_has_its_directory_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What is left is the plan, and the task maybe; another plan does not get the directory."""
    graph = kernelblaster.build_optimize_graph().compile()
    request = kernelblaster.OptimizeRequest(task="examples/softmax.py", run=str(tmp_path / "run"))

    def killed(*_: Any, **__: Any) -> None:
        raise BrokenPipeError

    with monkeypatch.context() as patch:
        patch.setattr("kernelblaster.nodes.run.beginning.load_task.report_progress", killed)
        with pytest.raises(BrokenPipeError):
            await graph.ainvoke(request, context=RunContext(**SHORT))
    open_runs().release(tmp_path / "run")
    stored = read_plan(tmp_path / "run")
    with pytest.raises(kernelblaster.UserError, match="not empty"):
        await graph.ainvoke(request, context=RunContext(seed=7, **SHORT))
    with pytest.raises(kernelblaster.UserError, match="not empty"):
        held = RunDirectory.hold(tmp_path / "run")
        try:
            await graph.ainvoke(request, context=RunContext(**SHORT))
        finally:
            held.close()
    answer = await graph.ainvoke(request, context=RunContext(**SHORT))
    assert answer["result"].outcome == "improved"
    assert read_plan(tmp_path / "run") == stored


async def test_a_finished_directory_is_not_written_over(tmp_path: Path) -> None:
    graph = kernelblaster.build_optimize_graph().compile()
    request = kernelblaster.OptimizeRequest(task="examples/softmax.py", run=str(tmp_path / "run"))
    await graph.ainvoke(request, context=RunContext(**SHORT))
    before = (tmp_path / "run" / "result.json").read_bytes()
    with pytest.raises(kernelblaster.UserError, match="not empty; continue it with"):
        await graph.ainvoke(request, context=RunContext(**SHORT))
    assert (tmp_path / "run" / "result.json").read_bytes() == before


async def test_a_run_that_a_server_holds_cannot_be_resumed_beside_it(tmp_path: Path) -> None:
    from kernelblaster.graph.session import Session

    running = kernelblaster.aoptimize("examples/softmax.py", run=tmp_path / "run", **SHORT)
    task = asyncio.create_task(running)
    while not is_held(tmp_path / "run"):
        await asyncio.sleep(0.005)
    with pytest.raises(kernelblaster.UserError, match="in use"):
        Session.open(tmp_path / "run")
    assert (await task).gain > 1


async def test_a_second_call_with_a_directory_in_use_is_no_second_run_of_it(tmp_path: Path) -> None:
    graph = kernelblaster.build_optimize_graph().compile()
    request = kernelblaster.OptimizeRequest(task="examples/softmax.py", run=str(tmp_path / "run"))
    first = asyncio.create_task(graph.ainvoke(request, context=RunContext(**SHORT)))
    while not is_held(tmp_path / "run"):
        await asyncio.sleep(0.005)
    with pytest.raises(kernelblaster.UserError, match="not empty"):
        await graph.ainvoke(request, context=RunContext(seed=7, **SHORT))
    assert (await first)["result"].gain > 1


async def test_a_reused_thread_forgets_what_the_last_run_was_asked(tmp_path: Path) -> None:
    graph = kernelblaster.build_optimize_graph().compile(checkpointer=InMemorySaver())
    config: Any = {"configurable": {"thread_id": "again"}}
    first = {"task": "examples/softmax.py", "run": str(tmp_path / "named")}
    await graph.ainvoke(first, config, context=RunContext(**SHORT))
    await graph.ainvoke({"task": "examples/softmax.py"}, config, context=RunContext(**SHORT))
    plan = (await graph.aget_state(config)).values["plan"]
    assert plan.run != str(tmp_path / "named") and plan.start is None


async def test_a_cancelled_call_leaves_nothing_held(tmp_path: Path) -> None:
    for wait in (0.0, 0.02, 0.1):
        call = asyncio.create_task(kernelblaster.aoptimize("examples/softmax.py", **SHORT))
        await asyncio.sleep(wait)
        call.cancel()
        with pytest.raises(asyncio.CancelledError):
            await call
    left = [path for path in (tmp_path / "runs").glob("*") if is_held(path)]
    assert left == []
