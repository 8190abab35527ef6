"""What a rewrite takes and gives back."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from ...harness.records.record import Record
from ...harness.records.tasks import Task


class Rewritten(Record):
    """A new source."""

    source: str
    note: str
    """What was changed, in one line."""
    kernel: str = ""
    """The one kernel that was; empty where several may have been."""


class Inapplicable(Record):
    """The technique has nothing to do here; the reason says what is missing."""

    reason: str


Parameters = Mapping[str, int]
Kernels = Sequence[str]
"""The kernels that may be changed, the first that can be is; none named: all, as they stand."""
Outcome = Rewritten | Inapplicable
Apply = Callable[[str, Task, Parameters, Kernels], Outcome]
"""Those that do the same to every kernel change all, whichever are named."""


class NotRecognised(Exception):
    """The source does not have the shape that a technique needs; the text is the reason."""
