"""Knowledge bases under an ablation: what each has of what is there, and that none is written."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, get_args

import pytest

from kernelblaster.memory.database import Database
from kernelblaster.memory.knowledge.ablation import open_under
from kernelblaster.memory.knowledge.knowledge_base import KnowledgeBase
from kernelblaster.memory.knowledge.states.matching import discover
from kernelblaster.memory.records.ablation import Ablation, Memory
from kernelblaster.memory.records.evidence import Evidence
from kernelblaster.memory.records.lessons import Lesson
from kernelblaster.memory.records.policy import PolicyContext
from kernelblaster.memory.records.states import PerformanceState, Signature
from kernelblaster.memory.records.update import KnowledgeUpdate
from kernelblaster.tools.techniques.catalogue import knowledge_seed

SEED = knowledge_seed()
HERE = PolicyContext(
    device_kind="simulated", gpu="H100", arch="sm_90", family="hopper", op_class="elementwise",
    dtype="float32",
)  # fmt: skip
TECHNIQUE = "fast_math"
NEVER_WRITTEN = [mode for mode in get_args(Memory) if mode != "live"]

Opened = Callable[..., KnowledgeBase]


def row(state: str, number: int, log_gain: float) -> Evidence:
    return Evidence(
        task_id="task", run=f"run{number}", iteration=0, rollout=0, step=number,
        op_class="elementwise", dtype="float32", parent_sha256=f"p{number}",
        child_sha256=f"c{number}", state_before=state, signature_before=SEED.states[0].centroid,
        technique=TECHNIQUE, expected_log_gain=0.1, outcome="passed", log_gain=log_gain,
        device_kind="simulated", gpu="H100", arch="sm_90", family="hopper", toolchain="text",
        author="builtin",
    )  # fmt: skip


def lesson(state: str) -> Lesson:
    return Lesson(
        text=f"Never in {state}.", kind="deprecation", technique="unroll_loop", state=state,
        device_kind="simulated", author="builtin", run="run", iteration=0,
    )  # fmt: skip


@pytest.fixture(scope="module")
def taught(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A base in which one technique gains another amount in each of the seed's states."""
    directory = tmp_path_factory.mktemp("taught") / "kb"
    with KnowledgeBase.open(directory, SEED) as knowledge:
        for place, state in enumerate(SEED.states):
            rows = [row(state.id, 10 * place + number, 0.1 * place) for number in range(6)]
            knowledge.add_evidence(rows)
        told = tuple(lesson(state.id) for state in SEED.states[:3])
        knowledge.apply_update(KnowledgeUpdate(run="run", iteration=0, lessons=told))
    return directory


@pytest.fixture
def opened(taught: Path) -> Iterator[Opened]:
    """Opens the base under an ablation; closed at the end."""
    bases: list[KnowledgeBase] = []

    def under(memory: Memory, number: int = 0) -> KnowledgeBase:
        bases.append(open_under(Ablation(memory, number), taught, SEED))
        return bases[-1]

    yield under
    for base in bases:
        base.close()


def believed(base: KnowledgeBase, state: str) -> Any:
    (found,) = base.beliefs(state, [TECHNIQUE], HERE)
    return found.expected


@pytest.mark.parametrize("memory", NEVER_WRITTEN)
def test_nothing_is_added_and_the_index_is_left_to_others(
    memory: Memory, opened: Opened, taught: Path
) -> None:
    with KnowledgeBase.open(taught, SEED) as live:
        before, entries = live.stats(), live.sequence()
    base = opened(memory)
    state = discover(Signature(values=SEED.states[0].centroid), "atomic", None)
    base.match_state(Signature(values=state.centroid), "dram")
    assert base.add_evidence([row("somewhere", 999, 0.5)]) == 0
    assert not base.add_state(state)
    base.apply_update(KnowledgeUpdate(run="r", iteration=0, lessons=(lesson("somewhere"),)))
    with KnowledgeBase.open(taught, SEED) as live:
        assert live.owns_index and not base.owns_index
        assert (live.stats(), live.sequence()) == (before, entries)
        assert base.merge(live) == 0


