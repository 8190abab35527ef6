"""A person in the loop: what is asked, and what accepting, editing and rejecting do."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, TypedDict

import graph_support
import pytest
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.graph import END, START, StateGraph
from langgraph.types import Command
from text_runs import comparable, replayed, request, resume, run

import kernelblaster
from kernelblaster import RunContext, RunResult
from kernelblaster.graph.checkpoints import checkpoint_serializer
from kernelblaster.graph.optimize import build_graph
from kernelblaster.graph.session import Session, Undecided
from kernelblaster.harness.errors import UserError
from kernelblaster.memory.knowledge.knowledge_base import KnowledgeBase
from kernelblaster.memory.records.lessons import Lesson
from kernelblaster.memory.run.directory import is_held
from kernelblaster.tools.techniques.catalogue import knowledge_seed

Answer = Callable[[dict[str, Any]], Any]


@pytest.fixture(autouse=True)
def text_device(monkeypatch: pytest.MonkeyPatch) -> None:
    graph_support.install(monkeypatch.setattr)


SITTINGS = 60
"""After which a run that still asks never ends."""


def answered(
    folder: Path, answer: Answer, asked: list[dict[str, Any]] | None = None, **changes: Any
) -> RunResult:
    """Run, each sitting in a session of its own, and answer every question."""
    session = request(folder, **changes).session(folder / "run")
    answers: Mapping[str, Any] | None = None
    for _ in range(SITTINGS):
        try:
            return asyncio.run(session.run(answers=answers))
        except Undecided as undecided:
            if asked is not None:
                asked.extend(undecided.questions.values())
            answers = {key: answer(each) for key, each in undecided.questions.items()}
        finally:
            session.close()
        session = Session.open(folder / "run")
    raise AssertionError(f"asked again and again: {asked[-1] if asked else answers}")


def lessons_of_people(folder: Path) -> list[Lesson]:
    with KnowledgeBase.open(folder / "kb", knowledge_seed()) as knowledge:
        return [lesson for lesson in knowledge.lessons() if lesson.author == "person"]


def test_accepting_everything_changes_nothing(tmp_path: Path) -> None:
    (tmp_path / "alone").mkdir()
    alone = run(tmp_path / "alone")
    asked: list[dict[str, Any]] = []
    approve = ("plan", "technique", "winner")
    result = answered(tmp_path, lambda _: "accept", asked, approve=approve)
    assert comparable(result) == comparable(alone)
    assert replayed(tmp_path / "run") == replayed(tmp_path / "alone" / "run")
    kinds = [question["kind"] for question in asked]
    assert kinds[0] == "plan" and kinds[-1] == "winner" and kinds.count("plan") == 1
    assert kinds.count("technique") == len(replayed(tmp_path / "run"))
    for question in asked:
        assert json.loads(json.dumps(question)) == question and not question["hint"]
    assert asked[0]["expected"] is None and asked[0]["cost"]["evaluations"] == 0
    costs = [question["cost"]["evaluations"] for question in asked]
    assert costs == sorted(costs) and costs[-1] == result.evaluations
    winner = asked[-1]
    assert winner["microseconds"] == result.best_us and winner["expected"]["gain"] == result.gain
    assert "-us: 100.0" in winner["diff"] and f"+us: {result.best_us:.6f}" in winner["diff"]
    technique = asked[1]
    assert technique["expected"]["low"] < technique["expected"]["gain"]
    assert technique["why"] and technique["state"] and technique["others"]


def test_nobody_is_asked_unless_that_is_wanted(tmp_path: Path) -> None:
    assert run(tmp_path).outcome == "improved"


def test_a_plan_can_be_edited(tmp_path: Path) -> None:
    asked: list[dict[str, Any]] = []
    edits: list[Any] = [
        {"edit": {"rolouts": 1}},
        {"edit": {"iterations": 0}},
        {"edit": {}},
        'edit:{"iterations": 1, "rollouts": 1, "steps": 2}',
    ]
    edited = iter(edits)
    answered(tmp_path, lambda _: next(edited), asked, approve=("plan",))
    assert len(replayed(tmp_path / "run")) == 2
    hints = [question["hint"] for question in asked]
    assert "rolouts cannot be edited: a plan is edited by iterations" in hints[1]
    assert "iterations: input should be greater" in hints[2] and len(hints) == 4


def test_a_rejected_plan_ends_the_run_and_is_a_lesson(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="the plan was rejected .too dear"):
        answered(tmp_path, lambda _: "reject: too dear", approve=("plan",))
    (lesson,) = lessons_of_people(tmp_path)
    assert "too dear" in lesson.text and lesson.op_class == "elementwise"
    assert replayed(tmp_path / "run") == []
    session = Session.open(tmp_path / "run")
    with pytest.raises(UserError, match="too dear"):
        asyncio.run(session.run())
    session.close()
    assert len(lessons_of_people(tmp_path)) == 1


def test_a_technique_can_be_edited(tmp_path: Path) -> None:
    asked: list[dict[str, Any]] = []

    def answer(question: dict[str, Any]) -> Any:
        if question["step"] > 1:
            return {"edit": {"technique": "fast_math"}}
        if "it takes block_size" in question["hint"]:
            return {"edit": {"technique": "tune_block_size", "parameters": {"block_size": 256}}}
        if "is known" in question["hint"]:
            return {"edit": {"technique": "tune_block_size", "parameters": {"block_size": 7}}}
        return {"edit": {"technique": "magic"}}

    once = {"iterations": 1, "rollouts": 2, "steps": 2}
    answered(tmp_path, answer, asked, approve=("technique",), **once)
    steps = replayed(tmp_path / "run")
    assert [(step["technique"], step["parameters"]) for step in steps] == [
        ("tune_block_size", {"block_size": 256}),
        ("fast_math", {}),
    ] * 2
    assert {step["choice_author"] for step in steps} == {"person"}
    assert "on the table: " in asked[2]["hint"]


def test_a_known_technique_that_is_not_on_the_table_can_be_chosen(tmp_path: Path) -> None:
    seed = sorted(knowledge_seed().techniques)
    others = {rewrite.technique for rewrite in graph_support.REWRITES}
    known = next(name for name in seed if name not in others)
    once = {"iterations": 1, "rollouts": 1, "steps": 1}
    edit = {"edit": {"technique": known}}
    answered(tmp_path, lambda _: edit, approve=("technique",), **once)
    (step,) = replayed(tmp_path / "run")
    assert (step["technique"], step["outcome"]) == (known, "not_applicable")


def test_a_rejected_technique_is_out_for_the_rollout_and_a_lesson(tmp_path: Path) -> None:
    asked: list[dict[str, Any]] = []

    def answer(question: dict[str, Any]) -> Any:
        if question["technique"] == "vectorize_memory_access":
            return {"reject": "the buffers are\nnot aligned"}
        return "accept"

    result = answered(tmp_path, answer, asked, approve=("technique",), rollouts=1, iterations=1)
    steps = replayed(tmp_path / "run")
    names = [question["technique"] for question in asked]
    assert names.count("vectorize_memory_access") == 1, "and not proposed again"
    assert len(steps) == 3 and len(asked) == 4
    assert "vectorize_memory_access" not in {step["technique"] for step in steps}
    (lesson,) = lessons_of_people(tmp_path)
    assert lesson.technique == "vectorize_memory_access" and lesson.state
    assert lesson.text.endswith("rejected by a person: the buffers are not aligned")
    assert lesson.id in result.lessons and "person" in result.lesson_authors
    assert "not aligned (by person)" in (tmp_path / "run" / "report.txt").read_text()


def test_all_techniques_rejected_end_the_rollout(tmp_path: Path) -> None:
    result = answered(
        tmp_path, lambda _: "reject: no", approve=("technique",), rollouts=1, iterations=1
    )
    assert result.outcome == "not_improved" and result.evaluations == 1


def test_a_rejected_winner_makes_room_for_the_next_fastest(tmp_path: Path) -> None:
    asked: list[dict[str, Any]] = []
    replies = iter([{"edit": {"x": 1}}, "reject: unreadable", "accept"])
    result = answered(tmp_path, lambda _: next(replies), asked, approve=("winner",))
    edited, first, second = asked
    assert "a winner cannot be edited" in first["hint"] and not edited["hint"]
    assert second["microseconds"] >= first["microseconds"] and second["source"] != first["source"]
    assert result.best_us == second["microseconds"]
    assert any("vetoed by person: unreadable" in note for note in result.notes)
    (lesson,) = lessons_of_people(tmp_path)
    assert lesson.id in result.lessons and "unreadable" in lesson.text


NO_ANSWERS: tuple[Any, ...] = (
    "", "yes", "reject", "reject: ", "edit:{", 7, [], {}, {"accept": False}, {"a": 1}
)  # fmt: skip


def test_what_is_no_answer_asks_again_in_one_sentence(tmp_path: Path) -> None:
    asked: list[dict[str, Any]] = []
    replies = iter([*NO_ANSWERS, 'edit:{"iterations": 1, "steps": 1}'])
    answered(tmp_path, lambda _: next(replies), asked, approve=("plan",))
    first, *again = asked
    assert not first["hint"] and len(again) == len(NO_ANSWERS)
    for nonsense, question in zip(NO_ANSWERS, again, strict=True):
        assert "an answer is" in question["hint"] and "\n" not in question["hint"], nonsense
        assert {**question, "hint": "", "cost": first["cost"]} == first, nonsense


def test_resume_may_change_what_is_asked(tmp_path: Path) -> None:
    from kernelblaster.nodes.common.stopping.approval import change_approvals

    session = request(tmp_path, approve=("plan", "winner")).session(tmp_path / "run")
    with pytest.raises(Undecided, match="--answer accept"):
        asyncio.run(session.run())
    change_approvals(tmp_path / "run", ())
    session.close()
    assert resume(tmp_path / "run").outcome == "improved"


# A graph of somebody else's, and a server's


class State(TypedDict, total=False):
    kernel_task: str
    kernel_result: RunResult


def parent(saver: Any, **context: Any) -> Any:
    graph = StateGraph(State)
    graph.add_node("kernel", kernelblaster.as_node(context=RunContext(**context)))
    graph.add_edge(START, "kernel")
    graph.add_edge("kernel", END)
    return graph.compile(checkpointer=saver)


SHORT: dict[str, Any] = {"iterations": 1, "rollouts": 2, "steps": 2}


async def test_a_parent_answers_with_its_own_command() -> None:
    graph = parent(
        InMemorySaver(serde=checkpoint_serializer()), approve=("plan", "technique", "winner"),
        **SHORT,
    )  # fmt: skip
    config: Any = {"configurable": {"thread_id": "p"}}
    answer = await graph.ainvoke({"kernel_task": "text.py"}, config)
    (question,) = answer["__interrupt__"]
    assert question.value["kind"] == "plan"
    assert not is_held(Path(question.value["run"])), "another process may resume it"
    await graph.ainvoke(Command(resume="accept"), config)
    rejected = ""
    while pending := (await graph.aget_state(config)).interrupts:
        if pending[0].value["kind"] == "winner":
            break
        assert len(pending) <= 2
        replies = {}
        for each in pending:
            rejected = rejected or each.value["technique"]
            mine = each.value["technique"] == rejected
            replies[each.id] = {"reject": "no"} if mine else "accept"
        await graph.ainvoke(Command(resume=replies), config)
    answer = await graph.ainvoke(Command(resume={"accept": True}), config)
    result = answer["kernel_result"]
    assert isinstance(result, RunResult) and result.outcome == "improved"
    assert rejected not in {step.technique for step in result.steps}


@pytest.mark.parametrize("inside", [True, False], ids=["in a parent", "alone"])
async def test_one_answer_answers_one_question(inside: bool) -> None:
    """A plain resume without a value asks again, also after one with a value."""
    context = RunContext(approve=("technique",), **SHORT | {"rollouts": 1})
    saver = InMemorySaver(serde=checkpoint_serializer())
    graph = parent(saver, **dict(context)) if inside else build_graph().compile(checkpointer=saver)
    config: Any = {"configurable": {"thread_id": "p"}}
    asked = {"kernel_task" if inside else "task": "text.py"}
    answer = await graph.ainvoke(asked, config, context=None if inside else context)
    for step in (1, 2):
        for _ in range(2):
            (question,) = answer["__interrupt__"]
            assert (question.value["step"], question.value["hint"]) == (step, "")
            answer = await graph.ainvoke(None, config)
        answer = await graph.ainvoke(Command(resume="accept"), config)
    assert "__interrupt__" not in answer
