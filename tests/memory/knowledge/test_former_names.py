"""Evidence from before a parameter was renamed: stored as it was, read under today's name."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from kernelblaster.memory.knowledge.directory import prepare
from kernelblaster.memory.knowledge.journal import Entry, Journal
from kernelblaster.memory.knowledge.knowledge_base import KnowledgeBase
from kernelblaster.memory.knowledge.states.dimensions import EARLIER
from kernelblaster.memory.knowledge.states.signature import centroid_of
from kernelblaster.memory.records.evidence import Evidence
from kernelblaster.memory.records.optimizations import StateOptimization
from kernelblaster.tools.techniques.catalogue import knowledge_seed, techniques

STATE = "dram_bandwidth_bound"
FIRST_ID = "0faf09e11c3fd29df097730a2f3b04bd9d995d9b139cf587d91c350ad0c8a56e"
"""Of the first row, as the version that wrote it computed it."""
OLD_ROWS: tuple[tuple[str, dict[str, Any], float], ...] = (
    ("tune_block_size", {"size": 64}, 0.1),
    ("tune_block_size", {"block_size": 64}, 0.3),
    ("thread_coarsening", {"items": 4}, 0.2),
    ("thread_coarsening", {"factor": 4}, 0.4),
    ("register_tiling", {"square": 4, "tile": 64}, 1.0),
    ("register_tiling", {"thread_tile": 4, "tile": 64}, 2.0),
    ("unroll_loop", {"factor": 4}, 0.5),
    ("of_a_model", {"size": 3}, 0.6),
)
"""Technique, parameters as the built-in writer and as cards named them, log gain."""


def row(
    number: int, technique: str, parameters: dict[str, Any], log_gain: float, **changes: Any
) -> Evidence:
    facts: dict[str, Any] = {
        "task_id": "t", "run": "r", "iteration": 0, "rollout": 0, "step": number,
        "op_class": "matmul", "dtype": "float32", "parent_sha256": f"parent {number}",
        "child_sha256": f"child {number}", "state_before": STATE,
        "signature_before": centroid_of({})[:EARLIER], "technique": technique,
        "parameters": parameters,
        "expected_log_gain": 0.1, "outcome": "passed", "log_gain": log_gain,
        "device_kind": "simulated", "gpu": "H100", "arch": "sm_90", "family": "hopper",
        "toolchain": "nvcc 13.0", "author": "builtin",
    }  # fmt: skip
    return Evidence.model_validate(facts | changes)


ROWS = [row(number, *each) for number, each in enumerate(OLD_ROWS)]


@pytest.fixture
def knowledge(tmp_path: Path) -> Iterator[KnowledgeBase]:
    """A knowledge base that an earlier version wrote, row by row into its file."""
    prepare(tmp_path / "kb", create=True)
    journal = Journal(tmp_path / "kb" / "evidence.sqlite")
    journal.append(Entry("evidence", each.id, each.model_dump_json()) for each in ROWS)
    journal.close()
    with KnowledgeBase.open(tmp_path / "kb", knowledge_seed()) as opened:
        yield opened


def settings(knowledge: KnowledgeBase, technique: str) -> list[dict[str, Any]]:
    told = knowledge.snapshot().told()
    return [each.row.parameters for each in told if each.row.technique == technique]


def test_rows_keep_their_ids_and_their_text(knowledge: KnowledgeBase) -> None:
    assert ROWS[0].id == FIRST_ID
    before = {entry.id: entry.body for entry in knowledge._journal.entries()}
    assert set(before) == {each.id for each in ROWS}
    read = {told.id: told.row for told in knowledge.snapshot().told()}
    assert set(read) == set(before)
    assert read[FIRST_ID].parameters == {"block_size": 64}
    assert knowledge.add_evidence(ROWS) == 0, "a row of before is not stored again"
    assert {entry.id: entry.body for entry in knowledge._journal.entries()} == before
    assert json.loads(before[FIRST_ID])["parameters"] == {"size": 64}


@pytest.mark.parametrize(
    ("technique", "parameters"),
    [
        ("tune_block_size", {"block_size": 64}),
        ("thread_coarsening", {"factor": 4}),
        ("register_tiling", {"thread_tile": 4, "tile": 64}),
    ],
)
def test_old_names_and_new_are_one_setting(
    knowledge: KnowledgeBase, technique: str, parameters: dict[str, int]
) -> None:
    assert set(techniques()[technique].formerly.values()) <= set(parameters)
    assert settings(knowledge, technique) == [parameters, parameters]


def test_other_techniques_keep_their_names(knowledge: KnowledgeBase) -> None:
    assert settings(knowledge, "unroll_loop") == [{"factor": 4}]
    assert settings(knowledge, "of_a_model") == [{"size": 3}]


def test_a_row_with_both_names_keeps_both(knowledge: KnowledgeBase) -> None:
    both = {"block_size": 128, "size": 256}
    knowledge.add_evidence([row(60, "tune_block_size", both, 0.1)])
    assert both in settings(knowledge, "tune_block_size")


def test_the_same_step_under_both_names_is_one_fact(knowledge: KnowledgeBase) -> None:
    assert knowledge.stats()["evidence"] == len(ROWS)
    tried = len(knowledge._contents.expectations)
    again = ROWS[0].model_copy(update={"run": "another", "parameters": {"block_size": 64}})
    assert knowledge.add_evidence([again]) == 1
    assert knowledge.stats()["evidence"] == len(ROWS) + 1
    assert len(knowledge._contents.expectations) == tried == len(ROWS)


def test_what_was_learned_of_a_technique_has_its_parameters_of_today(
    knowledge: KnowledgeBase,
) -> None:
    card = techniques()["thread_coarsening"].card
    foreign = card.model_copy(update={"technique": "of_a_model", "parameters": {"size": [3]}})
    learned = card.model_copy(update={"notes": "learned", "parameters": {"factor": [4, 2, 8]}})
    for optimization in (learned, foreign):
        change = StateOptimization(
            state_id=STATE, optimization=optimization, device_kind="simulated", revision=1,
            author="builtin",
        )  # fmt: skip
        knowledge._journal.append([Entry("optimization", change.id, change.model_dump_json())])
    under = knowledge.snapshot().optimizations("simulated")[STATE]
    assert under["thread_coarsening"].notes == "learned"
    assert under["thread_coarsening"].parameters == {"factor": [4, 2]}
    assert under["of_a_model"].parameters == {"size": [3]}
