"""Reads the kernels of a source as one kind, each with its own edits, and changes the first."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Protocol, TypeVar

from ....harness.records.tasks import Task
from ..records import Inapplicable, Kernels, NotRecognised, Outcome, Rewritten
from ..source.constants import Constants
from ..source.syntax import Kernel, Launch, Source

Found = TypeVar("Found")


def recognised(
    text: str,
    task: Task,
    read: Callable[[Source, Constants, Kernel, Launch], Found],
    none: str,
    kernels: Kernels = (),
    shared: Source | None = None,
) -> list[Found]:
    """Return the kernels of a source that are of a kind, in its order or as they are named.

    Args:
        text: the source.
        task: gives its constants their values.
        read: reads one kernel with its launch, or raises NotRecognised.
        none: what is said where no kernel is of the kind.
        kernels: those that are asked for, by name.
        shared: the source with the edits so far, where edits of several kernels go together.

    Raises:
        NotRecognised: there is none; the reason is that of the last kernel looked at.
    """
    reason = "the source has no kernel"
    found = []
    whole = shared or Source(text)
    constants = Constants(whole, task)
    for name in [kernel.name for kernel in whole.kernels(kernels)]:
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


class OfKernel(Protocol):
    """A kernel that was read as something."""

    @property
    def kernel(self) -> Kernel:
        """As it stands in the source."""


Changed = TypeVar("Changed", bound=OfKernel | Kernel)


def first_changed(
    found: Iterable[Changed], change: Callable[[Changed], Rewritten]
) -> Outcome:
    """Change the first kernel that can be; the reason is the first one's where none can.

    `change` raises NotRecognised for a kernel that it leaves alone.
    """
    first = ""
    for each in found:
        kernel = each if isinstance(each, Kernel) else each.kernel
        try:
            return change(each).model_copy(update={"kernel": kernel.name})
        except NotRecognised as why:
            first = first or str(why)
    return Inapplicable(reason=first or "the source has no kernel")
