"""Records as entries of the journal: what is written of each, and under which kind and id."""

from __future__ import annotations

from ..records.edits import Edit
from ..records.lessons import READ_OF_A_LESSON, Lesson
from ..records.optimizations import StateOptimization
from ..records.states import PerformanceState
from ..records.update import KnowledgeUpdate
from .journal import Entry
from .kernels import TaskSeen
from .snapshots.contents import EDIT, LESSON, OPTIMIZATION, REVERT, STATE, TASK, WITHDRAWAL
from .snapshots.edits import WrittenEdit

UPDATE = "update"


def entries_of(update: KnowledgeUpdate) -> tuple[list[Entry], Entry]:
    """Return the entries of an update's changes, and the one that completes it."""
    entries = [
        *map(state_entry, update.states),
        *map(optimization_entry, update.optimizations),
        *map(lesson_entry, update.lessons),
        *(Entry(WITHDRAWAL, each.id, each.model_dump_json()) for each in update.withdrawals),
        *map(edit_entry, update.edits),
        *(Entry(REVERT, each.id, each.model_dump_json()) for each in update.reverts),
    ]
    marker = Entry(UPDATE, update.id, update.model_dump_json(include={"run", "iteration"}))
    return entries, marker


def state_entry(state: PerformanceState) -> Entry:
    """Return the entry of a discovered state."""
    plain = state.model_copy(update={"count": 0})
    return Entry(STATE, plain.id, plain.model_dump_json())


def task_entry(task: TaskSeen) -> Entry:
    """Return the entry of a task that a run is made of."""
    return Entry(TASK, task.id, task.model_dump_json())


def optimization_entry(change: StateOptimization) -> Entry:
    """Return the entry of what a state says of a technique."""
    return Entry(OPTIMIZATION, change.id, change.model_dump_json())


def lesson_entry(lesson: Lesson) -> Entry:
    """Return the entry of a lesson, as it is written."""
    body = lesson.model_dump_json(exclude=set(READ_OF_A_LESSON))
    return Entry(LESSON, lesson.id, body)


def edit_entry(edit: Edit) -> Entry:
    """Return the entry of an edit, as it is written."""
    return Entry(EDIT, edit.id, WrittenEdit(edit=edit).model_dump_json())
