"""Lowering by a model: replies of every kind, repairs, the built-in writer beside it, evidence."""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import graph_support
import pytest
from asked import Asked
from graph_support import TextRewrite
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from langchain_core.messages import BaseMessage
from scripted_chat_model import ScriptedChatModel, cut_off, http_error, refusal, use
from text_runs import resume

from kernelblaster.graph.session import Capped
from kernelblaster.harness.files import LARGEST_SOURCE_BYTES
from kernelblaster.memory.knowledge.knowledge_base import KnowledgeBase
from kernelblaster.memory.records.evidence import Evidence, Step
from kernelblaster.memory.records.policy import PolicyContext
from kernelblaster.memory.run.artifacts import ArtifactStore
from kernelblaster.memory.run.run_store import RunStore
from kernelblaster.nodes.records.lowering import Attempt
from kernelblaster.nodes.records.result import RunResult
from kernelblaster.tools.models.asking import MalformedReply
from kernelblaster.tools.models.budgets import write_budgets
from kernelblaster.tools.models.code_reply import (
    CodeReply,
    apply_edits,
    fenced,
    read_code,
    read_edits,
)
from kernelblaster.tools.models.records import BUILTIN, Budgets
from kernelblaster.tools.techniques.catalogue import knowledge_seed

FILE = '#include "task.cuh"\n__global__ void k() {}\nextern "C" void launch() {\n    k();\n}\n'
ONE = (TextRewrite("vectorize_memory_access", 0.5),)


# Reading replies -------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "reply",
    [
        fenced(FILE),
        f"Here it is:\n\n{fenced(FILE)}\n\nIt reads each row once.",
        f"```cpp\n{FILE}```",
        f"```\n{FILE}```",
        f"~~~cuda\n{FILE}~~~",
        f"First a part:\n```cuda\nfloat4 v = x[i];\n```\nand whole:\n{fenced(FILE)}",
        fenced(FILE) + "\nAgain:\n" + fenced(FILE),
        fenced(FILE).replace("\n", "\r\n"),
    ],
)
def test_a_complete_file_is_found_in_its_block(reply: str) -> None:
    assert read_code(reply).source == FILE


@pytest.mark.parametrize(
    ("reply", "reason"),
    [
        ("", "no code"),
        ("I would use shared memory.", "no code"),
        ("```cuda\nfloat x;\n```", "defines launch"),
        (f"```cuda\n{FILE}", "cut off"),
        (fenced(FILE) + "\n" + fenced(FILE.replace("k()", "k2()")), "2 different"),
        (fenced(FILE.replace("    k();", "    // ... as before")), "left out"),
        (fenced(FILE.replace("    k();", "    /* rest of the code unchanged ... */")), "left out"),
        (fenced(FILE + "\x00"), "no text"),
        (fenced(FILE + "// \ud800"), "no text"),
        (fenced("x" * LARGEST_SOURCE_BYTES + " launch("), "longer than"),
        ("<<<<<<< SEARCH\na\n=======\nb\n>>>>>>> REPLACE", "no file yet"),
    ],
)
def test_what_is_no_file_is_refused_with_the_reason(reply: str, reason: str) -> None:
    with pytest.raises(MalformedReply, match=reason):
        read_code(reply)


def edit(search: str, replace: str) -> str:
    return f"<<<<<<< SEARCH\n{search}\n=======\n{replace}\n>>>>>>> REPLACE\n"


def test_edits_change_the_file_one_after_the_other() -> None:
    reply = "Two edits:\n```\n" + edit("    k();", "    k();\n    k();") + "```\n"
    reply += edit("__global__ void k() {}", "__global__ void k() { }")
    expected = FILE.replace("    k();", "    k();\n    k();").replace("{}", "{ }")
    assert read_code(reply, FILE).source == expected
    assert read_code(edit("    k();   ", ""), FILE).source == FILE.replace("    k();\n", "")


def test_indentation_decides_only_between_places_that_match_without_it() -> None:
    inner, outer = "    if (a) {\n        b();\n    }\n", "if (a) {\n    b();\n}\n"
    once = FILE.replace("    k();\n", inner)
    assert read_code(edit("   if (a) {\n\tb();", "    if (c) {\n        b();"), once).source == (
        once.replace("(a)", "(c)")
    )
    twice = f"{once}void f() {{\n{outer}}}\n"
    assert read_code(edit(outer, "b();"), twice).source == twice.replace(outer, "b();\n")
    with pytest.raises(MalformedReply, match="is at lines 4, 9"):
        read_code(edit("  if (a) {\n  b();", "b();"), twice)


