"""What parameter update changes: later choices, not only what is printed."""

from __future__ import annotations

import asyncio
import json
import math
import sqlite3
from pathlib import Path
from typing import Any, cast

import graph_support
import pytest
from asked import Asked

from kernelblaster.graph.session import Session
from kernelblaster.harness.records.outcomes import Outcome
from kernelblaster.memory.knowledge.knowledge_base import KnowledgeBase
from kernelblaster.memory.knowledge.policy.facts import Rows
from kernelblaster.memory.knowledge.snapshots.contents import Contents
from kernelblaster.memory.knowledge.snapshots.snapshot import Snapshot
from kernelblaster.memory.knowledge.states.dimensions import DIMENSIONS
from kernelblaster.memory.knowledge.states.matching import discover
from kernelblaster.memory.records.edits import AddTechnique, Deprecate, Edit
from kernelblaster.memory.records.evidence import Evidence, Step
from kernelblaster.memory.records.policy import PolicyContext
from kernelblaster.memory.records.states import Signature
from kernelblaster.memory.records.update import KnowledgeUpdate
from kernelblaster.nodes.common.history.sequences import is_sequence
from kernelblaster.nodes.gap_analysis.builtin import analyze
from kernelblaster.nodes.parameter_update.builtin import Known, knowledge_update
from kernelblaster.nodes.parameter_update.by_rule import Learned
from kernelblaster.nodes.records.gradient import Gap, GapAnalysis, PolicyEvaluation, TechniqueReview
from kernelblaster.tools.techniques.catalogue import knowledge_seed

SEED = knowledge_seed()
STATE = "dram_bandwidth_bound"
NOTHING_LEARNED = Snapshot(Contents(cast(Any, None), SEED), 0)
SHORT_RUN = {"iterations": 2, "rollouts": 3, "steps": 3}


def gap(kind: str, technique: str, log_gain: float | None, **changes: Any) -> Gap:
    facts: dict[str, Any] = {
        "kind": kind,
        "state_id": STATE,
        "state_name": "DRAM",
        "technique": technique,
        "explanation": "race 1x: two threads write s[0]",
        "evidence": ("e1",),
        "log_gain": log_gain,
    }
    return Gap(**{**facts, **changes})


def tried(number: int, outcome: str, **changes: Any) -> Evidence:
    facts: dict[str, Any] = {
        "task_id": "t",
        "run": "r",
        "iteration": 0,
        "rollout": 0,
        "step": number,
        "op_class": "softmax",
        "dtype": "float32",
        "parent_sha256": f"parent {number}",
        "child_sha256": f"child {number}",
        "state_before": STATE,
        "signature_before": (0.0,) * len(DIMENSIONS),
        "technique": "remove_barriers",
        "expected_log_gain": 0.1,
        "outcome": outcome,
        "log_gain": 0.1 if outcome == "passed" else None,
        "device_kind": "simulated",
        "gpu": "H100",
        "arch": "sm_90",
        "family": "hopper",
        "toolchain": "text",
        "author": "builtin",
    }
    return Evidence(**{**facts, **changes})


def known(evidence: tuple[Evidence, ...] = (), **changes: Any) -> Known:
    return Known(
        Learned(
            **{
                "snapshot": NOTHING_LEARNED, "rows": Rows.of_all({row.id: row for row in evidence}),
                "described": SEED.techniques, "op_class": "softmax", "device_kind": "simulated",
                "run": "r", "iteration": 0, **changes,
            }
        )
    )  # fmt: skip


def learned(*gaps: Gap, evidence: tuple[Evidence, ...] = (), **changes: Any) -> KnowledgeUpdate:
    analysis = GapAnalysis(iteration=0, gaps=gaps, author="builtin")
    return knowledge_update(analysis, known(evidence, **changes)).update


def of(kind: str, technique: str, rows: tuple[Evidence, ...], **changes: Any) -> Gap:
    """Return a gap that rests on rows."""
    gains = [row.log_gain for row in rows if row.log_gain is not None]
    mean = math.fsum(gains) / len(gains) if gains else None
    return gap(kind, technique, mean, evidence=tuple(row.id for row in rows), **changes)


def edits_of(rows: tuple[Evidence, ...]) -> tuple[Edit, ...]:
    return learned(of("fails", "remove_barriers", rows[:1]), evidence=rows).edits


