"""A knowledge base as one document: written for people and other machines, and taken over again.

The first part is for reading: states with their techniques and what came of them, lessons. The
second, `entries`, is the journal itself, and all that is taken over.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from heapq import merge
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Literal

from pydantic import Field, ValidationError

from ....harness.errors import UserError, told_of
from ....harness.files import read_json
from ....harness.records.record import Record
from ..directory import EVIDENCE_FILE, prepare
from ..entries import UPDATE
from ..journal import Entry, Journal
from ..knowledge_base import KnowledgeBase
from ..snapshots.contents import EVIDENCE, KERNEL, KINDS
from .identity import check_ids

DOCUMENT = "kernelblaster-knowledge/1"
LARGEST_DOCUMENT = 512 << 20
"""Bytes of a document that is read."""
_NOT_AN_EXPORT = "name a file that `kb export` wrote"


class StoredEntry(Record):
    """One entry of the journal."""

    kind: str
    """evidence, state, lesson, edit, kernel, ..."""
    id: str
    """Hash of its content, by which an entry that is known already is told."""
    content: dict[str, Any]


class KnowledgeDocument(Record):
    """What `kb export` writes."""

    format: Literal["kernelblaster-knowledge/1"] = "kernelblaster-knowledge/1"
    seed: str
    """Version of the seed that it goes beyond."""
    counts: dict[str, int]
    """What the base held, by name."""
    learned_on: Literal["simulated", "measured"]
    """Whose experience the figures of `states` are."""
    states: tuple[dict[str, Any], ...]
    """Each state that something was learned in, with the techniques that were tried or listed
    there, what came of them, and lessons: for reading."""
    lessons: tuple[dict[str, Any], ...]
    """Those of no one state: for reading."""
    entries: tuple[StoredEntry, ...] = Field(default=())
    """The journal in order of arrival; without evidence unless all was asked for."""
    sources: dict[str, str] = Field(default_factory=dict)
    """Texts of winning kernels by their sha256, where all was asked for."""


def export(knowledge: KnowledgeBase, *, measured: bool, whole: bool) -> KnowledgeDocument:
    """Return a knowledge base as a document.

    Args:
        knowledge: the base.
        measured: whether the figures for reading are those of GPUs, or of the simulated device.
        whole: whether evidence and the texts of winning kernels go along, so that another base
            expects the same of every technique.
    """
    kind = "cuda" if measured else "simulated"
    journal = knowledge.journal
    left_out = {UPDATE} if whole else {UPDATE, EVIDENCE}
    return KnowledgeDocument(
        seed=knowledge.seed().version,
        counts=knowledge.stats(),
        learned_on="measured" if measured else "simulated",
        states=tuple(_learned(knowledge, kind)),
        lessons=tuple(knowledge.general_lessons(device_kind=kind)),
        entries=tuple(
            StoredEntry(kind=each.kind, id=each.id, content=json.loads(each.body))
            for each in journal.entries() if each.kind not in left_out
        ),
        sources=journal.sources() if whole else {},
    )  # fmt: skip


def document_schema() -> dict[str, Any]:
    """Return the JSON schema of the document; `contents` has that of each kind of entry."""
    contents = {kind: record.model_json_schema() for kind, record in KINDS.items()}
    return KnowledgeDocument.model_json_schema() | {"contents": contents}


def is_document(value: Any) -> bool:
    """Say whether a value read from JSON is such a document, of whatever version."""
    said = value.get("format") if isinstance(value, dict) else None
    return isinstance(said, str) and said.startswith(DOCUMENT.partition("/")[0])


def read_document(path: Path) -> Any:
    """Return a file's JSON.

    Raises:
        UserError: it cannot be read, is no JSON, or is too large.
    """
    try:
        if path.stat().st_size > LARGEST_DOCUMENT:
            raise UserError(f"{path} is larger than {LARGEST_DOCUMENT >> 20} MiB; {_NOT_AN_EXPORT}")
        return read_json(path, "exported knowledge", _NOT_AN_EXPORT)
    except OSError as error:
        raise UserError(f"{path} cannot be read: {error.strerror}; {_NOT_AN_EXPORT}") from error


def document_of(value: Any, path: Path) -> KnowledgeDocument:
    """Return the document that a file's JSON is.

    Raises:
        UserError: it is damaged, or of another version.
    """
    if value.get("format") != DOCUMENT:
        raise UserError(f"{path} is {value.get('format')}, this program reads {DOCUMENT}")
    try:
        return KnowledgeDocument.model_validate(value)
    except ValidationError as error:
        raise UserError(f"{path} is damaged: {told_of(error)}; export it again") from error


def take_over(knowledge: KnowledgeBase, document: KnowledgeDocument, path: Path) -> int:
    """Add a document's entries that are missing to a knowledge base; return how many those are.

    Every entry is read first as the base itself would read it, and checked against its id, as each
    source is against its sum: all are taken, or none.

    Args:
        knowledge: the base.
        document: what is taken over.
        path: of its file, for complaints.

    Raises:
        UserError: an entry or a source is damaged.
    """
    with TemporaryDirectory() as folder:
        beside = Path(folder) / "base"
        prepare(beside, create=True)
        journal = Journal(beside / EVIDENCE_FILE)
        try:
            journal.append(
                [Entry(each.kind, each.id, json.dumps(each.content)) for each in document.entries],
                document.sources,
            )
        finally:
            journal.close()
        read = KnowledgeBase(beside, knowledge.seed(), with_index=False)
        try:
            read.snapshot()
            check_ids(read.journal)
            return knowledge.merge(read)
        except UserError as error:
            raise UserError(f"{path}: {error}; nothing was taken over") from error
        finally:
            read.close()


def sources_missing(knowledge: KnowledgeBase, document: KnowledgeDocument) -> tuple[int, int]:
    """Return of how many winning kernels of a document the source is known nowhere, and how many
    kernels it names: neither it nor the base that took it over holds it, so no run can begin with
    them.
    """
    named = {
        str(each.content["source_sha256"]) for each in document.entries if each.kind == KERNEL
    }
    unknown = named - document.sources.keys()
    return sum(knowledge.source(each) is None for each in unknown), len(named)


def thinned(knowledge: KnowledgeBase, *, most: int, harness: str | None) -> list[Entry]:
    """Return a journal's entries but for evidence that says least, in order of arrival.

    What a lesson or an edit rests on always stays, and so does what won.

    Args:
        knowledge: the base.
        most: rows that stay of each technique on each task and GPU, the newest; repeats of the
            same fact count once and are left out.
        harness: version of the judge whose rows stay alone; None for all.
    """
    journal = knowledge.journal
    # What is written meanwhile may cite evidence that is not kept.
    last = journal.sequence()
    others = [each for each in journal.entries(but=EVIDENCE) if each.sequence <= last]
    kept: set[str] = set()
    for each in others:
        if each.kind != KERNEL:
            kept.update(_strings(json.loads(each.body).get("evidence")))
    counted: dict[tuple[object, ...], set[str]] = {}
    for told in reversed(knowledge.snapshot().told()):
        row = told.row
        if harness not in (None, row.harness):
            continue
        seen = counted.setdefault((row.task_id, row.technique, row.gpu, row.device_kind), set())
        if row.fact_id not in seen and len(seen) < most:
            seen.add(row.fact_id)
            kept.add(told.id)
    evidence = (
        each for each in journal.entries(of=EVIDENCE)
        if each.sequence <= last and each.id in kept
    )  # fmt: skip
    return list(merge(others, evidence, key=lambda each: each.sequence))


def _learned(knowledge: KnowledgeBase, kind: str) -> Iterator[dict[str, Any]]:
    """Yield the states of a base as `show` tells of them, without what is the seed's alone."""
    seed, snapshot = knowledge.seed(), knowledge.snapshot()
    for state in knowledge.show(device_kind=kind):
        given = seed.optimizations.get(snapshot.whole(state["id"]) or state["id"], {})
        told = [
            each for each in state["optimizations"]
            if each["tries"] or each["technique"] not in given
            or each["prior_log_gain"] != given[each["technique"]].prior_log_gain
        ]  # fmt: skip
        if told or state["lessons"] or state["origin"] != "seed":
            yield {**state, "optimizations": told}


def _strings(value: Any) -> list[str]:
    return [each for each in value if isinstance(each, str)] if isinstance(value, list) else []