@pytest.mark.parametrize("memory", NEVER_WRITTEN)
def test_a_base_that_cannot_be_written_to_is_read_all_the_same(
    opened: Opened, taught: Path, memory: Memory, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As on a read-only share: nothing is made there, no file of sqlite's either."""
    expected = [each.id for each in opened(memory).lessons()]
    before = {path: path.stat().st_mtime_ns for path in taught.rglob("*")}
    monkeypatch.setattr(os, "access", lambda path, mode: False)
    monkeypatch.setattr(Database, "_enable_write_ahead_log", lambda self: 1 / 0)
    assert [each.id for each in opened(memory).lessons()] == expected
    assert {path: path.stat().st_mtime_ns for path in taught.rglob("*")} == before


def test_frozen_reads_what_is_there(opened: Opened, taught: Path) -> None:
    frozen = opened("frozen")
    with KnowledgeBase.open(taught, SEED) as live:
        for state in SEED.states:
            assert believed(frozen, state.id) == believed(live, state.id)
        assert frozen.lessons() == live.lessons() != []
        assert frozen.sequence() == live.sequence()


def test_seed_reads_priors_whatever_is_there(opened: Opened, tmp_path: Path) -> None:
    base = opened("seed")
    with KnowledgeBase.open(tmp_path / "new", SEED) as new:
        for state in SEED.states:
            assert base.candidates(state, HERE) == new.candidates(state, HERE)
    assert (base.sequence(), base.lessons(), base.stats()["evidence"]) == (0, [], 0)


def test_off_expects_the_same_of_all_and_knows_no_state(opened: Opened) -> None:
    base = opened("off")
    assert (base.states(), base.lessons()) == ([], [])
    state, _, found = base.match_state(Signature(values=SEED.states[0].centroid), "dram")
    assert found and base.candidates(state, HERE) == []
    expectations = {
        each.expected.model_dump_json() for each in base.beliefs(state, SEED.techniques, HERE)
    }
    assert len(expectations) == 1


@pytest.mark.seldom
def test_shuffled_tells_each_state_of_another_and_each_of_one(opened: Opened) -> None:
    plain = opened("frozen")
    orders = []
    for number in (0, 1):
        shuffled = opened("shuffled", number)
        as_told = {}
        for state in SEED.states:
            given = _offered(shuffled, state)
            (other,) = [each for each in SEED.states if _offered(plain, each) == given]
            assert shuffled.deprecated(state, HERE) == plain.deprecated(other, HERE)
            told = [each.text for each in shuffled.lessons(state=state.id)]
            assert told == [each.text for each in plain.lessons(state=other.id)]
            as_told[state.id] = other.id
        assert sorted(as_told) == sorted(as_told.values())
        assert all(state != other for state, other in as_told.items())
        orders.append(as_told)
    assert orders[0] != orders[1]


def test_shuffled_expects_by_outcomes_of_other_tries(opened: Opened) -> None:
    """In the base, the gain follows from where it was tried; dealt anew, it does not."""
    plain, shuffled, again, other = (
        [believed(opened(memory, number), state.id).mean_log for state in SEED.states]
        for memory, number in (("frozen", 0), ("shuffled", 0), ("shuffled", 0), ("shuffled", 1))
    )
    assert shuffled == again != other and plain != shuffled


def _offered(base: KnowledgeBase, state: PerformanceState) -> dict[str, float]:
    """Return the techniques that a base offers in a state, with the seed's priors."""
    return {
        each.optimization.technique: each.optimization.prior_log_gain
        for each in base.candidates(state, HERE)
    }


def test_a_state_that_nobody_knows_is_told_of_as_a_known_one(opened: Opened) -> None:
    plain, shuffled = opened("frozen"), opened("shuffled")
    new = discover(Signature(values=(0.5,) * len(SEED.states[0].centroid)), "atomic", None)
    given = _offered(shuffled, new)
    assert given in [_offered(plain, state) for state in SEED.states]