def test_a_technique_that_only_breaks_kernels_is_deprecated_with_the_reasons() -> None:
    rows = (tried(0, "race"), tried(1, "wrong_answer", state_before="l2_bound"))
    (edit,) = edits_of(rows)
    assert isinstance(edit, Deprecate)
    assert (edit.technique, edit.op_class, edit.writer) == ("remove_barriers", "softmax", "builtin")
    assert set(edit.evidence) == {row.id for row in rows}
    assert "race, wrong answer" in edit.reason and "two threads write s[0]" in edit.reason


@pytest.mark.parametrize(
    "rows",
    [
        (tried(0, "race"),),
        (tried(0, "race"), tried(0, "race", run="again", step=5)),
        (tried(0, "race"), tried(1, "race"), tried(2, "passed")),
        (tried(0, "race"), tried(1, "timed_out"), tried(2, "unsupported"), tried(3, "forbidden")),
        (tried(0, "race"), tried(1, "profiler_unavailable"), tried(2, "not_applicable")),
        (tried(0, "race"), tried(1, "race", op_class="matmul")),
        (tried(0, "race"), tried(1, "race", author="openai:m")),
        (tried(0, "race"), tried(1, "race", device_kind="cuda")),
        (tried(0, "race"), tried(1, "race", technique="fast_math")),
    ],
)
def test_less_than_that_is_a_lesson_and_no_deprecation(rows: tuple[Evidence, ...]) -> None:
    update = learned(of("fails", "remove_barriers", rows[:1]), evidence=rows)
    assert update.edits == ()
    (lesson,) = update.lessons
    assert lesson.kind == "condition" and lesson.claimed_log_gain is None


@pytest.mark.parametrize(
    "outcome",
    [
        Outcome.WRONG_ANSWER,
        Outcome.RACE,
        Outcome.OUT_OF_BOUNDS,
        Outcome.MISALIGNED,
        Outcome.UNINITIALIZED_READ,
        Outcome.NONDETERMINISTIC,
        Outcome.CRASHED,
        Outcome.COMPILE_ERROR,
    ],
)
def test_every_way_of_being_incorrect_counts(outcome: Outcome) -> None:
    assert edits_of((tried(0, outcome.value), tried(1, outcome.value)))


def test_a_gain_where_nobody_listed_the_technique_lists_it_there_shrunk() -> None:
    assert "tensor_cores_wmma" not in SEED.optimizations[STATE]
    rows = (tried(0, "passed", technique="tensor_cores_wmma", log_gain=0.6),)
    found = of("underestimated", "tensor_cores_wmma", rows)
    (edit,) = learned(found, evidence=rows).edits
    assert isinstance(edit, AddTechnique)
    assert (edit.state, edit.device_kind) == (STATE, "simulated")
    assert (edit.card.prior_log_gain, edit.card.prior_strength) == (0.3, 1.0)
    assert edit.card.prior_evidence == edit.evidence == (rows[0].id,)
    assert "softmax" in edit.card.notes


def test_no_listing_without_a_gain_of_its_own_that_is_new() -> None:
    rows = (tried(0, "passed", technique="tensor_cores_wmma", log_gain=0.04),)
    assert not learned(of("confirmed", "tensor_cores_wmma", rows), evidence=rows).edits
    known_there = next(iter(SEED.optimizations[STATE]))
    rows = (tried(0, "passed", technique=known_there, log_gain=0.6),)
    assert not learned(of("underestimated", known_there, rows), evidence=rows).edits
    together = gap("sequence", "fast_math", 0.5, techniques=("fast_math", "tune_block_size"))
    assert not learned(together).edits


def test_the_order_of_a_sequence_is_advised_unless_a_model_speaks_of_it() -> None:
    names = ("tensor_cores_wmma", "fast_math")
    found = gap("sequence", names[0], 0.9, techniques=names)
    (ruled,) = learned(found).lessons
    assert ruled.text.startswith('For softmax in "DRAM": ')
    assert ruled.text.endswith("Try them in this order.")
    said = found.model_copy(update={"cause": "No gain depends on the order."})
    (written,) = learned(said).lessons
    assert written.text.endswith("No gain depends on the order.")


