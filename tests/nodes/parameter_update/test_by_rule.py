"""Edits that measurements call for: corrections by a cause, conditions, macros; and a model's."""

from __future__ import annotations

from typing import Any, cast

import pytest
from rows import row

from kernelblaster.memory.knowledge.changes.edit_checks import refusal
from kernelblaster.memory.knowledge.policy.facts import Rows
from kernelblaster.memory.knowledge.snapshots.contents import Contents
from kernelblaster.memory.knowledge.snapshots.snapshot import Snapshot
from kernelblaster.memory.records.conditions import Condition
from kernelblaster.memory.records.edits import MOST_CORRECTED, AddMacro, Deprecate, Edit, Revise
from kernelblaster.memory.records.evidence import Evidence
from kernelblaster.nodes.parameter_update.by_rule import Learned, edits_by_rule
from kernelblaster.nodes.parameter_update.entries import condition_text
from kernelblaster.nodes.parameter_update.model_edits import Source, edits_of
from kernelblaster.nodes.parameter_update.reply import PolicyEdit
from kernelblaster.nodes.records.gradient import Gap
from kernelblaster.tools.techniques.catalogue import knowledge_seed

SEED = knowledge_seed()
STATE, WIDE = "dram_bandwidth_bound", "vectorize_memory_access"
PRIOR = SEED.optimizations[STATE][WIDE].prior_log_gain


def learned(*rows: Evidence) -> Learned:
    return Learned(
        snapshot=Snapshot(Contents(cast(Any, None), SEED), 0),
        rows=Rows.of_all({each.id: each for each in rows}),
        described=SEED.techniques, op_class="elementwise", device_kind="simulated", run="r",
        iteration=0,
    )  # fmt: skip


def gap(kind: str, *rows: Evidence, **changes: Any) -> Gap:
    values: dict[str, Any] = {
        "kind": kind, "state_id": STATE, "state_name": "DRAM", "technique": rows[0].technique,
        "explanation": "as told", "evidence": tuple(each.id for each in rows),
        "log_gain": rows[0].log_gain, "cause": "the load/store pipe stayed busy",
    }  # fmt: skip
    return Gap(**{**values, **changes})


def edits(found: Gap, *rows: Evidence) -> tuple[Edit, ...]:
    """Return the edits by rule, each of which must stand the check."""
    known = learned(*rows)
    written = edits_by_rule((found,), known)
    assert [refusal(edit, known.ground()) for edit in written] == [None] * len(written)
    return written


@pytest.mark.parametrize(
    ("kind", "gain", "told", "correction"),
    [
        ("overestimated", PRIOR - 0.2, {"stayed": ("lsu",)}, -0.1),
        ("overestimated", PRIOR - 2.0, {"stayed": ("lsu",)}, -MOST_CORRECTED),
        ("underestimated", PRIOR + 0.3, {"moved": ("lsu",)}, 0.15),
        ("overestimated", PRIOR - 0.2, {"stayed": ("lsu",), "moved": ("dram",)}, None),
        ("overestimated", PRIOR - 0.2, {}, None),
        ("underestimated", PRIOR + 0.3, {"stayed": ("lsu",)}, None),
        ("confirmed", PRIOR + 0.05, {"moved": ("lsu",)}, None),
    ],
)
def test_an_expectation_is_corrected_where_the_counters_say_why(
    kind: str, gain: float, told: dict[str, Any], correction: float | None
) -> None:
    only = row(log_gain=gain)
    written = edits(gap(kind, only, **told), only)
    if correction is None:
        assert written == ()
        return
    (edit,) = written
    assert isinstance(edit, Revise) and (edit.state, edit.revision) == (STATE, 1)
    assert edit.correction == pytest.approx(correction, abs=1e-4)


def several(number: int, gain: float, **changes: Any) -> list[Evidence]:
    """Return rows of distinct kernels of two tasks."""
    first = 10 if gain > 0 else 50
    return [
        row(first + at, gain, task_id=f"task {at % 2}", **changes) for at in range(number)
    ]


def test_what_all_that_lost_have_and_none_that_gained_is_a_condition() -> None:
    lost = several(4, -0.3, signature={"lsu": 0.1})
    won = several(4, 0.3, signature={"lsu": 0.5})
    (edit,) = edits(gap("confirmed", won[0]), *lost, *won)
    assert isinstance(edit, Revise) and edit.state is None
    assert edit.conditions == (Condition(feature="lsu", comparison="at_least", value=0.3),)
    assert set(edit.evidence) == {each.id for each in lost}


def test_kinds_of_task_tell_apart_where_no_figure_does() -> None:
    lost, won = several(4, -0.3, op_class="softmax"), several(4, 0.3)
    (edit,) = edits(gap("confirmed", won[0]), *lost, *won)
    assert isinstance(edit, Revise)
    assert edit.conditions == (
        Condition(feature="op_class", comparison="lacks", value=("softmax",)),
    )


@pytest.mark.parametrize(
    "rows",
    [
        [*several(3, -0.3, signature={"lsu": 0.1}), *several(4, 0.3, signature={"lsu": 0.5})],
        [*several(4, -0.3, signature={"lsu": 0.1}), *several(3, 0.3, signature={"lsu": 0.5})],
        [*several(4, -0.3, signature={"lsu": 0.5}), *several(4, 0.3, signature={"lsu": 0.1})],
        [*several(4, -0.3, signature={"lsu": 0.49}), *several(4, 0.3, signature={"lsu": 0.5})],
        [*several(4, -0.3, signature={"xu": 0.1}), *several(4, 0.3, signature={"xu": 0.9})],
        [row(10 + at, gain, signature={"lsu": 0.4 + gain}) for at, gain in
         enumerate((0.3, 0.3, 0.3, 0.3, -0.3, -0.3, -0.3, -0.3))],
    ],
    ids=["few lost", "few gained", "the other way", "too near", "another figure", "one task"],
)  # fmt: skip
def test_less_than_that_is_no_condition(rows: list[Evidence]) -> None:
    assert edits(gap("confirmed", rows[0]), *rows) == ()


