"""What an edit says is what the next choice reads, in runs without a model too."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import graph_support
import pytest
from graph_support import TextRewrite
from rows import row
from text_runs import replayed, run

from kernelblaster.memory.knowledge.knowledge_base import KnowledgeBase
from kernelblaster.memory.records.conditions import Condition
from kernelblaster.memory.records.edits import AddMacro, Deprecate, Edit, Revise, StepProof
from kernelblaster.memory.records.optimizations import MacroStep, Optimization
from kernelblaster.memory.records.update import KnowledgeUpdate
from kernelblaster.tools.techniques.catalogue import knowledge_seed

SHORT = {"iterations": 1, "rollouts": 1, "steps": 1}
BY: dict[str, Any] = {
    "reason": "as measured", "device_kind": "simulated", "author": "builtin", "run": "r",
    "iteration": 0, "evidence": (row().id,),
}  # fmt: skip
BEST = "vectorize_memory_access"


@pytest.fixture(autouse=True)
def text_device(monkeypatch: pytest.MonkeyPatch) -> None:
    graph_support.install(monkeypatch.setattr)


def knowing(folder: Path, *edits: Edit) -> None:
    with KnowledgeBase.open(folder / "kb", knowledge_seed()) as knowledge:
        knowledge.apply_update(KnowledgeUpdate(run="r", iteration=0, edits=edits))


def tried(folder: Path, name: str = "run") -> list[str]:
    return [step["technique"] for step in replayed(folder / name)]


def revision(**condition: Any) -> Revise:
    return Revise(technique=BEST, conditions=(Condition(**condition),), **BY)


def proposals(folder: Path, name: str = "run") -> dict[str, Any]:
    """Return what was proposed in the first step of a run, as it is told."""
    events: list[dict[str, Any]] = []
    run(folder, name, events=events, **SHORT)
    return next(event for event in events if event["event"] == "proposals")


@pytest.mark.parametrize(
    ("condition", "proposed"),
    [
        ({"feature": "launches", "comparison": "at_least", "value": 2.0}, False),
        ({"feature": "operators", "comparison": "among", "value": ("mm",)}, True),
        ({"feature": "applied", "comparison": "among", "value": ("fast_math",)}, False),
    ],
)
def test_what_does_not_hold_is_not_proposed_and_the_reason_is_told(
    tmp_path: Path, condition: dict[str, Any], proposed: bool
) -> None:
    knowing(tmp_path, revision(**condition))
    told = proposals(tmp_path)
    assert (BEST in told["techniques"]) is proposed
    if not proposed:
        assert told["withheld"][BEST].startswith("its condition does not hold: ")


@pytest.mark.parametrize(
    ("scope", "proposed"),
    [
        ({"writer": "builtin"}, False),
        ({"writer": "openai:m"}, True),
    ],
)
def test_a_deprecation_holds_for_its_class_and_writer_until_a_pass(
    tmp_path: Path, scope: dict[str, str], proposed: bool
) -> None:
    knowing(tmp_path, Deprecate(technique=BEST, **{"op_class": "elementwise", **scope}, **BY))
    assert (BEST in proposals(tmp_path)["techniques"]) is proposed
    if not proposed:
        with KnowledgeBase.open(tmp_path / "kb", knowledge_seed()) as knowledge:
            knowledge.add_evidence([row()])
        assert BEST in proposals(tmp_path, "after")["techniques"]


def test_a_macro_is_chosen_and_written_as_one(tmp_path: Path) -> None:
    names = ("fast_math", BEST)
    card = Optimization(
        technique="fast_math_then_vectorize_memory_access", description="both", applies_when="a",
        avoid_when="", side_effects="", notes="", prior_log_gain=2.0, prior_strength=1.0,
        steps=tuple(MacroStep(technique=name) for name in names),
    )  # fmt: skip
    macro = AddMacro(state="dram_bandwidth_bound", card=card, proofs=(StepProof(),) * 2, **BY)
    states = [state.id for state in knowledge_seed().states]
    knowing(tmp_path, *(macro.model_copy(update={"state": state}) for state in states))
    run(tmp_path, **SHORT)
    (step,) = replayed(tmp_path / "run")
    assert step["technique"] == card.technique
    assert (step["microseconds_before"], step["microseconds_after"]) == (100.0, 40.0)


def test_without_the_textual_gradient_the_next_iteration_chooses_otherwise(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    breaks = TextRewrite("remove_barriers", 0.1, outcome="race", parameters={"at": (1, 2, 3, 4)})
    gains = (TextRewrite("fast_math", 0.8), TextRewrite(BEST, 0.5))
    graph_support.install(monkeypatch.setattr, (*gains, breaks))
    chosen = {}
    for gradient in (True, False):
        folder = tmp_path / str(gradient)
        with KnowledgeBase.open(folder / "kb", knowledge_seed()) as knowledge:
            knowledge.add_evidence([row(log_gain=None, technique="remove_barriers")])
        run(folder, iterations=2, rollouts=2, steps=2, gradient=gradient)
        chosen[gradient] = [
            [step["technique"] for step in replayed(folder / "run") if step["iteration"] == at]
            for at in (0, 1)
        ]
        with KnowledgeBase.open(folder / "kb", knowledge_seed()) as knowledge:
            standing = knowledge.snapshot().edits.standing
            assert any(isinstance(edit, Deprecate) for edit in standing) is gradient
    assert chosen[True][0] == chosen[False][0], "until there is an update they are the same"
    assert "remove_barriers" in chosen[False][1] and "remove_barriers" not in chosen[True][1]