def test_two_steps_must_have_gained_for_a_sequence() -> None:
    def step(log_gain: float | None) -> Step:
        return Step(
            run="r", iteration=0, rollout=0, step=0, state_id="s", technique="t",
            expected_log_gain=0.0, outcome="passed", log_gain=log_gain, parent_sha256="p",
            microseconds_before=2.0, bottleneck_before="dram", author="builtin",
        )  # fmt: skip

    assert is_sequence([step(0.5), step(0.0), step(0.06)])
    for gains in ((0.5,), (0.5, 0.004, 0.02), (0.5, None), (0.5, -0.5)):
        assert not is_sequence([step(gain) for gain in gains])


def test_a_loss_where_a_gain_was_expected_is_not_called_confirmed() -> None:
    def kind(expected: float, measured: float) -> str:
        review = TechniqueReview(
            state_id=STATE, state_name="DRAM", technique="t", trials=1, successes=1,
            expected_log_gain=math.log(expected), measured_log_gain=math.log(measured),
            evidence=("e1",), outcomes={"passed": 1},
        )  # fmt: skip
        found = PolicyEvaluation(
            iteration=0, reviews=(review,), mean_absolute_error=0.1, success_rate=1.0,
            author="builtin",
        )  # fmt: skip
        return analyze(found, (), ()).gaps[0].kind

    assert kind(1.02, 0.954) == "overestimated"
    assert kind(1.57, 1.48) == kind(1.02, 0.995) == kind(0.97, 0.95) == "confirmed"


def test_a_gain_near_one_is_said_as_none() -> None:
    (lesson,) = learned(gap("overestimated", "fast_math", 0.004)).lessons
    assert lesson.text.startswith('fast_math in "DRAM" (softmax) gains nothing: ')


def test_states_that_were_found_are_part_of_the_update() -> None:
    signature = Signature(values=tuple(float(i % 2) for i in range(len(DIMENSIONS))))
    state = discover(signature, "dram", "l2")
    update = learned(found={state.id: state})
    assert update.states == (state,)
    assert update.lessons == (), "a description is no lesson"


# On the text device


@pytest.fixture
def text_device(monkeypatch: pytest.MonkeyPatch) -> None:
    graph_support.install(monkeypatch.setattr)


def run(folder: Path, name: str, **changes: Any) -> None:
    folder.mkdir(exist_ok=True)
    request = Asked.of(
        **{"task": "text.py", "knowledge": str(folder / "kb"), **SHORT_RUN, **changes}
    )
    session = request.session(folder / name)
    try:
        asyncio.run(session.run())
    finally:
        session.close()


def steps(directory: Path) -> list[dict[str, Any]]:
    with sqlite3.connect(directory / "run.sqlite") as database:
        rows = database.execute("SELECT body FROM steps ORDER BY iteration, rollout, step")
        return [json.loads(body) for (body,) in rows]


def deprecations(folder: Path) -> set[str]:
    with KnowledgeBase.open(folder / "kb", knowledge_seed()) as knowledge:
        standing = knowledge.snapshot().edits.standing
        return {edit.technique for edit in standing if isinstance(edit, Deprecate)}


def choices(found: list[dict[str, Any]]) -> list[tuple[str, str]]:
    return [(step["state_id"], step["technique"]) for step in found]


def switch_update_off(patch: pytest.MonkeyPatch) -> None:
    def nothing(self: KnowledgeBase, update: KnowledgeUpdate) -> int:
        return self.sequence()

    patch.setattr(KnowledgeBase, "apply_update", nothing)


