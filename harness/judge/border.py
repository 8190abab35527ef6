"""The border between a process that ran a candidate and us: a report is checked or refused."""

from __future__ import annotations

import functools
from collections.abc import Iterable
from typing import Any, TypeVar

from pydantic import TypeAdapter, ValidationError

from ..records.builds import Diagnostic
from ..records.evaluations import StageResult
from ..records.outcomes import Outcome

LONGEST_TEXT = 1 << 16
LARGEST_COUNT = 1 << 62
LARGEST_REAL = 1e150
"""Whose square is a number still. What grows as the exponential of a sum is right with errors of
1e19 and more; only answers in double precision go beyond this, and are told as this."""

Report = TypeVar("Report")


class Malformed(ValueError):
    """A report is not what an honest process would have written; the message says where."""

    def __init__(self, reason: str) -> None:
        super().__init__(" ".join(reason.split())[:300])

    def failure(self) -> StageResult:
        """Return it as the failure of the candidate that ran there."""
        reason = f"the process that ran it left a report that cannot be: {self}"
        return StageResult(
            outcome=Outcome.CRASHED, reason=reason,
            diagnostics=(Diagnostic(kind="malformed_report", message=reason),),
        )  # fmt: skip


def read_report(kind: type[Report], value: object) -> Report:
    """Return a parsed JSON value as a record of reports.py or of its like.

    Raises:
        Malformed: a number that is negative, not finite or beyond all measure, a text longer than
            any honest one, a field too few or too many, or one of another type.
    """
    _require_measure(value)
    hashed: Any = kind
    try:
        found: Report = _adapter(hashed).validate_python(value)
    except ValidationError as error:
        first = error.errors()[0]
        raise Malformed(f"{'.'.join(map(str, first['loc']))}: {first['msg']}") from None
    return found


@functools.cache
def _adapter(kind: Any) -> TypeAdapter[Any]:
    return TypeAdapter(kind)


def _require_measure(value: object) -> None:
    left: list[Any] = [value]
    while left:
        part = left.pop()
        if isinstance(part, str):
            if len(part) > LONGEST_TEXT:
                raise Malformed(f"a text of {len(part)} characters")
        elif isinstance(part, int | float):
            # A real number of this size where a count belongs is refused when the record is made.
            largest = LARGEST_REAL if isinstance(part, float) else LARGEST_COUNT
            if not 0 <= part <= largest:
                raise Malformed(f"the number {str(part)[:40]}")
        elif isinstance(part, dict):
            left += [*part, *part.values()]
        elif isinstance(part, Iterable):
            left += part
