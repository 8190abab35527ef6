"""The task in short, as state holds it."""

from __future__ import annotations

from ...harness.records.record import Record


class TaskSummary(Record):
    """What routers and selectors need to know of the task; the record itself is an artifact."""

    name: str
    """Of the reference, without .py."""
    id: str
    """sha256 of the reference, its dimensions and its tolerance."""
    artifact: str
    """sha256 of the Task's JSON."""
    op_class: str
    """elementwise, reduction, softmax, normalization, matmul, transpose, or mixed."""
    dtype: str
    """Type of the first output."""
    bound_us: float | None = None
    """Microseconds that no kernel of the task can be faster than on the run's GPU; None where its
    peaks are not known."""