FIRST = row(1, -0.1, technique="shared_memory_tiling", child_sha256="tiled")
SECOND = row(2, 0.9, technique="pad_shared_memory", parent_sha256="tiled")
ALONE = row(3, -0.2, technique="pad_shared_memory")


def test_two_steps_are_one_where_the_second_alone_lost() -> None:
    listed = {"technique": FIRST.technique, "evidence": (FIRST.id, SECOND.id)}
    (edit,) = edits(gap("confirmed", FIRST, **listed), FIRST, SECOND, ALONE)
    assert isinstance(edit, AddMacro)
    assert edit.card.technique == "shared_memory_tiling_then_pad_shared_memory"
    assert edit.proofs[0].without == (ALONE.id,) and edit.proofs[1].gained == (SECOND.id,)
    assert edit.card.prior_log_gain == pytest.approx(0.4)
    for rows in (
        (FIRST, SECOND),
        (FIRST, SECOND, ALONE.model_copy(update={"task_id": "another"})),
        (FIRST.model_copy(update={"child_sha256": "other"}), SECOND, ALONE),
        (FIRST, SECOND, ALONE.model_copy(update={"earlier": {"tile": 16}})),  # A second padding.
        # By itself it gained as much, on the kernel that both begin at.
        (FIRST, SECOND, ALONE, row(9, 0.79, technique="pad_shared_memory",
                                   parent_sha256=FIRST.parent_sha256)),
    ):
        found = gap("confirmed", FIRST, **{**listed, "evidence": tuple(r.id for r in rows[:2])})
        assert edits(found, *rows) == ()


# By a model ----------------------------------------------------------------------------------


def asked(known: Learned, **values: Any) -> tuple[list[Edit], str]:
    """Return what becomes of a model's wish, and why nothing does."""
    ids = {name[:8]: name for name in known.rows}
    said = PolicyEdit.model_validate({"reason": "so they say", **values})
    found, senseless = edits_of([said], Source(known, ids, known.ground(), "openai:m"))
    return found, "".join(why for _, why in senseless)


def test_what_a_model_asks_for_rests_on_rows_that_it_was_shown() -> None:
    lost, won = row(1, -0.3, signature={"lsu": 0.1}), row(2, PRIOR + 0.3, signature={"lsu": 0.6})
    broke = [row(at, None, technique="fast_math", author="openai:m") for at in (3, 4)]
    known = learned(lost, won, *broke, FIRST, SECOND, ALONE)
    needs = {"feature": "lsu", "comparison": "at_least", "value": 0.4}
    (edit,), _ = asked(known, action="revise", techniques=[WIDE], evidence=[lost.id[:8]],
                       conditions=[needs], notes="Wide loads save requests.")  # fmt: skip
    assert isinstance(edit, Revise) and edit.author == "openai:m" and edit.state is None
    assert refusal(edit, known.ground()) is None
    (edit,), _ = asked(known, action="revise", techniques=[WIDE], evidence=[won.id[:8]],
                       factor=0.9)  # fmt: skip
    assert isinstance(edit, Revise) and edit.state == STATE
    assert edit.correction < 0 and "speaks for" not in str(refusal(edit, known.ground()))
    (edit,), _ = asked(known, action="deprecate", techniques=["fast_math"],
                       evidence=[each.id for each in broke])  # fmt: skip
    assert isinstance(edit, Deprecate) and edit.writer == "openai:m"
    assert refusal(edit, known.ground()) is None
    (edit,), _ = asked(known, action="macro", evidence=[FIRST.id[:8], SECOND.id[:8]],
                       techniques=[FIRST.technique, SECOND.technique])  # fmt: skip
    assert isinstance(edit, AddMacro) and refusal(edit, known.ground()) is None


@pytest.mark.parametrize(
    ("values", "why"),
    [
        ({"action": "revise", "techniques": [WIDE], "evidence": ["nowhere"]}, "no row listed"),
        ({"action": "revise", "techniques": [], "evidence": ["FIRST"]}, "about one technique"),
        ({"action": "macro", "techniques": ["a", "b"], "evidence": ["FIRST"]}, "rows cited are"),
        ({"action": "join_states", "states": ["one"], "evidence": ["FIRST"]}, "two states"),
        ({"action": "rename_state", "states": ["one"], "evidence": ["FIRST"]}, "there is no state"),
        ({"action": "split_state", "states": [STATE], "evidence": ["FIRST"]}, "one condition"),
        ({"action": "revise", "techniques": [WIDE], "evidence": ["FIRST"],
          "conditions": [{"feature": "lsu", "comparison": "among", "value": 1}]},
         "among cannot compare with 1"),
    ],
)  # fmt: skip
def test_what_means_nothing_is_refused_and_the_reason_said(
    values: dict[str, Any], why: str
) -> None:
    values["evidence"] = [FIRST.id if each == "FIRST" else each for each in values["evidence"]]
    found, said = asked(learned(FIRST), **values)
    assert found == [] and why in said


def test_a_long_list_of_a_condition_is_told_by_its_first_words() -> None:
    names = tuple(f"op{number}" for number in range(9))
    told = condition_text(Condition(feature="operators", comparison="among", value=names))
    assert told.endswith("op4, op5, 3 more")
    short = Condition(feature="operators", comparison="among", value=names[:6])
    assert condition_text(short) == str(short)
