"""Reads every kernel of a source as one kind, each with edits to a source of its own."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from ....harness.records.tasks import Task
from ..records import NotRecognised
from ..source.constants import Constants
from ..source.syntax import Kernel, Launch, Source

Found = TypeVar("Found")


def recognised(
    text: str,
    task: Task,
    read: Callable[[Source, Constants, Kernel, Launch], Found],
    none: str,
    only: str = "",
    shared: Source | None = None,
) -> list[Found]:
    """Return the kernels of a source that are of a kind, in order.

    Args:
        text: the source.
        task: gives its constants their values.
        read: reads one kernel with its launch, or raises NotRecognised.
        none: what is said where no kernel is of the kind.
        only: the name of a kernel, where no other is asked for.
        shared: the source with the edits so far, where edits of several kernels go together.

    Raises:
        NotRecognised: there is none; the reason is that of the last kernel looked at.
    """
    reason = "the source has no kernel"
    found = []
    whole = shared or Source(text)
    constants = Constants(whole, task)
    for name in [kernel.name for kernel in whole.kernels()]:
        if only not in ("", name):
            continue
        source = shared or Source(text)
        kernel = next(each for each in source.kernels() if each.name == name)
        try:
            with source.all_or_none():
                found.append(read(source, constants, kernel, source.launch_of(kernel)))
        except NotRecognised as why:
            reason = str(why)
    if not found:
        raise NotRecognised(f"{none}: {reason}")
    return found
