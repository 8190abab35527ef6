"""Evidence joins, splits and renames states by itself, and a person's undoing stands."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from found_states import ONE, TWO, tries, with_states
from rows import row

from kernelblaster.memory.knowledge.changes.difference import difference
from kernelblaster.memory.knowledge.changes.edit_checks import Ground, refusal
from kernelblaster.memory.knowledge.changes.state_rules import Asked, edits_of_states
from kernelblaster.memory.knowledge.changes.undoing import undo
from kernelblaster.memory.knowledge.knowledge_base import KnowledgeBase
from kernelblaster.memory.knowledge.states.dimensions import DIMENSIONS
from kernelblaster.memory.records.edits import Edit, JoinStates, RenameState, SplitState
from kernelblaster.memory.records.evidence import Evidence
from kernelblaster.memory.records.lessons import Lesson
from kernelblaster.memory.records.policy import PolicyContext
from kernelblaster.memory.records.states import Signature
from kernelblaster.memory.records.update import KnowledgeUpdate
from kernelblaster.tools.techniques.catalogue import knowledge_seed

SEED = knowledge_seed()
XU = [each.name for each in DIMENSIONS].index("xu")


@pytest.fixture
def knowledge(tmp_path: Path) -> Iterator[KnowledgeBase]:
    with KnowledgeBase.open(tmp_path / "kb", SEED) as opened:
        yield opened


def asked(knowledge: KnowledgeBase, **changes: Any) -> Asked:
    def sign(evidence: Any, reason: str) -> dict[str, Any]:
        return {
            "evidence": tuple(evidence), "reason": reason, "device_kind": "simulated",
            "author": "builtin", "run": "r", "iteration": 0,
        }  # fmt: skip

    rows = knowledge.snapshot().rows()
    return Asked(Ground(knowledge.snapshot(), rows), "simulated", sign, **changes)


def written(knowledge: KnowledgeBase, *edits: Edit) -> str:
    update = KnowledgeUpdate(run="r", iteration=knowledge.sequence(), edits=edits)
    return str(knowledge.apply_update(update))


def test_states_whose_gains_nothing_tells_apart_are_one(knowledge: KnowledgeBase) -> None:
    spoken = TWO.model_copy(update={"description": "Told by somebody."})
    rows = [*tries(ONE, 0.30, "abc", 0), *tries(spoken, 0.35, "cd", 30)]
    knowledge.apply_update(KnowledgeUpdate(run="r", iteration=0, states=(ONE, spoken)))
    knowledge.add_evidence(rows)
    assert {ONE.id, TWO.id} <= {state.id for state in knowledge.states()}
    (join,) = edits_of_states(asked(knowledge))
    assert isinstance(join, JoinStates) and (join.states, join.into) == ((ONE.id,), TWO.id)
    assert set(join.evidence) == {each.id for each in rows} and "fast_math" in join.reason
    number = written(knowledge, join)
    claim = Lesson(
        text="It pays.", kind="correction", technique="fast_math", state=TWO.id,
        op_class="softmax", claimed_log_gain=0.3, device_kind="simulated", author="builtin",
        run="r", iteration=0,
    )  # fmt: skip
    knowledge.apply_update(KnowledgeUpdate(run="r", iteration=99, lessons=(claim,)))
    later = tries(ONE, -0.3, "xyz", 200)[:3]
    knowledge.add_evidence(later)
    assert knowledge.lessons(state=TWO.id)[0].contested, "rows of either speak of it"
    rows += later
    one = knowledge.state(ONE.id)
    assert one is not None and (one.id, one.count) == (TWO.id, len(rows)), "counts are summed"
    assert edits_of_states(asked(knowledge)) == []
    shown = next(each for each in knowledge.show() if each["id"] == TWO.id)
    assert shown["evidence"] == len(rows)
    context = PolicyContext(
        device_kind="simulated", gpu="H100", arch="sm_90", family="hopper", op_class="softmax",
        dtype="float32",
    )  # fmt: skip
    only_in_one = row(70, 0.2, state_before=ONE.id, technique="own_trick")
    knowledge.add_evidence([only_in_one])
    assert "own_trick" in {
        each.optimization.technique for each in knowledge.candidates(TWO.id, context)
    }
    knowledge.apply_update(undo(knowledge, number, "person").update)
    assert {ONE.id, TWO.id} <= {state.id for state in knowledge.states()}
    assert edits_of_states(asked(knowledge)) == [], "what a person undid is not written again"


@pytest.mark.parametrize(
    "rows",
    [
        [*tries(ONE, 1.5, "abc", 0), *tries(TWO, 0.1, "cde", 30)],
        [*tries(ONE, 0.3, "abc", 0), *tries(TWO, 0.3, "d", 30)],
        [*tries(ONE, 0.3, "abc", 0), *tries(TWO, 0.3, "cd", 30)[:2]],
        [*tries(ONE, 0.3, "abc", 0)],
    ],
    ids=["other gains", "one task", "one technique", "no evidence"],
)
def test_less_than_that_joins_nothing(knowledge: KnowledgeBase, rows: list[Evidence]) -> None:
    with_states(knowledge, *rows)
    assert edits_of_states(asked(knowledge)) == []


def halves(state: str, gain: float = 0.4, low: float = 0.1, number: int = 5) -> list[Evidence]:
    """Return tries of a technique that gains where much is asked of the special functions."""
    return [
        row(
            100 + 20 * side + at, won, state_before=state, task_id=f"task {at % 3}",
            technique="fast_math", signature={"dram": 0.8, "xu": xu},
        )
        for side, (won, xu) in enumerate(((gain, 0.5), (-0.1, low))) for at in range(number)
    ]  # fmt: skip


def test_a_state_is_split_where_a_figure_tells_gains_apart(knowledge: KnowledgeBase) -> None:
    whole = "dram_bandwidth_bound"
    knowledge.add_evidence(halves(whole))
    (split,) = edits_of_states(asked(knowledge, moves={"fast_math": ("-xu",)}))
    assert isinstance(split, SplitState)
    assert str(split.condition) == "xu at least 0.3"
    assert "fast_math gained on 5 kernels" in split.reason
    before = knowledge.snapshot()
    number = written(knowledge, split)
    snapshot = knowledge.snapshot()
    told = difference(before, snapshot, "simulated").lines
    assert len(told) == 1 and told[0].startswith("+ state"), "what it has from its whole is no news"
    part, rest = knowledge.state(split.other.id), knowledge.state(whole)
    assert part is not None and rest is not None
    assert (part.count, rest.count) == (5, 5)
    assert snapshot.optimizations("simulated")[part.id].keys() == (
        before.optimizations("simulated")[whole].keys()
    ), "what is listed under the whole is tried in its part"
    for xu, place in ((0.6, part.id), (0.05, whole)):
        middle = list(rest.centroid)
        middle[XU] = xu
        signature = Signature(values=tuple(middle))
        found, _, new = knowledge.match_state(signature, "dram", "l2")
        assert (found.id, new) == (place, False), "its condition is asked of the kernel at hand"
    assert edits_of_states(asked(knowledge, moves={"fast_math": ("-xu",)})) == []
    knowledge.apply_update(undo(knowledge, number, "person").update)
    again = knowledge.state(part.id)
    assert again is not None and (again.id, again.count) == (whole, 10), "nothing of it is lost"
    assert edits_of_states(asked(knowledge, moves={"fast_math": ("-xu",)})) == []


@pytest.mark.parametrize(
    ("rows", "moves"),
    [
        (halves("dram_bandwidth_bound", number=3), ("-xu",)),
        (halves("dram_bandwidth_bound", gain=-0.05), ("-xu",)),
        (halves("dram_bandwidth_bound", low=0.48), ("-xu",)),
        (halves("dram_bandwidth_bound"), tuple(f"-no figure {at}" for at in range(3))),
    ],
    ids=["few kernels", "no gains", "too near", "by chance"],
)
def test_less_than_that_splits_nothing(
    knowledge: KnowledgeBase, rows: list[Evidence], moves: tuple[str, ...]
) -> None:
    knowledge.add_evidence(rows)
    assert edits_of_states(asked(knowledge, moves={"fast_math": moves})) == []


def test_what_a_rule_named_is_renamed_when_its_name_is_not_true_any_more(
    knowledge: KnowledgeBase,
) -> None:
    with_states(knowledge, *halves(ONE.id))
    split, rename = edits_of_states(asked(knowledge, moves={"fast_math": ("-xu",)}))
    assert isinstance(split, SplitState) and isinstance(rename, RenameState)
    assert rename.state == ONE.id and rename.name != ONE.name
    written(knowledge, split, rename)
    state = knowledge.state(ONE.id)
    assert state is not None and state.name == rename.name
    ground = Ground(knowledge.snapshot(), knowledge.snapshot().rows())
    assert "revision 1: the next is 2" in str(refusal(rename, ground))
