"""Whether an entry that comes from elsewhere is what its id says.

Bases are joined by id: an entry whose content was changed under its id would be taken for the one
that it is not, and two bases that took over the one and the other would never agree again.

What ids leave out cannot be checked: of evidence and kernels the wall time, of rows that were
overturned the reason, of states all but what they are bound by and where they lie (a model may
name them). Nor can what a lesson or an edit cites: an export without evidence has none of it.
"""

from __future__ import annotations

import json
from typing import Any

from ....harness.errors import UserError
from ....harness.records.identity import sha256_of_json, source_sha256
from ...records.states import PerformanceState
from ..entries import UPDATE
from ..journal import Entry, Journal
from ..kernels import KnownKernel, TaskSeen
from ..snapshots.contents import KINDS
from ..snapshots.edits import WrittenEdit
from ..states.matching import found_id


def check_ids(journal: Journal, *, with_marks: bool = False) -> None:
    """Check every entry of a journal against its id, and every source against its sum.

    Args:
        journal: of another base, or of a document.
        with_marks: whether it may hold marks of updates, which say when, and nothing else: a base
            has them, a document has none.

    Raises:
        UserError: one is not what its id says, or of a kind that is not known here.
    """
    for sha256, text in journal.sources().items():
        if source_sha256(text) != sha256:
            raise UserError(f"the source {sha256[:12]} is damaged: it is not what it was")
    for entry in journal.entries():
        which = f"entry {entry.sequence} ({entry.kind[:40]})"
        if with_marks and entry.kind == UPDATE:
            _require_mark(entry, which)
            continue
        if entry.kind not in KINDS:
            raise UserError(f"{which} is of a kind that this program does not know")
        if entry.id not in _ids(journal, entry):
            said = f"its content is not what its id {entry.id[:12]} says"
            raise UserError(f"{which} is damaged: {said}")


def _require_mark(entry: Entry, which: str) -> None:
    """Require that a mark of an update says whose it is. Raises UserError."""
    try:
        said = json.loads(entry.body)
    except ValueError:
        said = None
    if not isinstance(said, dict) or not {"run", "iteration"} <= said.keys():
        raise UserError(f"{which} is damaged: it names no run and iteration")


def _ids(journal: Journal, entry: Entry) -> set[str]:
    """Return the ids that an entry's content may have."""
    record = journal.read(KINDS[entry.kind], entry)
    if isinstance(record, PerformanceState):
        return {found_id(record.primary, record.secondary, record.centroid)}
    if isinstance(record, WrittenEdit):
        return {record.edit.id}
    named: Any = record
    ids = {str(named.id)}
    if isinstance(record, TaskSeen | KnownKernel):
        # Theirs are of all fields: what a version wrote that had fewer is known by those.
        stored = json.loads(entry.body)
        stored.pop("created", None)
        ids.add(sha256_of_json([entry.kind, stored]))
    return ids
