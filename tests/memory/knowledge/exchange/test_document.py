"""Knowledge as a document: what is exported is taken over whole, or not at all."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from found_states import ONE
from rows import row

from kernelblaster.harness.errors import UserError
from kernelblaster.memory.knowledge.changes.undoing import undo
from kernelblaster.memory.knowledge.exchange.document import (
    KnowledgeDocument,
    document_of,
    document_schema,
    export,
    is_document,
    read_document,
    take_over,
    thinned,
)
from kernelblaster.memory.knowledge.journal import Entry, Journal
from kernelblaster.memory.knowledge.knowledge_base import KnowledgeBase
from kernelblaster.memory.knowledge.snapshots.contents import KINDS
from kernelblaster.memory.records.edits import Revise
from kernelblaster.memory.records.evidence import Evidence, Overturned
from kernelblaster.memory.records.lessons import Lesson
from kernelblaster.memory.records.update import KnowledgeUpdate
from kernelblaster.tools.techniques.catalogue import knowledge_seed

STATE = "dram_bandwidth_bound"
Made = Callable[[str], KnowledgeBase]


@pytest.fixture
def made(tmp_path: Path) -> Iterator[Made]:
    opened: list[KnowledgeBase] = []

    def make(name: str) -> KnowledgeBase:
        opened.append(KnowledgeBase.open(tmp_path / name, knowledge_seed()))
        return opened[-1]

    yield make
    for each in opened:
        each.close()


def lesson(*rests_on: Evidence) -> KnowledgeUpdate:
    told = Lesson(
        text="read four floats at once", kind="observation", technique="vectorize_memory_access",
        state=STATE, evidence=tuple(each.id for each in rests_on), device_kind="simulated",
        author="builtin", run="run", iteration=0,
    )  # fmt: skip
    return KnowledgeUpdate(run="run", iteration=0, lessons=(told,))


def as_value(document: KnowledgeDocument) -> Any:
    return json.loads(document.model_dump_json())


def test_all_of_a_base_comes_over_and_nothing_twice(made: Made, tmp_path: Path) -> None:
    base, other = made("base"), made("other")
    base.add_evidence([row(step) for step in range(3)])
    base.apply_update(lesson(row(0)))
    value = as_value(export(base, measured=False, whole=True))
    assert is_document(value)
    document = document_of(value, tmp_path)
    assert take_over(other, document, tmp_path) == 4  # Marks of updates stay behind.
    assert take_over(other, document, tmp_path) == 0
    assert other.snapshot().evidence() == base.snapshot().evidence()
    assert [each.text for each in other.lessons()] == [each.text for each in base.lessons()]


def test_a_small_export_tells_of_what_was_learned_alone_and_is_small(made: Made) -> None:
    base = made("base")
    assert export(base, measured=False, whole=False).states == ()
    base.add_evidence([row(step) for step in range(100)])
    base.apply_update(lesson())
    document = export(base, measured=False, whole=False)
    (state,) = document.states
    assert state["id"] == STATE and [each["tries"] for each in state["optimizations"]] == [100]
    assert [each.kind for each in document.entries] == ["lesson"]
    assert len(document.model_dump_json()) < 50_000
    assert export(base, measured=True, whole=False).states == ()


@pytest.mark.parametrize(
    ("spoil", "words"),
    [
        (lambda value: value["entries"][0].pop("kind"), "damaged"),
        (lambda value: value["entries"][1]["content"].update(log_gain="much"), "nothing was taken"),
        (lambda value: value["entries"][1]["content"].update(signature_before=[0.5]), "taken over"),
        (lambda value: value["entries"][1]["content"].update(log_gain=2.0), "what its id .* says"),
        (lambda value: value["entries"][1].update(id="0" * 64), "what its id 000000000000 says"),
        (lambda value: value["entries"][1].update(kind="rumour"), "rumour. is of a kind that this"),
        (lambda value: value.update(format="kernelblaster-knowledge/9"), "this program reads"),
        (lambda value: value.update(sources={"0" * 64: "text"}), "is not what it was"),
    ],
)
def test_a_damaged_document_changes_nothing(
    made: Made, tmp_path: Path, spoil: Callable[[Any], object], words: str
) -> None:
    base, other = made("base"), made("other")
    base.add_evidence([row(step) for step in range(2)])
    value = as_value(export(base, measured=False, whole=True))
    spoil(value)
    with pytest.raises(UserError, match=words):
        file = tmp_path / "export.json"
        take_over(other, document_of(value, file), file)
    assert other.sequence() == 0


def test_each_kind_of_entry_is_known_by_its_content(made: Made, tmp_path: Path) -> None:
    base = made("base")
    base.add_evidence([row(0)])
    base.overturn([Overturned(evidence=row(0).id, outcome="vetoed", reason="it cheats")])
    base.add_state(ONE)
    told = lesson(row(0))
    revised = Revise(
        technique="vectorize_memory_access", notes="mind the tail", evidence=(row(0).id,),
        reason="tried", device_kind="simulated", author="builtin", run="run", iteration=0,
    )  # fmt: skip
    base.apply_update(told.model_copy(update={"edits": (revised,)}))
    for name in (told.lessons[0].id, revised.id):
        base.apply_update(undo(base, name, "person").update)
    value = as_value(export(base, measured=False, whole=True))
    kinds = [each["kind"] for each in value["entries"]]
    assert {*kinds} == {*KINDS} - {"task", "kernel", "optimization"}
    assert take_over(made("other"), document_of(value, tmp_path), tmp_path) == len(kinds)
    for number in range(len(kinds)):
        spoilt = as_value(export(base, measured=False, whole=True))
        spoilt["entries"][number]["id"] = "0" * 64
        with pytest.raises(UserError, match="nothing was taken over"):
            take_over(made(f"spoilt {number}"), document_of(spoilt, tmp_path), tmp_path)


def test_a_file_that_is_none_is_refused_in_a_line(tmp_path: Path) -> None:
    (tmp_path / "nested.json").write_text("[" * 100_000)
    for name in ("nowhere.json", "nested.json"):
        with pytest.raises(UserError, match="kb export"):
            read_document(tmp_path / name)


def test_a_smaller_base_keeps_the_newest_tries_and_what_something_rests_on(made: Made) -> None:
    base = made("base")
    rows = [row(step) for step in range(10)]
    base.add_evidence(rows)
    base.add_evidence([row(9, run="another")])  # The same fact, told again.
    base.apply_update(lesson(rows[0]))
    kept = {each.id for each in thinned(base, most=3, harness=None)}
    evidence_kept = kept & {row.id for row in base.snapshot().evidence()}
    assert len(evidence_kept) == 4 and rows[0].id in evidence_kept
    assert {rows[8].id, rows[7].id} <= evidence_kept
    none = {each.id for each in thinned(base, most=3, harness="of nobody")}
    assert none & {row.id for row in rows} == {rows[0].id}


def test_each_entry_is_read_once_to_prune(made: Made, monkeypatch: pytest.MonkeyPatch) -> None:
    base = made("base")
    base.add_evidence([row(number) for number in range(4)])
    base.apply_update(lesson(row(0)))
    base.snapshot()
    read: list[int] = []

    def entries(self: Journal, *given: Any, **asked: Any) -> Iterator[Entry]:
        for each in told(self, *given, **asked):
            read.append(each.sequence)
            yield each

    told = Journal.entries
    monkeypatch.setattr(Journal, "entries", entries)
    kept = thinned(base, most=2, harness=None)
    assert sorted(read) == list(range(1, base.sequence() + 1))
    assert [each.sequence for each in kept] == [1, 3, 4, 5, 6]


def test_the_schema_is_published() -> None:
    published = Path(__file__).resolve().parents[4] / "docs" / "knowledge.schema.json"
    remedy = "kernelblaster kb schema > docs/knowledge.schema.json"
    assert json.loads(published.read_text()) == document_schema(), remedy
