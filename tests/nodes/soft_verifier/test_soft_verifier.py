"""Soft verification: a veto with a reason that can be checked, and nothing less, stops a winner."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import graph_support
import pytest
from asked import Asked
from builtin_support import initial, norm_task, product_task, softmax_task, transpose_task
from graph_support import TextRewrite, text_task
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError
from scripted_chat_model import ScriptedChatModel, cut_off, http_error, refusal, use

from kernelblaster.harness.records.tasks import Task
from kernelblaster.nodes.records.result import RunResult
from kernelblaster.nodes.soft_verifier.builtin import review
from kernelblaster.nodes.soft_verifier.reply import verdict_on
from kernelblaster.tools.models.records import ModelPlan
from kernelblaster.tools.wording.experience import lessons_text
from kernelblaster.tools.workspace import open_knowledge

MODEL = "import:scripted_chat_model:current"
TWO = (TextRewrite("vectorize_memory_access", 0.5), TextRewrite("fast_math", 0.8))
ACCEPT = {"verdict": "accept", "objections": [], "summary": "It does what it says."}


PLACE = {"index": [5000], "value": 1.0}
"""None of the text task's."""


def constant(value: float) -> dict[str, Any]:
    return {"tensor": "x", "kind": "constant", "first": value}


def veto(quote: str, **changes: Any) -> dict[str, Any]:
    objection = {
        "kind": "delegated", "quote": quote, "explanation": "it is kept from an earlier call",
        "check": "a second call gives the same",
    }  # fmt: skip
    return {"verdict": "veto", "objections": [objection | changes], "summary": ""}


def run(
    folder: Path, monkeypatch: pytest.MonkeyPatch, scripted: ScriptedChatModel,
    events: list[Any] | None = None, rewrites: tuple[TextRewrite, ...] = TWO,
    first_is_accepted: bool = True, **changes: Any,
) -> RunResult:  # fmt: skip
    """Run with a scripted verifier, which accepts the first kernel before its script begins."""
    graph_support.install(monkeypatch.setattr, rewrites)
    if first_is_accepted:
        scripted.script.in_order.insert(0, ACCEPT)
    values: dict[str, Any] = {
        "task": "text.py", "knowledge": str(folder / "kb"), "iterations": 1, "rollouts": 2,
        "steps": 1, "model": f"soft_verifier={MODEL}",
        "models": use(monkeypatch, scripted, "soft_verifier", first_wait_seconds=0.01),
    }  # fmt: skip
    session = Asked.of(**(values | changes)).session(folder / "run")
    try:
        return asyncio.run(session.run(events.append if events is not None else lambda _: None))
    finally:
        session.close()