@pytest.mark.parametrize(
    ("reply", "reason"),
    [
        (edit("    q();", "x"), "is not in the file"),
        (edit("4     k();", "x"), "without line numbers"),
        (edit("}", "x"), "at lines 5"),
        (edit("", "x"), "empty SEARCH"),
        ("<<<<<<< SEARCH\n    k();\n=======\n", "not complete"),
        ("<<<<<<< SEARCH\n    k();\n" + edit("    k();", "x"), "not complete"),
        (edit("    k();", "    k();"), "same as before"),
        (edit('extern "C" void launch() {', "{"), "does not define launch"),
        (fenced(FILE), "same as before"),
    ],
)
def test_edits_that_do_not_fit_are_refused_with_the_reason(reply: str, reason: str) -> None:
    base = FILE if "at lines" not in reason else FILE + "}\n"
    with pytest.raises(MalformedReply, match=reason):
        read_code(reply, base)


def test_parameters_and_declining_are_read() -> None:
    said = f'PARAMETERS: {{"tile": 32, "why": [1], "x": NaN}}\n{fenced(FILE)}'
    assert read_code(said).parameters == {"tile": 32}
    assert read_code(f"PARAMETERS: {{broken\n{fenced(FILE)}").parameters == {}
    declined = read_code("**NOT APPLICABLE:** rows are short.", FILE, may_decline=True)
    assert declined == CodeReply(source=None, not_applicable="rows are short.")
    with pytest.raises(MalformedReply):
        read_code("NOT APPLICABLE: rows are short.", FILE)


pieces = st.sampled_from(
    ["```", "```cuda\n", "~~~", "\n", "<<<<<<< SEARCH\n", "=======\n", ">>>>>>> REPLACE\n",
     "    k();", FILE, "launch(", "PARAMETERS: ", '{"a": 1}', "NOT APPLICABLE: ", "// ...\n"]
)  # fmt: skip


@given(st.lists(pieces | st.text(max_size=20), max_size=12), st.booleans(), st.booleans())
def test_any_reply_is_code_or_a_reason(parts: list[str], editing: bool, declining: bool) -> None:
    try:
        found = read_code("".join(parts), FILE if editing else None, may_decline=declining)
    except MalformedReply as malformed:
        assert str(malformed)
    else:
        assert found.source is None or "launch" in found.source
        assert found.source is not None or (declining and found.not_applicable)
        (found.source or found.not_applicable).encode()


@given(st.lists(st.text("abc \n", max_size=12), min_size=1, max_size=6), st.data())
def test_an_edit_of_a_unique_line_changes_that_line_alone(lines: list[str], data: Any) -> None:
    rows = "\n".join(lines).split("\n")
    at = data.draw(st.integers(0, len(rows) - 1))
    rows[at] = "unique"
    edits = read_edits(edit("unique", "new"))
    assert apply_edits("\n".join(rows), edits).split("\n") == rows[:at] + ["new"] + rows[at + 1 :]


# In the graph ----------------------------------------------------------------------------------


def text_kernel(us: float, *more: str) -> str:
    return "".join(f"{line}\n" for line in (f"us: {us}", "// launch()", *more))


def faster(messages: Sequence[BaseMessage]) -> str:
    """Reply with the file of the prompt at nine tenths of its time."""
    found = re.search(r"us: ([\d.]+)", str(messages[1].content))
    assert found is not None
    return fenced(text_kernel(round(float(found[1]) * 0.9, 6)))


def run(folder: Path, monkeypatch: pytest.MonkeyPatch, model: ScriptedChatModel,
        rewrites: tuple[TextRewrite, ...] = ONE, **changes: Any) -> RunResult:  # fmt: skip
    graph_support.install(monkeypatch.setattr, rewrites)
    # Only what the rewrites do is on the table, so that a test knows what is asked for.
    cards = "kernelblaster.nodes.optimization_proposer.table.Table.cards"
    monkeypatch.setattr(cards, lambda table: {})
    fields = {name: changes.pop(name) for name in ("rewrites_first",) if name in changes}
    plan = use(monkeypatch, model, "kernel_writer", first_wait_seconds=0.01, **fields)
    values: dict[str, Any] = {
        "task": "text.py", "knowledge": str(folder / "kb"), "iterations": 1, "rollouts": 1,
        "steps": 1, "model": "kernel_writer=import:scripted_chat_model:current", "models": plan,
    }  # fmt: skip
    session = Asked.of(**(values | changes)).session(folder / "run")
    try:
        return asyncio.run(session.run())
    finally:
        session.close()


def steps_of(folder: Path) -> list[Step]:
    with RunStore(folder / "run" / "run.sqlite") as store:
        return store.replay.steps()


def evidence_of(folder: Path) -> list[Evidence]:
    with KnowledgeBase.open(folder / "kb", knowledge_seed()) as knowledge:
        return knowledge.snapshot().evidence()


