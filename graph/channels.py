"""Keeps records in a graph's state whoever writes them: JSON that a client sends becomes a record.

LangGraph stores what it is given. A client of a server edits state in JSON, and a parent's saver
may give back dictionaries: both become what the nodes read, or are refused in one sentence.
"""

from __future__ import annotations

import functools
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from typing import Any, Self

from langgraph.channels.binop import BinaryOperatorAggregate
from langgraph.channels.last_value import LastValue

from ..harness.errors import BadValue, UserError, typed
from ..harness.records.record import Record
from ..nodes.common.stopping.approval import PERSON
from ..nodes.records.choices import TechniqueChoice
from ..nodes.records.gradient import ParameterUpdate
from ..nodes.records.plan import RunPlan
from ..nodes.run.beginning.begin import check_asked

FIXED = (
    "task", "start", "run", "run_id", "dimensions", "reading", "policy", "gpu", "device",
    "device_why", "identity", "knowledge", "task_sha256", "forked_from", "memory", "choice",
    "counters", "gradient", "sweeps",
)  # fmt: skip
"""Fields of a run's plan that say which run it is."""
WHICH_RUN = "it says which run this is; start another run"
MAY_GO = ("lessons", "edits")
ONLY_THESE = "of an update lessons and edits can be left out, before keep_lessons reads them"


class Recorded(LastValue[Any]):
    """The last value written, as the type its key has.

    A dictionary written over a record is an edit: the fields that it has not stay as they were; one
    that has all of them is the value itself. Of a run's plan only those can be edited that do not
    say which run it is, of an update only its lessons and edits, which can be left out.
    """

    __slots__ = ()

    def from_checkpoint(self, checkpoint: Any) -> Self:
        """Return the channel with a stored value, made a record where it no longer is one."""
        channel = super().from_checkpoint(checkpoint)
        if channel.is_available():
            channel.value = typed(self.typ, self.key, channel.value)
        return channel

    def update(self, values: Sequence[Any]) -> bool:
        """Take what was written in one step: one value, or the same by several.

        Raises:
            BadValue: it is no value of this key's type, or cannot be edited.
            InvalidUpdateError: several values differ.
        """
        if not values:
            return False
        taken = [typed(self.typ, self.key, self._edited(value)) for value in values]
        return super().update(taken[:1] if all(each == taken[0] for each in taken) else taken)

    def _edited(self, value: Any) -> Any:
        before = self.value if self.is_available() else None
        if not isinstance(before, Record) or not isinstance(value, Mapping):
            return value
        whole = value.keys() >= type(before).model_fields.keys()
        after = typed(
            self.typ,
            self.key,
            dict(value) if whole else _merged(before.model_dump(mode="json"), value),
        )
        if isinstance(before, RunPlan):
            _require_same(before, after, FIXED, self.key, WHICH_RUN)
            _require_same(before, after, ("model",), self.key, f"edit {self.key}.models.roles")
            _check_asked(before, after)
        elif isinstance(before, ParameterUpdate):
            if whole and after.iteration != before.iteration:
                return after
            others = [name for name in type(before).model_fields if name not in MAY_GO]
            _require_same(before, after, others, self.key, ONLY_THESE)
            for name in MAY_GO:
                if not set(getattr(after, name)) <= set(getattr(before, name)):
                    raise BadValue(f"{self.key}.{name} cannot be edited: {ONLY_THESE}")
        elif isinstance(before, TechniqueChoice) and not whole:
            return after.model_copy(update=_of_a_person(value, before))
        return after


class Merged(BinaryOperatorAggregate[Any]):
    """What a reducer makes of all that was written, as the type its key has.

    The reducer makes records of what is written; what a saver gives back is made records here.
    """

    def from_checkpoint(self, checkpoint: Any) -> Self:
        """Return the channel with a stored value, made records where it no longer is."""
        channel = super().from_checkpoint(checkpoint)
        if channel.is_available():
            channel.value = typed(self.typ, self.key, channel.value)
        return channel


Node = Callable[..., Awaitable[dict[str, Any]]]


def sent(kind: Any, node: Node) -> Node:
    """Return a node that reads what a `Send` gave it as records.

    No channel keeps that: a server's saver, or a parent's, gives dictionaries back on resume.
    """

    @functools.wraps(node)
    async def received(state: Any, *rest: Any, **named: Any) -> dict[str, Any]:
        return await node(typed(kind, "what was sent", state), *rest, **named)

    return received


def _check_asked(before: RunPlan, after: RunPlan) -> None:
    if (before.models, before.budgets, before.writer) == (
        after.models, after.budgets, after.writer
    ):  # fmt: skip
        return
    try:
        check_asked(after)
    except UserError as error:
        raise BadValue(str(error)) from error  # A server tells its clients those words.


def _of_a_person(edit: Mapping[str, Any], before: TechniqueChoice) -> dict[str, Any]:
    """Return what an edit changes besides: another technique has other settings."""
    other = edit.get("technique", before.technique) != before.technique
    return {"author": PERSON} | ({"settings": ({},)} if other and "settings" not in edit else {})


def _require_same(
    before: Record, after: Record, names: Iterable[str], key: str, why: str
) -> None:
    for name in names:
        if getattr(after, name) != getattr(before, name):
            raise BadValue(f"{key}.{name} cannot be edited: {why}")


def _merged(before: Mapping[str, Any], edit: Mapping[str, Any]) -> dict[str, Any]:
    """Return what was with an edit over it, field by field."""
    merged = dict(before)
    for key, value in edit.items():
        inner = isinstance(value, Mapping) and isinstance(merged.get(key), Mapping)
        merged[key] = _merged(merged[key], value) if inner else value
    return merged
