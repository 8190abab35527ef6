"""What parameter update changes: later choices, not only what is printed."""

from __future__ import annotations

import asyncio
import json
import math
import sqlite3
from pathlib import Path
from typing import Any

import graph_support
import pytest
from asked import Asked

from kernelblaster.graph.session import Session
from kernelblaster.harness.records import Outcome
from kernelblaster.memory.knowledge.knowledge_base import KnowledgeBase
from kernelblaster.memory.knowledge.signature import DIMENSIONS
from kernelblaster.memory.knowledge.snapshot import discover
from kernelblaster.memory.records import (
    Evidence,
    KnowledgeUpdate,
    Lesson,
    Optimization,
    PolicyContext,
    Signature,
    Step,
)
from kernelblaster.nodes.common.sequences import is_sequence
from kernelblaster.nodes.gap_analysis.builtin import analyze
from kernelblaster.nodes.parameter_update.builtin import Known, knowledge_update
from kernelblaster.nodes.records import (
    Gap,
    GapAnalysis,
    PolicyEvaluation,
    TechniqueReview,
)
from kernelblaster.tools.techniques.catalogue import knowledge_seed

SEED = knowledge_seed()
STATE = "dram_bandwidth_bound"
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


def learned(*gaps: Gap, evidence: tuple[Evidence, ...] = (), **changes: Any) -> KnowledgeUpdate:
    facts: dict[str, Any] = {"listed": SEED.optimizations, "techniques": SEED.techniques}
    known = Known(evidence=evidence, **{**facts, **changes})
    analysis = GapAnalysis(iteration=0, gaps=gaps, author="builtin")
    return knowledge_update(analysis, known, op_class="softmax", device_kind="simulated", run="r")


FAILED = gap("fails", "remove_barriers", None)


def kind_of_lesson(*evidence: Evidence) -> str:
    (lesson,) = learned(FAILED, evidence=evidence).lessons
    return lesson.kind


def test_a_technique_that_only_breaks_kernels_is_deprecated_with_the_reasons() -> None:
    rows = (tried(0, "race"), tried(1, "wrong_answer"))
    (lesson,) = learned(FAILED, evidence=rows).lessons
    assert lesson.kind == "deprecation" and lesson.claimed_log_gain is None
    assert (lesson.state, lesson.op_class) == (STATE, "softmax")
    assert "race, wrong_answer" in lesson.text and "two threads write s[0]" in lesson.text


@pytest.mark.parametrize(
    "rows",
    [
        (tried(0, "race"),),
        (tried(0, "race"), tried(0, "race", run="again", step=5)),
        (tried(0, "race"), tried(1, "race"), tried(2, "passed")),
        (tried(0, "race"), tried(1, "timed_out"), tried(2, "unsupported"), tried(3, "forbidden")),
        (tried(0, "race"), tried(1, "profiler_unavailable"), tried(2, "not_applicable")),
        (tried(0, "race"), tried(1, "race", op_class="matmul")),
        (tried(0, "race"), tried(1, "race", state_before="l2_bound")),
        (tried(0, "race"), tried(1, "race", device_kind="cuda")),
        (tried(0, "race"), tried(1, "race", technique="fast_math")),
    ],
)
def test_less_than_that_is_a_condition_and_no_deprecation(rows: tuple[Evidence, ...]) -> None:
    assert kind_of_lesson(*rows) == "condition"


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
    assert kind_of_lesson(tried(0, outcome.value), tried(1, outcome.value)) == "deprecation"


def test_a_gain_where_nobody_listed_the_technique_lists_it_there_shrunk() -> None:
    assert "tensor_cores_wmma" not in SEED.optimizations[STATE]
    (change,) = learned(gap("underestimated", "tensor_cores_wmma", 0.6)).optimizations
    optimization = change.optimization
    assert (change.state_id, change.device_kind) == (STATE, "simulated")
    assert (optimization.prior_log_gain, optimization.prior_strength) == (0.3, 1.0)
    assert optimization.prior_evidence == ("e1",)
    assert optimization.description == SEED.techniques["tensor_cores_wmma"].description
    assert optimization.notes.startswith(SEED.techniques["tensor_cores_wmma"].notes)
    assert "two threads write s[0]" in optimization.notes
    (unknown,) = learned(gap("confirmed", "never_heard_of", 0.2)).optimizations
    assert unknown.optimization.technique == "never_heard_of"


def test_no_listing_without_a_gain_of_its_own_that_is_new() -> None:
    listed: Optimization = next(iter(SEED.optimizations[STATE].values()))
    update = learned(
        gap("confirmed", "tensor_cores_wmma", 0.04),
        gap("underestimated", listed.technique, 0.6),
        gap("sequence", "tensor_cores_wmma", 0.9, techniques=("tensor_cores_wmma", "fast_math")),
        FAILED,
    )
    assert update.optimizations == () and len(update.lessons) == 4


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
    update = learned(discovered=[state])
    assert update.states == (state,)
    (lesson,) = update.lessons
    assert (lesson.kind, lesson.state) == ("new_state", state.id)


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


def deprecations(folder: Path) -> set[tuple[str | None, str | None]]:
    with KnowledgeBase.open(folder / "kb", knowledge_seed()) as knowledge:
        return {
            (lesson.state, lesson.technique)
            for lesson in knowledge.lessons()
            if lesson.kind == "deprecation" and not lesson.contested
        }


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
    assert again and unsafe.isdisjoint(choices(again))

    with monkeypatch.context() as patch:
        switch_update_off(patch)
        run(deaf, "first")
        run(deaf, "second", seed=1)
    assert deprecations(deaf) == set()
    tried_again = choices(steps(deaf / "second"))
    assert tried_again != choices(again), "the update changes what is chosen"
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
            others = [row for item in update.lessons for row in contradictions(item)]
            assert self.add_evidence(others)
            raise KeyboardInterrupt
        return applied[-1]

    def note(self: KnowledgeBase, state: Any, context: PolicyContext, at: int | None) -> Any:
        read.append(at)
        return candidates(self, state, context, at)

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


def contradictions(lesson: Lesson) -> list[Evidence]:
    """Return another run's evidence that would have made another lesson of this one."""
    outcomes = {"deprecation": ["passed"], "condition": ["race", "race"]}.get(lesson.kind, [])
    return [
        tried(
            number,
            outcome,
            run="other",
            technique=lesson.technique,
            state_before=lesson.state,
            op_class=lesson.op_class,
        )
        for number, outcome in enumerate(outcomes)
    ]


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
