"""What agents wrote while one task was run changes what is done in another, and where it should."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import graph_support
import pytest
from every_role import good
from graph_support import TextRewrite
from model_role_support import Ran, run
from rows import row
from scripted_chat_model import CURRENT, ScriptedChatModel

from kernelblaster.harness.records.tasks import Task
from kernelblaster.memory.knowledge.knowledge_base import KnowledgeBase
from kernelblaster.memory.records.conditions import Condition
from kernelblaster.memory.records.edits import AddTechnique, SplitState
from kernelblaster.memory.records.evidence import Evidence
from kernelblaster.memory.records.update import KnowledgeUpdate
from kernelblaster.nodes.common.ties import DECIDING
from kernelblaster.tools.techniques.catalogue import knowledge_seed

CLASSES = {"text": "elementwise", "likewise": "elementwise", "product": "matmul"}
"""Class of operation of a task, by name."""
TRIED = "algebraic_simplification"


@pytest.fixture(autouse=True)
def classes(monkeypatch: pytest.MonkeyPatch) -> None:
    plain = graph_support.text_task

    def text_task(name: str = "text") -> Task:
        return plain(name).model_copy(update={"op_class": CLASSES[name]})

    monkeypatch.setattr(graph_support, "text_task", text_task)


def ran(
    folder: Path, monkeypatch: pytest.MonkeyPatch, name: str, *roles: Any,
    model: ScriptedChatModel | None = None, **changes: Any,
) -> Ran:
    """Run a task on the folder's base."""
    place = folder / f"run of {name} {len(list(folder.iterdir()))}"
    place.mkdir()
    asked = {"task": f"{name}.py", "knowledge": str(folder / "kb"), "steps": 1,
             "start": graph_support.INITIAL} | changes  # fmt: skip
    return run(place, monkeypatch, model or ScriptedChatModel(), *roles, **asked)


def knowing(folder: Path, *rows: Evidence, **written: Any) -> None:
    with KnowledgeBase.open(folder / "kb", knowledge_seed()) as knowledge:
        knowledge.add_evidence(rows)
        knowledge.apply_update(KnowledgeUpdate(run="r", iteration=0, **written))


def some(gain: float, op_class: str, count: int) -> list[Evidence]:
    """Return tries of the technique on kernels of two tasks."""
    return [
        row(number, gain, technique=TRIED, op_class=op_class, task_id=f"{op_class} {number % 2}",
            parent_sha256=f"{op_class} {number}", child_sha256=f"{op_class} {number} child")
        for number in range(count)
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("factor", "lost_on", "excluded", "admitted"),
    [(1.3, "elementwise", "likewise", "product"), (0.7, "matmul", "product", "likewise")],
)
def test_a_condition_that_one_task_taught_excludes_in_another_and_admits_elsewhere(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch,
    factor: float, lost_on: str, excluded: str, admitted: str,
) -> None:  # fmt: skip
    """The task's own try is the fourth kernel: the rule learns then, and not before."""
    gained_on = "matmul" if lost_on == "elementwise" else "elementwise"
    few, enough = (3, 4) if lost_on == "elementwise" else (4, 3)
    knowing(tmp_path, *some(-0.3, lost_on, few), *some(0.4, gained_on, enough))
    rewrites = (TextRewrite(TRIED, factor),)

    def proposed(name: str) -> tuple[bool, str]:
        (told,) = ran(tmp_path, monkeypatch, name, rewrites=rewrites).told("proposals")
        return TRIED in told["techniques"], told["withheld"].get(TRIED, "")

    assert proposed("text")[0], "nothing is known against it yet"
    assert proposed(admitted) == (True, "")
    able, why = proposed(excluded)
    assert not able and f"op_class has none of {lost_on}" in why


def test_a_split_state_leads_compact_agents_to_another_choice(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The model proposes what its prompt lists, and chooses the first: a part lists another."""
    names = ("fast_math", "read_only_cache")
    rewrites = tuple(TextRewrite(name, 0.9) for name in names)
    first = ran(tmp_path, monkeypatch, "text", knowledge=str(tmp_path / "first"))
    whole = next(state for state in first.states if state.id == first.steps[0].state_id)
    part = whole.model_copy(update={"id": "products", "name": "products at the bandwidth"})
    condition = Condition(feature="op_class", comparison="among", value=("matmul",))
    signed: dict[str, Any] = {
        "reason": "as measured", "device_kind": "simulated", "author": "builtin", "run": "r",
        "iteration": 0, "evidence": (row().id,),
    }  # fmt: skip

    def listed(technique: str, state: str, gain: float) -> AddTechnique:
        card = knowledge_seed().techniques[technique].model_copy(
            update={"prior_log_gain": gain, "prior_strength": 1.0}
        )  # fmt: skip
        return AddTechnique(state=state, card=card, **signed)

    knowing(
        tmp_path, row(), states=(whole,),
        edits=(SplitState(state=whole.id, condition=condition, other=part, **signed),
               listed("fast_math", whole.id, 0.2), listed("read_only_cache", part.id, 0.4)),
    )  # fmt: skip

    def in_order(messages: Any) -> dict[str, Any]:
        text = "\n\n".join(str(message.content) for message in messages)
        found = re.findall(rf"^- ({'|'.join(names)})\b", text, re.MULTILINE)
        return {
            "proposals": [{"technique": name, "reason": "It is listed.", "new": None}
                          for name in found],
            "choice": {"technique": found[0], "reason": "Listed first."}, "state": None,
        }  # fmt: skip

    chosen = {}
    for name in ("likewise", "product"):
        model = ScriptedChatModel(by_role={"optimization_proposer": [in_order]})
        done = ran(tmp_path, monkeypatch, name, *DECIDING, model=model, agents="compact",
                   rewrites=rewrites)  # fmt: skip
        assert done.told("choice")[0]["author"] == CURRENT
        chosen[name] = done.steps[0].state_id, done.steps[0].technique
    assert chosen["likewise"] == (whole.id, "fast_math")
    assert chosen["product"] == (part.id, "read_only_cache")


def test_a_lesson_stands_in_the_prompt_of_the_next_task_where_it_applies(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What a model wrote of an elementwise kernel is not told of a product."""
    gains = (TextRewrite("vectorize_memory_access", 0.5),)
    writer = ScriptedChatModel(otherwise=good("parameter_update"))
    told = ran(tmp_path, monkeypatch, "text", "parameter_update", model=writer, rewrites=gains)
    (lesson,) = [each for each in told.lessons if not each.author.startswith("builtin")]
    there = {}
    for name in ("likewise", "product"):
        model = ScriptedChatModel(otherwise=good("optimization_proposer"))
        ran(tmp_path, monkeypatch, name, "optimization_proposer", model=model, rewrites=gains)
        there[name] = lesson.text in model.calls[0].prompt
    assert there == {"likewise": True, "product": False}