def test_a_deprecated_technique_is_never_tried_again_and_without_update_it_is(
    tmp_path: Path, text_device: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    learning, deaf = tmp_path / "learning", tmp_path / "deaf"
    run(learning, "first")
    unsafe = deprecations(learning)
    assert unsafe, "the text device's library has techniques that never pass"
    run(learning, "second", seed=1)
    again = steps(learning / "second")
    assert again and unsafe.isdisjoint(step["technique"] for step in again)

    with monkeypatch.context() as patch:
        switch_update_off(patch)
        run(deaf, "first")
        run(deaf, "second", seed=1)
    assert deprecations(deaf) == set()
    without = steps(deaf / "second")
    assert choices(without) != choices(again), "the update changes what is chosen"
    tried_again = {step["technique"] for step in without}
    assert not unsafe.isdisjoint(tried_again), "nothing but the update holds it back"


def test_a_technique_that_gained_is_listed_and_offered_to_neighbours(
    tmp_path: Path, text_device: None
) -> None:
    run(tmp_path, "first")
    with KnowledgeBase.open(tmp_path / "kb", knowledge_seed()) as knowledge:
        table = knowledge.snapshot().optimizations("simulated")
    learned_here = [
        (state, optimization)
        for state, known in table.items()
        for technique, optimization in known.items()
        if technique not in SEED.optimizations.get(state, {})
    ]
    assert learned_here
    for state, optimization in learned_here:
        gains = [
            step["log_gain"]
            for step in steps(tmp_path / "first")
            if (step["state_id"], step["technique"]) == (state, optimization.technique)
            and step["evidence_id"] in optimization.prior_evidence
            and step["log_gain"] is not None
        ]
        assert optimization.prior_log_gain == pytest.approx(math.fsum(gains) / len(gains) / 2)


def test_a_killed_update_repeated_after_another_run_wrote_reads_the_same_snapshot(
    tmp_path: Path, text_device: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Killed between applying the update and the checkpoint; meanwhile another run contradicts."""
    run(tmp_path / "whole", "run")
    folder = tmp_path / "killed"
    folder.mkdir()
    applied: list[int] = []
    read: list[int | None] = []
    apply, candidates = KnowledgeBase.apply_update, KnowledgeBase.candidates

    def die_after_applying(self: KnowledgeBase, update: KnowledgeUpdate) -> int:
        applied.append(apply(self, update))
        if len(applied) == 1:
            others = [row for edit in update.edits for row in contradictions(edit)]
            assert self.add_evidence(others)
            raise KeyboardInterrupt
        return applied[-1]

    def note(
        self: KnowledgeBase, state: Any, context: PolicyContext, at: int | None, *only: Any
    ) -> Any:
        read.append(at)
        return candidates(self, state, context, at, *only)

    monkeypatch.setattr(KnowledgeBase, "apply_update", die_after_applying)
    monkeypatch.setattr(KnowledgeBase, "candidates", note)
    request = Asked.of(task="text.py", knowledge=str(folder / "kb"), **SHORT_RUN)
    session = request.session(folder / "run")
    with pytest.raises(KeyboardInterrupt):
        asyncio.run(session.run())
    session.close()
    read.clear()
    session = Session.open(folder / "run")
    asyncio.run(session.run())
    session.close()
    assert applied[1] == applied[0], "the same update, for it rests on the same evidence"
    assert set(read) == {applied[0]}, "what others wrote since is for the iteration after"
    assert choices(steps(folder / "run")) == choices(steps(tmp_path / "whole" / "run"))


def contradictions(edit: Edit) -> list[Evidence]:
    """Return another run's evidence that would have kept this one from writing an edit."""
    if isinstance(edit, Deprecate):
        return [tried(0, "passed", run="other", technique=edit.technique, op_class=edit.op_class)]
    assert isinstance(edit, AddTechnique)
    named = {"technique": edit.card.technique, "state_before": edit.state}
    return [tried(0, "passed", run="other", log_gain=-3.0, **named)]


def test_what_an_iteration_discovered_is_in_its_update(
    tmp_path: Path, text_device: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    updates: list[KnowledgeUpdate] = []
    apply = KnowledgeBase.apply_update

    def note(self: KnowledgeBase, update: KnowledgeUpdate) -> int:
        updates.append(update)
        return apply(self, update)

    monkeypatch.setattr(KnowledgeBase, "apply_update", note)
    run(tmp_path, "run", iterations=2, rollouts=2, steps=2)
    with KnowledgeBase.open(tmp_path / "kb", knowledge_seed()) as knowledge:
        found = {state.id for state in knowledge.states() if state.origin == "discovered"}
    assert found
    told = [state.id for update in updates for state in update.states]
    assert set(told) == found and len(told) == len(found), "each once, in its own iteration"


def test_the_context_names_the_harness(
    tmp_path: Path, text_device: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: set[str] = set()
    for name in ("candidates", "beliefs"):
        real = getattr(KnowledgeBase, name)

        def spy(self: KnowledgeBase, *values: Any, real: Any = real) -> Any:
            seen.update(v.harness for v in values if isinstance(v, PolicyContext))
            return real(self, *values)

        monkeypatch.setattr(KnowledgeBase, name, spy)
    run(tmp_path, "run", iterations=1, rollouts=1, steps=1)
    assert seen == {graph_support.TextDevice().identity.harness}