def test_an_accepted_winner_is_announced(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    events: list[Any] = []
    model = ScriptedChatModel([ACCEPT])
    result = run(tmp_path, monkeypatch, model, events)
    assert (result.outcome, result.best_us, result.notes) == ("improved", 50.0, ())
    _, call = model.calls
    assert "1 us: 50.0" in call.prompt and "vectorize_memory_access" in call.prompt
    (told,) = [event for event in events if event["event"] == "soft_verification"]
    assert told["author"] == MODEL and not told["vetoed"]


def test_after_a_veto_the_next_fastest_is_confirmed_and_reviewed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = ScriptedChatModel([veto("did: vectorize_memory_access"), ACCEPT])
    result = run(tmp_path, monkeypatch, model)
    assert (result.outcome, result.best_us) == ("improved", 80.0)
    (note,) = result.notes
    assert "50.00 us vetoed by" in note and "line 2 `did: vectorize_memory_access`" in note
    assert "a second call gives the same" in note
    assert (tmp_path / "run" / "best.cu").read_text().startswith("us: 80")


def test_the_knowledge_base_remembers_a_veto(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The next task's agents read that such a kernel was not announced, and why."""
    run(tmp_path, monkeypatch, ScriptedChatModel([veto("did: vectorize_memory_access"), ACCEPT]))
    with open_knowledge(str(tmp_path / "kb")) as knowledge:
        lessons = [each for each in knowledge.lessons() if "vetoed" in each.text]
    (lesson,) = lessons
    assert (lesson.technique, lesson.kind) == ("vectorize_memory_access", "condition")
    assert "it is kept" in lesson.text
    told = lessons_text(
        lessons, state="any", op_class=str(lesson.op_class), device_kind=lesson.device_kind,
        techniques=("vectorize_memory_access",),
    )  # fmt: skip
    assert "a second call gives the same" in told


def test_after_a_veto_an_earlier_kernel_of_the_same_trajectory_may_stand(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = ScriptedChatModel([veto("did: fast_math"), ACCEPT])
    result = run(tmp_path, monkeypatch, model, rollouts=1, steps=2)
    assert (result.outcome, result.best_us) == ("improved", 50.0)
    assert result.techniques == ("vectorize_memory_access",)
    assert "40.00 us vetoed by" in result.notes[0]


def test_vetoes_without_end_cost_no_more_than_a_few_reviews(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    names = ("vectorize_memory_access", "fast_math", "unroll_loop", "thread_coarsening")
    rewrites = tuple(TextRewrite(name, 0.8) for name in names)
    times = ("40.960000", "51.200000", "64.000000", "80.000000")
    model = ScriptedChatModel([veto(f"us: {time}") for time in times])
    result = run(tmp_path, monkeypatch, model, rewrites=rewrites, rollouts=1, steps=4)
    assert (result.outcome, len(model.calls)) == ("not_improved", 4)


def test_when_all_are_vetoed_the_first_kernel_stands_without_a_review(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = ScriptedChatModel([veto("us: 50.0"), veto("us: 80.0")])
    result = run(tmp_path, monkeypatch, model)
    assert (result.outcome, result.best_us, result.gain) == ("not_improved", 100.0, 1.0)
    assert result.notes[0].count("vetoed by") == 2 and len(model.calls) == 3


@pytest.mark.parametrize(
    "objection",
    [
        veto("float y = 0.0f;"),
        veto("}"),
        {"verdict": "veto", "objections": []},
        {"verdict": "veto", "summary": "I do not like it."},
        veto("us: 50.0", kind="ugly"),
        veto("us: 50.0", check=""),
        veto("us: 50.0", kind="wrong_semantics"),
        veto("us: 50.0", kind="wrong_semantics", input=[{"tensor": "z", "kind": "own"}]),
        veto("us: 50.0", kind="omitted", input=[constant(1e6)]),
        veto("us: 50.0", kind="omitted", input=[constant(0.0) | {"places": [PLACE]}]),
    ],
)
def test_a_veto_that_nobody_can_check_is_asked_for_again_and_then_does_not_count(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, objection: dict[str, Any]
) -> None:
    model = ScriptedChatModel([objection] * 3)
    result = run(tmp_path, monkeypatch, model)
    assert result.best_us == 50.0 and len(model.calls) == 4
    assert "no model read this kernel" in result.notes[0]
    again = ScriptedChatModel([objection, ACCEPT])
    folder = tmp_path / "again"
    folder.mkdir()
    assert run(folder, monkeypatch, again).notes == ()


@pytest.mark.parametrize(
    "replies",
    [
        ["not JSON"] * 3,
        ['{"verdict": "acc'] * 3,
        ["{}"] * 3,
        [""] * 3,
        [refusal()] * 3,
        [cut_off('{"verdict"')] * 3,
        [http_error(500)] * 5,
    ],
)
def test_a_model_that_gives_no_verdict_stops_nothing_and_that_is_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, replies: list[Any]
) -> None:
    result = run(tmp_path, monkeypatch, ScriptedChatModel(replies))
    assert (result.outcome, result.best_us) == ("improved", 50.0)
    assert f"no model read this kernel: {MODEL} failed" in result.notes[0]


def test_prose_around_the_verdict_does_no_harm(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    said = f"I looked at it.\n```json\n{json.dumps(veto('us: 50.0'))}\n```\nThat is all."
    result = run(tmp_path, monkeypatch, ScriptedChatModel([said, ACCEPT]))
    assert result.best_us == 80.0


def test_with_the_built_in_verifier_no_winner_is_stopped(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    events: list[Any] = []
    result = run(
        tmp_path, monkeypatch, ScriptedChatModel([]), events, model="builtin", models=ModelPlan()
    )
    assert (result.best_us, result.notes) == (50.0, ())
    assert "soft_verification" not in {event["event"] for event in events}


def test_a_winner_that_is_the_first_kernel_costs_no_call(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = ScriptedChatModel([])
    slower = (TextRewrite("unroll_loop", 2.0),)
    assert run(tmp_path, monkeypatch, model, rewrites=slower).outcome == "not_improved"
    assert len(model.calls) == 1, "it was read when it was written"


# The built-in verifier ---------------------------------------------------------------------------


@pytest.mark.parametrize("task", [softmax_task(), norm_task(), product_task(), transpose_task()])
def test_an_honest_kernel_gets_no_remark(task: Task) -> None:
    found = review(task, initial(task))
    assert not found.vetoed and found.remarks == () and found.author == "builtin"


def test_an_input_that_no_kernel_touches_is_remarked() -> None:
    task = product_task()
    source = initial(task).replace(", a, b)", ", a, a)")
    source = source.replace("const float* a, const float* b)", "const float* a, const float*)", 1)
    source = source.replace("b[k * N + col]", "1.0f")
    (remark,) = review(task, source).remarks
    assert "input b" in remark


# The form ----------------------------------------------------------------------------------------


@given(
    st.recursive(
        st.none() | st.booleans() | st.integers() | st.text(max_size=20),
        lambda inner: st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(["verdict", "objections", "kind", "quote", "summary", "x"]),
            inner | st.sampled_from(["veto", "accept", "int a;", "omitted"]),
            max_size=4,
        ),
        max_leaves=10,
    )
)
def test_whatever_is_replied_is_a_checked_verdict_or_an_explained_refusal(reply: Any) -> None:
    try:
        verdict = verdict_on("int a;\nint b;\n", text_task()).model_validate(reply)
    except ValidationError as error:
        assert str(error)
    else:
        assert verdict.verdict == "accept" or verdict.objections
