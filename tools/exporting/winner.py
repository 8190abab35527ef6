"""What is exported: a kernel that stood, its task, and what was found out about it."""

from __future__ import annotations

import re

from ...harness.build.toolchain import FLAGS
from ...harness.records.evaluations import DeviceIdentity
from ...harness.records.identity import sha256_of
from ...harness.records.record import Record
from ...harness.records.tasks import Task, TaskVariant
from ...harness.task.contract import header
from ...harness.task.interface import TaskInterface

OPTIMISED = tuple(flag for flag in FLAGS if flag.startswith(("-std", "-O")))
"""Of the flags that candidates are judged with, those that change what is computed, or how fast."""

_INCLUDE = re.compile(r'^[ \t]*#[ \t]*include[ \t]*["<]task\.cuh[">].*$', re.MULTILINE)


class Winner(Record):
    """A kernel that a run announced."""

    task: Task
    interface: TaskInterface
    source: str
    """Text of the kernel, which includes task.cuh."""
    device: DeviceIdentity
    """What verified and timed it."""
    run: str
    """Which run it comes from."""
    facts: tuple[str, ...] = ()
    """What a reader should know of it, a sentence each."""
    others: tuple[Task, ...] = ()
    """The task at other shapes at which the same source holds."""

    @property
    def name(self) -> str:
        """An identifier of the task."""
        word = re.sub(r"\W+", "_", self.task.name, flags=re.ASCII).strip("_").lower()
        return word if word[:1].isalpha() else f"task_{word}"

    @property
    def sha256(self) -> str:
        """Of the source and of all that it is built for."""
        variants = [each.full.model_dump_json() for each in (self.task, *self.others)]
        return sha256_of(self.source, self.device.arch, *variants)

    def whole_source(self, variant: TaskVariant) -> str:
        """Return the source with task.cuh in it, so that it compiles alone."""
        text = header(variant).replace("#pragma once\n", "")
        # The first include is replaced; a header that is read once is not there a second time.
        places = iter([text])
        source, count = _INCLUDE.subn(lambda _: next(places, ""), self.source)
        return source if count else f"{text}\n{source}"
