"""The words of a set of tasks."""

from __future__ import annotations

from pydantic import Field

from ..records.record import Record


class SuiteTask(Record):
    """One task of a suite, as the text of a reference in KernelBench form."""

    name: str
    """Its word in all tables; a file name without .py."""
    source: str
    """The reference."""
    origin: str
    """Where it was read."""
    tolerance: dict[str, float | bool | None] = Field(default_factory=dict)
    """What its origin accepts, in the origin's words; ours judges. Empty: it says nothing."""


class LeftOut(Record):
    """A task that is there and cannot be one of ours."""

    name: str
    """What it would be called."""
    reason: str
    """Why not."""


class SuiteTasks(Record):
    """A set of tasks, and what of it was left out."""

    name: str
    """Of the set."""
    origin: str
    """A path, or hub:OWNER/NAME."""
    tasks: tuple[SuiteTask, ...]
    """In the order in which they are done."""
    left_out: tuple[LeftOut, ...] = ()
    """What is told and not done."""
