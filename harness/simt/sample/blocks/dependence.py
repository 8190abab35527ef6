"""Says whether blocks of a launch may know of each other: then a few of them stand for nothing.

A block that takes a number from a counter, or looks at what another leaves in memory, can tell
which blocks have run before it, and so whether all of them do.
"""

from __future__ import annotations

from ...run.core import Launch

UNEVEN = "its blocks differ so much in their work that a few of them do not tell its time"


class TooUneven(Exception):
    """The blocks of a launch differ so much in their work that a few do not tell the time."""


class Unaffordable(Exception):
    """All blocks of a launch would have to run, which is too much work; the message says why."""


def shared_counter(launch: Launch) -> str:
    """Return what to say where a kernel uses what an atomic on global memory returns, or ""."""
    if not launch.program.answered:
        return ""
    found = launch.module.instructions[launch.program.answered[0]]
    at = f", line {found.line}" if found.line else ""
    return (
        "its blocks take turns at a counter or a lock in memory, or join their results by "
        f"one ({'.'.join((found.opcode, *found.modifiers))}{at}): what one does hangs on the others"
    )
