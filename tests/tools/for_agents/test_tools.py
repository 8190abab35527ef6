"""Each tool on the text device: what it answers, and one sentence for every bad argument."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import graph_support
import pytest
from graph_support import REWRITES
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from langchain_core.tools import BaseTool

import kernelblaster
from kernelblaster.harness.errors import UserError
from kernelblaster.harness.records.readings import Reading
from kernelblaster.harness.records.tasks import Task
from kernelblaster.harness.task.contract import signature
from kernelblaster.memory.knowledge.knowledge_base import KnowledgeBase
from kernelblaster.memory.records.lessons import Lesson
from kernelblaster.memory.records.update import KnowledgeUpdate
from kernelblaster.tools.for_agents.desk import LONGEST_ANSWER
from kernelblaster.tools.techniques.catalogue import knowledge_seed, techniques
from kernelblaster.tools.techniques.technique import Technique

SIGNATURE = signature(graph_support.text_task())
Tools = dict[str, BaseTool]


@pytest.fixture
def tools(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Tools]:
    graph_support.install_agent_tools(monkeypatch.setattr)
    (tmp_path / "text.py").write_text("")
    opened = kernelblaster.agent_tools(
        tmp_path / "text.py", gpu="H100", knowledge=tmp_path / "kb"
    )
    with opened:
        yield {tool.name: tool for tool in opened}


def ask(tools: Tools, name: str, /, **arguments: Any) -> str:
    answer = tools[name].invoke(arguments)
    assert isinstance(answer, str) and len(answer) <= LONGEST_ANSWER + 200
    return answer


def test_the_tools_are_a_list_and_each_says_what_it_takes(tools: Tools) -> None:
    assert list(tools) == [
        "show_task", "compile_kernel", "run_kernel", "profile_kernel", "search_knowledge",
        "describe_technique", "apply_technique", "read_more", "optimize_kernel",
    ]  # fmt: skip
    for tool in tools.values():
        assert tool.description and "\n" not in tool.description
        assert all(each.get("description") for each in tool.args.values()), tool.name


def test_the_task_is_shown_with_its_signature_shapes_and_rules(tools: Tools) -> None:
    told = ask(tools, "show_task")
    for words in (SIGNATURE, "[1024]", "0.0001", "Refused unrun", "H100", "elementwise"):
        assert words in told


def test_a_kernel_goes_through_the_gates_by_its_id(tools: Tools) -> None:
    told = ask(tools, "compile_kernel", source="us: 12.0\n")
    name = told.split()[0]
    assert name.startswith("kernel-") and "compiles" in told
    assert f"{name} is right" in ask(tools, "run_kernel", source=name)
    measured = ask(tools, "profile_kernel", source=f"`{name}`")
    assert "12 us" in measured and "not measured" in measured and "limited by latency" in measured
    assert "Performance state: " in measured and "What to try" in measured
    assert ask(tools, "read_more", reference=name) == "us: 12.0\n"


@pytest.mark.parametrize(
    ("name", "outcome", "words"),
    [
        ("compile_kernel", "compile_error", "does not compile"),
        ("run_kernel", "race", "without a barrier"),
        ("run_kernel", "compile_error", "does not compile"),
        ("profile_kernel", "wrong_answer", "differ from PyTorch"),
        ("search_knowledge", "crashed", "has no profile"),
    ],
)
def test_a_candidates_failure_is_an_answer(
    tools: Tools, name: str, outcome: str, words: str
) -> None:
    told = ask(tools, name, source=f"us: 1.0\noutcome: {outcome}\n")
    assert words in told and "us:" not in told.split("\n")[0]


async def test_a_wrong_kernel_has_no_time(tools: Tools) -> None:
    told = await tools["profile_kernel"].ainvoke({"source": "us: 1.0\noutcome: race\n"})
    assert "1 us" not in told and "race" in told


def test_a_finished_stage_is_not_repeated(
    tools: Tools, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = tmp_path / "log"
    monkeypatch.setenv("TEXT_DEVICE_LOG", str(log))
    answers = {ask(tools, "profile_kernel", source=text) for text in ("us: 3.0", "us: 3.0\n\n")}
    assert len(answers) == 1
    stages = [line.split()[0] for line in log.read_text().splitlines()]
    assert stages == ["compile", "verify", "profile"]


async def test_tools_work_beside_a_running_loop_and_at_once(tools: Tools) -> None:
    waited = tools["compile_kernel"].invoke({"source": "us: 1.0"})
    awaited = await asyncio.gather(
        *(tools["run_kernel"].ainvoke({"source": f"us: {n}.5"}) for n in range(1, 6))
    )
    assert "compiles" in waited and all("is right" in each for each in awaited)


# Knowledge ---------------------------------------------------------------------------------------


def lesson(text: str, **changes: Any) -> Lesson:
    values: dict[str, Any] = {
        "text": text, "kind": "correction", "technique": "fast_math",
        "state": "dram_bandwidth_bound", "device_kind": "simulated", "author": "builtin",
        "run": "r", "iteration": 0,
    }  # fmt: skip
    return Lesson(**(values | changes))


def teach(folder: Path, *lessons: Lesson) -> None:
    with KnowledgeBase.open(folder / "kb", knowledge_seed()) as knowledge:
        knowledge.apply_update(KnowledgeUpdate(run="r", iteration=0, lessons=lessons))


@pytest.mark.parametrize("query", ["dram_bandwidth_bound", "DRAM bandwidth-bound", " at the DRAM's "
                                   "bandwidth"])  # fmt: skip
def test_a_state_is_found_by_id_or_name_with_what_to_try(
    tools: Tools, tmp_path: Path, query: str
) -> None:
    teach(tmp_path, lesson("Fast math broke a sum.", kind="deprecation"), lesson("It was slower."))
    told = ask(tools, "search_knowledge", query=query)
    assert "(dram_bandwidth_bound)" in told and "best first" in told and "expected" in told
    assert "- fast_math" not in told, "what a lesson advises against is left out"


def test_words_find_states_techniques_and_lessons(tools: Tools, tmp_path: Path) -> None:
    teach(
        tmp_path,
        lesson("Zebra stripes of shared memory conflict."),
        lesson("Zebra measured on a GPU.", device_kind="cuda"),
    )
    told = ask(tools, "search_knowledge", query="why does a zebra stripe conflict?")
    assert told.startswith("- lesson") and "on a GPU" not in told
    assert "pad_shared_memory" in ask(tools, "search_knowledge", query="padding bank conflicts")
    assert "nothing is known" in ask(tools, "search_knowledge", query="qwrtzpl")


def test_a_kernels_profile_finds_its_state(tools: Tools) -> None:
    told = ask(tools, "search_knowledge", source="us: 90.0\n")
    assert told.startswith("Performance state: ") and "best first" in told
    state = ask(tools, "profile_kernel", source="us: 90.0\n").split("Performance state: ")[1]
    assert state.split(")")[0] == told.split("Performance state: ")[1].split(")")[0]


@pytest.mark.parametrize("name", ["tune_block_size", "Tune Block-Size", " tune block size "])
def test_a_technique_is_described_by_whatever_name(tools: Tools, name: str) -> None:
    told = ask(tools, "describe_technique", technique=name)
    assert "block_size [128" in told and "apply_technique" in told and "- sources: " in told


def test_every_technique_is_described(tools: Tools) -> None:
    for name in knowledge_seed().techniques:
        assert ask(tools, "describe_technique", technique=name).startswith(f"{name}: ")


def with_text_rewrite(monkeypatch: pytest.MonkeyPatch) -> None:
    """Have tune_block_size rewrite texts."""
    (text,) = [each for each in REWRITES if each.technique == "tune_block_size"]
    card = techniques()["tune_block_size"].card
    known = Technique(
        name=card.technique, description=card.description, applies_when=card.applies_when,
        avoid_when=card.avoid_when, side_effects=card.side_effects, notes=card.notes,
        parameters=text.parameters, change=text.apply,
    )  # fmt: skip
    monkeypatch.setattr(
        "kernelblaster.tools.for_agents.kernels.techniques", lambda: {known.name: known}
    )


@pytest.mark.parametrize(
    "parameters", [{"block_size": 128}, {"block_size": "128"}, '{"block_size": 128}']
)
def test_a_technique_is_applied_with_parameters_however_they_are_quoted(
    tools: Tools, monkeypatch: pytest.MonkeyPatch, parameters: Any
) -> None:
    with_text_rewrite(monkeypatch)
    told = ask(tools, "apply_technique", technique="Tune block size", source="us: 10.0\n",
               parameters=parameters)  # fmt: skip
    assert "block_size=128" in told and "us: 9.0" in told
    made = told.split(":")[0]
    assert "9 us" in ask(tools, "profile_kernel", source=made)
    again = ask(tools, "apply_technique", technique="tune_block_size", source=made)
    assert "cannot be applied" in again and "done already" in again


# What models get wrong ---------------------------------------------------------------------------

FENCED = "Here it is:\n```cuda\nus: 7.0\n```\nDone."


@pytest.mark.parametrize("source", ["us: 7.0", FENCED, "```\nus: 7.0\n```", "us: 7.0\r\n",
                                    "~~~cpp\nus: 7.0\n~~~"])  # fmt: skip
def test_fences_around_a_source_are_taken_off(tools: Tools, source: str) -> None:
    name = ask(tools, "run_kernel", source=source).split()[0]
    assert ask(tools, "read_more", reference=name) == "us: 7.0\n"


def test_a_fence_in_a_comment_is_no_fence(tools: Tools) -> None:
    source = '#include "task.cuh"\n/*\n```\nexample\n```\n*/\nus: 7.0\n'
    name = ask(tools, "run_kernel", source=source).split()[0]
    assert ask(tools, "read_more", reference=name) == source


@pytest.mark.parametrize(
    ("name", "arguments", "words"),
    [
        ("compile_kernel", {}, "source is missing; call compile_kernel(source)"),
        ("compile_kernel", {"code": "us: 1"}, "source is missing"),
        ("run_kernel", {"source": "us: 1", "gpu": "A100"}, "takes no 'gpu'"),
        ("run_kernel", {"source": 7}, "source is 7"),
        ("run_kernel", {"source": None}, "source is None"),
        ("run_kernel", {"source": ["us: 1"]}, "should be a valid string"),
        ("run_kernel", {"source": ""}, "empty"),
        ("run_kernel", {"source": "```cuda\n```"}, "empty"),
        ("run_kernel", {"source": "```cuda\nus: 1"}, "not closed"),
        ("run_kernel", {"source": "us: 1\n// ... rest of the code unchanged ...\n"}, "left out"),
        ("run_kernel", {"source": "us: 1 \ud800"}, "no text"),
        ("run_kernel", {"source": "us: 1 \x00"}, "no text"),
        ("run_kernel", {"source": "x = 1;\n" * 800_000}, "longer than"),
        ("run_kernel", {"source": "softmax_v2"}, "which is no kernel"),
        ("run_kernel", {"source": "kernels/softmax.cu"}, "not its name or path"),
        ("run_kernel", {"source": "kernel-0123456789ab"}, "there is no 'kernel-0123456789ab'"),
        ("run_kernel", {"source": "kernel-01"}, "which is no kernel"),
        ("profile_kernel", {"source": "answer-0123456789ab"}, "which is no kernel"),
        ("read_more", {"reference": "../../etc/passwd"}, "there is no"),
        ("read_more", {"reference": "kernel-*"}, "there is no"),
        ("read_more", {"reference": "kernel-0123456789ab", "part": "two"}, "part is 'two'"),
        ("search_knowledge", {}, "a query or a source"),
        ("search_knowledge", {"query": "x", "source": "us: 1"}, "one of the two"),
        ("search_knowledge", {"query": "word " * 1000}, "too long"),
        ("search_knowledge", {"query": "\ud800"}, "surrogate"),
        ("describe_technique", {"technique": "tune_block"}, "tune_block_size"),
        ("describe_technique", {"technique": ""}, "no technique"),
        ("describe_technique", {"technique": "x" * 100_000}, "no technique"),
        ("describe_technique", {"technique": {"name": "x"}}, "should be a valid string"),
        ("apply_technique", {"technique": "tune_block_size"}, "source is missing"),
        ("apply_technique", {"technique": "online_softmax", "source": "us: 1"}, "no built-in"),
        ("apply_technique", {"technique": "tune_block_size", "source": "us: 1",
                             "parameters": {"block_size": 100}}, "block_size is one of"),
        ("apply_technique", {"technique": "tune_block_size", "source": "us: 1",
                             "parameters": {"tile": 32}}, "no parameter tile"),
        ("apply_technique", {"technique": "tune_block_size", "source": "us: 1",
                             "parameters": {"t" * 1_000_000: 1}}, "no parameter ttt"),
        ("apply_technique", {"technique": "tune_block_size", "source": "us: 1",
                             "parameters": {"t" * 1_000_000: "x"}}, "parameters.ttt"),
        ("apply_technique", {"technique": "tune_block_size", "source": "us: 1",
                             "parameters": {"\ud800": "x"}}, "parameters"),
        ("read_more", {"reference": "x" * 1_000_000}, "there is no"),
        ("run_kernel", {"x" * 1_000_000: 1, "source": "us: 1"}, "takes no 'xxx"),
        ("apply_technique", {"technique": "tune_block_size", "source": "us: 1",
                             "parameters": "large"}, "parameters is 'large'"),
        ("apply_technique", {"technique": "tune_block_size", "source": "us: 1",
                             "parameters": {"block_size": "many"}}, "block_size is 'many'"),
    ],
)  # fmt: skip
async def test_a_bad_argument_is_one_short_sentence(
    tools: Tools, name: str, arguments: dict[str, Any], words: str
) -> None:
    for told in (tools[name].invoke(arguments), await tools[name].ainvoke(arguments)):
        assert words in told and "\n" not in told and len(told) < 700
        told.encode()


values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=30)
    | st.sampled_from(["us: 1", "kernel-", "```", "\ud800", "tune_block_size"]),
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(st.text(max_size=6), inner,
                                                                max_size=2),
    max_leaves=4,
)  # fmt: skip


@settings(max_examples=60, deadline=None,
          suppress_health_check=[HealthCheck.function_scoped_fixture])  # fmt: skip
@given(st.data())
def test_whatever_is_said_to_a_tool_it_answers(tools: Tools, data: st.DataObject) -> None:
    name = data.draw(st.sampled_from([name for name in tools if name != "optimize_kernel"]))
    known = [*tools[name].args, "gpu"]
    arguments = data.draw(st.dictionaries(st.sampled_from(known), values, max_size=4))
    told = tools[name].invoke({"type": "tool_call", "name": name, "id": "1", "args": arguments})
    assert told.content and len(told.content) <= LONGEST_ANSWER + 200
    str(told.content).encode()


def test_errors_about_launch_show_the_signature(tools: Tools) -> None:
    told = ask(tools, "compile_kernel", source="us: 1\nwithout launch\n")
    assert told.endswith(f"launch must be, word for word:\n  {SIGNATURE}")


def test_a_long_answer_is_read_in_parts(tools: Tools) -> None:
    lines = "".join(f"// line {number}\n" for number in range(3000))
    name = ask(tools, "compile_kernel", source=f"us: 1\n{lines}").split()[0]
    text, part = "", 1
    while True:
        told = ask(tools, "read_more", reference=name, part=part)
        more = f'read_more(reference="{name}", part={part + 1})'
        text += told.rpartition("\n(part ")[0] if more in told else told
        if more not in told:
            break
        part += 1
    assert part > 3 and text.split() == f"us: 1\n{lines}".split()
    refused = ask(tools, "read_more", reference=name, part=99)
    assert refused == f"{name} has the parts 1 to {part}"


# Opening and closing -----------------------------------------------------------------------------


def test_nothing_expensive_is_opened_before_it_is_needed(
    tools: Tools, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert not (tmp_path / "kb").exists()
    ask(tools, "compile_kernel", source="us: 1")
    assert not (tmp_path / "kb").exists(), "compiling asks nothing of the knowledge base"
    ask(tools, "describe_technique", technique="fast_math")
    assert (tmp_path / "kb").exists()


def test_closed_tools_say_so_and_leave_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    graph_support.install_agent_tools(monkeypatch.setattr)
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    (tmp_path / "text.py").write_text("")
    opened = kernelblaster.agent_tools(tmp_path / "text.py", knowledge=tmp_path / "kb")
    by_name = {tool.name: tool for tool in opened}
    ask(by_name, "search_knowledge", query="occupancy")
    assert list(tmp_path.glob("kernelblaster-scratch-*"))
    opened.close()
    opened.close()
    assert not list(tmp_path.glob("kernelblaster-scratch-*"))
    assert "closed" in ask(by_name, "compile_kernel", source="us: 1")
    with KnowledgeBase.open(tmp_path / "kb", knowledge_seed(), create=False) as again:
        assert again.owns_index


@pytest.mark.parametrize(
    ("task", "asked", "words"),
    [
        ("nowhere.py", {}, "no such file"),
        ("text.py", {"device": "no such"}, "unknown device"),
        ("text.py", {"device": "simulated", "gpu": "GTX 9000"}, "GTX 9000"),
        ("text.py", {"device": "deferred", "gpu": "H100"}, "another host"),
        ("text.py", {"reading": {"mode": "evil"}}, "mode.*evil"),
        ("text.py", {"reading": {"type": "fp16"}}, "type"),
        ("text.py", {"reference_seconds": -1.0}, "reference_seconds"),
    ],
)
def test_what_cannot_be_opened_is_told_at_once(
    tmp_path: Path, task: str, asked: dict[str, Any], words: str
) -> None:
    (tmp_path / "text.py").write_text("")
    with pytest.raises(UserError, match=words):
        kernelblaster.agent_tools(tmp_path / task, **asked)


def test_the_task_is_read_as_the_command_line_reads_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By the tools that measure, and by the one that runs the whole, which may be told another."""
    graph_support.install(monkeypatch.setattr)
    graph_support.install_agent_tools(monkeypatch.setattr)
    read: list[Any] = []

    def load_task_now(path: Path, dimensions: Any, reading: Reading, **rest: Any) -> Task:
        read.append((dimensions, reading, rest["seconds"]))
        return graph_support.text_task()

    async def read_task(path: Path, dimensions: Any, reading: Reading, *rest: Any) -> Task:
        read.append((dimensions, reading, rest[-1]))
        raise UserError("enough")

    monkeypatch.setattr("kernelblaster.tools.for_agents.opening.load_task_now", load_task_now)
    monkeypatch.setattr("kernelblaster.nodes.run.beginning.load_task.read_task", read_task)
    path = tmp_path / "text.py"
    path.write_text("")
    with kernelblaster.agent_tools(
        path, knowledge=tmp_path / "kb", dimensions={"N": 8}, reference_seconds=50.0,
        reading={"mode": "eval", "dtype": "bf16", "allow_degenerate": True},
    ) as opened:  # fmt: skip
        by_name = {tool.name: tool for tool in opened}
        ask(by_name, "show_task")
        assert ask(by_name, "optimize_kernel", task=str(path)) == "enough"
        assert ask(by_name, "optimize_kernel", task=str(path), mode="train") == "enough"
        wrong = ask(by_name, "optimize_kernel", task=str(path), dtype="fp8")
    asked = Reading(mode="eval", dtype="bf16", allow_degenerate=True)
    other = asked.model_copy(update={"mode": "train"})
    assert read == [({"N": 8}, asked, 50.0), ({"N": 8}, asked, 50.0), ({"N": 8}, other, 50.0)]
    assert "fp8" in wrong and "call optimize_kernel(task, start=..., mode=..." in wrong


def test_a_task_that_cannot_be_loaded_is_an_answer(tmp_path: Path) -> None:
    (tmp_path / "broken.py").write_text("def (")
    with kernelblaster.agent_tools(tmp_path / "broken.py", device="simulated") as opened:
        told = opened[0].invoke({})
    assert "broken.py:1: not Python" in told and "\n" not in told


def test_schemas_are_what_providers_take(tools: Tools) -> None:
    from langchain_core.utils.function_calling import convert_to_openai_tool

    for tool in tools.values():
        json.dumps(convert_to_openai_tool(tool))
