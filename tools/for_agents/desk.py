"""What an agent's tools act on: one task on one device, and the texts it may refer to by id."""

from __future__ import annotations

import re
from collections.abc import Callable

from ...harness.errors import shown
from ...harness.records.evaluations import DeviceIdentity
from ...harness.records.record import Record
from ...harness.records.tasks import Task
from ...memory.knowledge.knowledge_base import KnowledgeBase
from ...memory.records.policy import PolicyContext
from ...memory.run.artifacts import ArtifactStore
from ..evaluation.evaluator import Evaluator
from ..models.code_reply import read_source
from ..models.reply_forms import MalformedReply

LONGEST_ANSWER = 10_000
"""Characters of one answer; the rest of it is had with `read_more`."""
PIECE = LONGEST_ANSWER - 200
"""Characters of a part of a longer text: how the next one is had stands below it."""
ID_DIGITS = 12
"""Of a text's sha256, in its id."""

_ID = re.compile(rf"(kernel|answer)-([0-9a-f]{{{ID_DIGITS}}})")
_ONE_WORD = re.compile(r"[\w.:/\\~-]{1,200}")
"""No CUDA file, but what may stand for one: a name, a path, half an id."""


class Kernel(Record):
    """A source that an agent gave, or was given, and the id it is known by."""

    id: str
    source: str


class Desk:
    """One task on one device, for an agent.

    Args:
        task: the task.
        evaluator: the gates, with their memory.
        artifacts: where sources and long answers are kept.
        knowledge: gives the knowledge base; called when it is first asked.
        measured_by: the device whose experience counts.
        at: the knowledge base's number that is read; None: the newest.
    """

    def __init__(
        self,
        task: Task,
        evaluator: Evaluator,
        artifacts: ArtifactStore,
        knowledge: Callable[[], KnowledgeBase],
        measured_by: DeviceIdentity,
        at: int | None = None,
    ) -> None:
        self.task = task
        self.evaluator = evaluator
        self.knowledge = knowledge
        self.at = at
        self.identity = measured_by
        self._artifacts = artifacts

    @property
    def context(self) -> PolicyContext:
        """Where a technique would be applied."""
        return PolicyContext.of(self.identity, self.task.op_class, self.task.dtype)

    def keep(self, source: str) -> Kernel:
        """Store a source, so that it can be asked for by its id."""
        return Kernel(id=kernel_id(self._artifacts.put_text(source)), source=source)

    def kernel(self, given: str) -> Kernel:
        """Return the kernel that an agent means: the text of a file, fenced or not, or an id.

        Raises:
            MalformedReply: it is no text of a file and no kernel's id; the reason says what to do.
        """
        word = given.strip().strip("`'\"")
        found = _ID.fullmatch(word)
        if found and found[1] == "kernel":
            return Kernel(id=word, source=self.text(word))
        if _ONE_WORD.fullmatch(word):
            raise MalformedReply(
                f"source is {shown(word)}, which is no kernel: give the complete text of the CUDA "
                "file (not its name or path), or an id that a tool gave, such as "
                f"kernel-{'0' * ID_DIGITS}"
            )
        return self.keep(read_source(given))

    def text(self, reference: str) -> str:
        """Return the text that an id stands for.

        Raises:
            MalformedReply: there is none.
        """
        found = _ID.fullmatch(reference)
        names = self._artifacts.names(found[2]) if found else []
        if not names:
            raise MalformedReply(f"there is no {shown(reference)}: give an id that a tool gave")
        return self._artifacts.get_text(names[0])

    def bounded(self, answer: str) -> str:
        """Return an answer of bounded length; what is longer says how its rest is had."""
        if len(answer) <= LONGEST_ANSWER:
            return answer
        reference = f"answer-{self._artifacts.put_text(answer)[:ID_DIGITS]}"
        return piece(answer, reference, 1)


def kernel_id(sha256: str) -> str:
    """Return the id of a stored source."""
    return f"kernel-{sha256[:ID_DIGITS]}"


def piece(text: str, reference: str, part: int) -> str:
    """Return a part of a long text, counted from 1, and how the next one is had.

    Raises:
        MalformedReply: it has no such part.
    """
    parts = _parts(text)
    if not 1 <= part <= len(parts):
        raise MalformedReply(f"{reference} has the parts 1 to {len(parts)}")
    if part == len(parts):
        return parts[part - 1]
    return (
        f"{parts[part - 1]}\n(part {part} of {len(parts)}; the next: "
        f'read_more(reference="{reference}", part={part + 1}))'
    )


def _parts(text: str) -> list[str]:
    """Return a text in parts that end with a line where they can."""
    found, start = [], 0
    while start < len(text):
        end = min(len(text), start + PIECE)
        if end < len(text):
            end = max(text.rfind("\n", start + PIECE // 2, end) + 1, 0) or end
        found.append(text[start:end])
        start = end
    return found or [""]
