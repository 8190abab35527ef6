"""A cause from counters: what should have moved, what did, and what moved for the worse."""

from __future__ import annotations

import pytest

from kernelblaster.memory.knowledge.states.dimensions import DIMENSIONS
from kernelblaster.memory.knowledge.states.signature import centroid_of
from kernelblaster.nodes.common.prompts.iteration import moved_text
from kernelblaster.nodes.gap_analysis.movement import Movement, expected, movement
from kernelblaster.tools.techniques.catalogue import knowledge_seed, techniques

STATES = {state.id: state for state in knowledge_seed().states}


def moved(technique: str, before: dict[str, float], after: dict[str, float]) -> Movement:
    return movement(technique, None, [(centroid_of(before), centroid_of(after))])


def test_every_declared_move_names_a_dimension() -> None:
    names = {dimension.name for dimension in DIMENSIONS}
    declared = [move for each in techniques().values() for move in each.moves]
    assert declared and all(move[0] in "+-" and move[1:] in names for move in declared)


def test_what_should_fall_and_stays_is_the_cause() -> None:
    found = moved("pad_shared_memory", {"bank_conflicts": 0.6}, {"bank_conflicts": 0.59})
    assert (found.moved, found.stayed, found.against) == ((), ("bank_conflicts",), ())
    assert found.cause == (
        "did not move, and should have: 60% -> 59% of the shared wavefronts are conflicts"
    )


@pytest.mark.parametrize(
    ("technique", "before", "after"),
    [
        ("pad_shared_memory", {"bank_conflicts": 0.0}, {"bank_conflicts": 0.0}),
        ("pad_shared_memory", {"bank_conflicts": 0.03}, {"bank_conflicts": 0.0}),
        ("tune_block_size", {"occupancy": 1.0}, {"occupancy": 1.0}),
        ("tune_block_size", {"occupancy": 0.98}, {"occupancy": 0.99}),
    ],
)
def test_what_could_hardly_be_better_is_no_fault_of_the_technique(
    technique: str, before: dict[str, float], after: dict[str, float]
) -> None:
    found = moved(technique, before, after)
    assert found[:3] == ((), (), ())
    assert found.cause.startswith("could hardly be better before: ") and "should" not in found.cause


def test_a_change_that_is_none_is_one_figure() -> None:
    found = moved("pad_shared_memory", {"bank_conflicts": 0.6}, {"bank_conflicts": 0.599})
    assert found.cause.endswith("should have: 60% of the shared wavefronts are conflicts")
    same = centroid_of({"occupancy": 0.6, "occupancy_limit": 0.6})
    less = centroid_of({"occupancy": 0.3, "occupancy_limit": 0.3})
    assert moved_text(same, less).count("60% -> 30%") == 1 and moved_text(same, same) == ""


def test_what_fell_is_told_beside_what_got_worse() -> None:
    found = moved(
        "pad_shared_memory",
        {"bank_conflicts": 0.6, "occupancy": 0.9},
        {"bank_conflicts": 0.1, "occupancy": 0.4},
    )
    assert (found.moved, found.stayed, found.against) == (("bank_conflicts",), (), ("occupancy",))
    assert "as it should: 60% -> 10%" in found.cause and "for the worse: occupancy" in found.cause


def test_of_one_that_declares_nothing_the_symptoms_of_the_state_should_go() -> None:
    assert not techniques()["online_softmax"].moves
    wanted = expected("online_softmax", STATES["shared_bank_conflicts"])
    assert wanted.get("bank_conflicts") == -1 and "dram" not in wanted
    assert expected("online_softmax", None) == {}


def test_where_no_counters_were_read_nothing_is_said() -> None:
    nothing = tuple(0.0 for _ in DIMENSIONS)
    assert movement("pad_shared_memory", None, [(nothing, nothing)]).cause == ""
