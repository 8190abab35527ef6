"""Whose a record is, and how it is named by its content."""

from __future__ import annotations

from typing import Any

from ...harness.records.record import Record

Author = str
"""`builtin`, `person`, or the model's name; several that had a part are joined by ` and `."""

_LATER = (
    "conditions", "steps", "supporting", "opposing", "edits", "withdrawals", "reverts",
    "newest",
)  # fmt: skip
"""Fields that older records had not."""


def as_first_stored(record: Record) -> dict[str, Any]:
    """Return a record's JSON without what older ones had not where it is empty, so that they keep
    their ids."""

    def without(value: Any) -> Any:
        if isinstance(value, list):
            return [without(item) for item in value]
        if not isinstance(value, dict):
            return value
        return {
            name: without(item)
            for name, item in value.items()
            if item or name not in _LATER
        }

    content: dict[str, Any] = without(record.model_dump(mode="json"))
    return content