def test_a_good_reply_becomes_the_step(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    model = ScriptedChatModel(['PARAMETERS: {"width": 8}\n' + fenced(text_kernel(25.0))])
    result = run(tmp_path, monkeypatch, model)
    assert result.best_us == 25.0 and result.path[0].parameters == {"width": 8}
    (row,) = evidence_of(tmp_path)
    assert row.author == "import:scripted_chat_model:current" and row.repairs == 0
    stored = ArtifactStore(tmp_path / "run" / "artifacts").get_text(str(row.prompt_sha256))
    prompt = json.loads(stored)
    assert "vectorize_memory_access" in prompt[1]["content"]
    assert "us: 100.0" in prompt[1]["content"]


def test_a_failure_goes_back_and_a_repaired_candidate_is_told_from_a_first_try(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    broken = fenced(text_kernel(20.0, "outcome: race"))
    model = ScriptedChatModel([broken, fenced(text_kernel(30.0))])
    result = run(tmp_path, monkeypatch, model)
    assert result.best_us == 30.0 and result.outcomes["race"] == 1
    first, second = model.calls
    assert [message.type for message in second.messages] == ["system", "human", "ai", "human"]
    assert second.messages[:2] == first.messages[:2]
    assert second.messages[2].content == broken
    asked = str(second.messages[3].content)
    assert "without a barrier" in asked and "the text says race" in asked
    rows = sorted(evidence_of(tmp_path), key=lambda row: row.repairs)
    assert [(row.repairs, row.outcome) for row in rows] == [(0, "race"), (1, "passed")]
    forecasts = {(row.expected_log_gain, row.forecast_std, row.forecast_pass) for row in rows}
    assert len(forecasts) == 1, "what came of the first changes no forecast of the same step"


@pytest.mark.parametrize(("asked", "calls"), [(None, 3), (0, 1), (1, 2), (4, 5)])
def test_repairs_are_limited(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, asked: int | None, calls: int
) -> None:
    wrong = [fenced(text_kernel(20.0 + i, "outcome: wrong_answer")) for i in range(5)]
    model = ScriptedChatModel(wrong)
    run(tmp_path, monkeypatch, model, repairs=asked)
    assert len(model.calls) == calls
    (step,) = steps_of(tmp_path)
    assert step.outcome == "wrong_answer"


def test_a_fault_of_the_machine_is_nothing_for_a_model_to_mend(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = ScriptedChatModel([fenced(text_kernel(20.0, "outcome: profiler_unavailable"))])
    run(tmp_path, monkeypatch, model)
    assert len(model.calls) == 1
    assert steps_of(tmp_path)[0].outcome == "profiler_unavailable"


def test_the_same_file_again_after_a_failure_is_asked_for_once_more(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    broken = fenced(text_kernel(20.0, "outcome: race"))
    model = ScriptedChatModel([broken, broken, fenced(text_kernel(30.0))])
    run(tmp_path, monkeypatch, model)
    assert "same as before" in model.calls[2].prompt
    assert steps_of(tmp_path)[0].outcome == "passed"


def test_edits_are_to_the_file_at_hand_and_after_a_failure_to_the_one_that_failed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = edit("us: 100.0", "us: 20.0\n// launch()\noutcome: race")
    model = ScriptedChatModel([first, edit("outcome: race", "")])
    result = run(tmp_path, monkeypatch, model)
    assert result.best_us == 20.0
    assert "outcome: race" in str(model.calls[1].messages[3].content), "the edited file is shown"


def test_declining_costs_no_evaluation(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    model = ScriptedChatModel(["NOT APPLICABLE: nothing is loaded."])
    result = run(tmp_path, monkeypatch, model)
    assert result.evaluations == 1 and result.outcome == "not_improved"
    (row,) = evidence_of(tmp_path)
    assert row.outcome == "not_applicable" and row.author.startswith("import:")
    assert "nothing is loaded" in steps_of(tmp_path)[0].reason


@pytest.mark.parametrize(
    ("replies", "reason"),
    [
        (["no code", "still none", "none"], "holds no code"),
        ([refusal()] * 3, ""),
        ([""] * 3, ""),
        ([cut_off("```cuda\nlaunch(")] * 3, ""),
        ([f"```cuda\n{FILE}"] * 3, "cut off"),
        ([fenced("us: 100.0")] * 3, "defines launch"),
        ([edit("nowhere", "x")] * 3, "not in the file"),
        ([http_error(500)] * 5, ""),
        ([http_error(400, text="maximum context length exceeded")], ""),
    ],
)
def test_a_model_that_gives_no_code_is_stood_in_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, replies: list[Any], reason: str
) -> None:
    result = run(tmp_path, monkeypatch, ScriptedChatModel(replies))
    assert result.best_us == 50.0, "the built-in rewrite took its place"
    (row,) = evidence_of(tmp_path)
    assert row.author.startswith("builtin (import:scripted_chat_model:current failed: ")
    assert reason in row.author


def test_a_model_without_an_answer_says_nothing_of_the_technique(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nothing stands in for it here; neither belief nor lesson may suffer from that."""
    nothing = Attempt(number=0, source_sha256=None, author=BUILTIN, reason="not applicable")
    monkeypatch.setattr("kernelblaster.nodes.kernel_writer.node._rewritten", lambda *_: nothing)
    run(tmp_path, monkeypatch, ScriptedChatModel(["no code"] * 9))
    (row,) = evidence_of(tmp_path)
    assert (row.outcome, row.log_gain) == ("no_answer", None)
    with KnowledgeBase.open(tmp_path / "kb", knowledge_seed()) as knowledge:
        assert knowledge.lessons() == []
        state = knowledge.state(row.state_before)
        assert state is not None
        context = PolicyContext(
            device_kind=row.device_kind, gpu=row.gpu, arch=row.arch, family=row.family,
            op_class=row.op_class, dtype=row.dtype, harness=row.harness,
        )  # fmt: skip
        (found,) = knowledge.beliefs(state, [row.technique], context)
    assert (found.expected.trials, found.expected.passed) == (0.0, 2.4)


def test_a_malformed_reply_is_asked_for_again_with_the_reason(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = ScriptedChatModel(["Use float4.", fenced(text_kernel(40.0))])
    assert run(tmp_path, monkeypatch, model).best_us == 40.0
    assert "holds no code" in str(model.calls[1].messages[-1].content)
    assert evidence_of(tmp_path)[0].repairs == 0, "nothing was evaluated in between"


def test_the_built_in_rewrite_goes_first_where_the_plan_says_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = ScriptedChatModel([])
    assert run(tmp_path, monkeypatch, model, rewrites_first=True).best_us == 50.0
    assert model.calls == []


def test_the_model_mends_what_the_built_in_rewrite_broke(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = ScriptedChatModel([fenced(text_kernel(33.0))])
    broken = (TextRewrite("vectorize_memory_access", 0.5, outcome="race"),)
    assert run(tmp_path, monkeypatch, model, broken, rewrites_first=True).best_us == 33.0
    (call,) = model.calls
    assert "did: vectorize_memory_access" in str(call.messages[2].content)
    rows = evidence_of(tmp_path)
    assert {(row.author == BUILTIN, row.repairs) for row in rows} == {(True, 0), (False, 1)}


def test_what_was_tried_on_the_file_is_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    rewrites = (*ONE, TextRewrite("fast_math", 0.8))
    model = ScriptedChatModel([fenced(text_kernel(400.0)), fenced(text_kernel(90.0))])
    run(tmp_path, monkeypatch, model, rewrites, steps=2)
    first, second = (step.technique for step in steps_of(tmp_path))
    asked = str(model.calls[1].messages[1].content)
    assert f"- {first}: 0.25x (slower)" in asked
    assert f"Apply {second} " in asked


def test_a_run_of_several_rollouts_goes_on_from_its_own_kernels(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = ScriptedChatModel(otherwise=faster)
    result = run(tmp_path, monkeypatch, model, graph_support.REWRITES, iterations=2, rollouts=2,
                 steps=2)  # fmt: skip
    assert result.outcome == "improved"
    assert all(step.gain > 1 for step in result.path)
    assert {row.author for row in evidence_of(tmp_path)} == {"import:scripted_chat_model:current"}


@settings(
    max_examples=6, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(replies=st.lists(st.text(max_size=40) | st.lists(pieces, max_size=8).map("".join),
                        min_size=1, max_size=4))  # fmt: skip
def test_no_reply_ends_the_run_or_loses_the_best(
    tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch, replies: list[str]
) -> None:
    folder = tmp_path_factory.mktemp("replies")
    model = ScriptedChatModel(replies, otherwise=faster)
    result = run(folder, monkeypatch, model, (*ONE, TextRewrite("fast_math", 0.8)), steps=2)
    times = [step.microseconds_after for step in steps_of(folder) if step.microseconds_after]
    assert result.best_us == min([100.0, *times])


def test_a_run_that_stopped_at_a_cap_goes_on_and_pays_for_nothing_twice(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    broken = fenced(text_kernel(20.0, "outcome: race"))
    model = ScriptedChatModel([broken, fenced(text_kernel(30.0))])
    with pytest.raises(Capped):
        run(tmp_path, monkeypatch, model, budgets=Budgets(calls=1))
    assert len(model.calls) == 1
    write_budgets(tmp_path / "run", Budgets(calls=5))
    result = resume(tmp_path / "run")
    assert result.best_us == 30.0 and len(model.calls) == 2
