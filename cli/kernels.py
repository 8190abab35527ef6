"""What `kb kernels` shows: the tasks that runs were made of, and the kernels of one."""

from __future__ import annotations

from pathlib import Path
from typing import Any, NamedTuple

from rich.console import Console
from rich.markup import escape
from rich.table import Table

from ..harness.errors import UserError
from ..harness.task.loading import load_task_now
from ..memory.knowledge.kernels import KnownKernel, TaskSeen, Tried
from ..memory.knowledge.knowledge_base import KnowledgeBase
from ..memory.knowledge.policy.facts import comparable
from ..tools.wording.kernel_tree import tree_lines

SHORT = 8
"""Characters of a task's id."""


class TaskKernels(NamedTuple):
    """The kernels of one task."""

    task_id: str
    task: TaskSeen | None
    """None where no run noted more than its id."""
    tried: list[Tried]
    won: list[KnownKernel]

    def as_json(self) -> dict[str, Any]:
        """Return JSON values."""
        return {
            "task_id": self.task_id,
            "task": self.task and self.task.model_dump(mode="json"),
            "tried": [each._asdict() for each in self.tried],
            "won": [each.model_dump(mode="json") for each in self.won],
        }


def tasks_of(knowledge: KnowledgeBase, kind: str) -> list[dict[str, Any]]:
    """Return the tasks that a knowledge base has kernels or tries of, those with most first."""
    names = {each.task_id: each for each in knowledge.tasks_seen()}
    tries: dict[str, int] = dict.fromkeys(names, 0)
    for row in knowledge.snapshot().evidence():
        if comparable(row.device_kind, kind):
            tries[row.task_id] = tries.get(row.task_id, 0) + 1
    won: dict[str, list[KnownKernel]] = {}
    for kernel in knowledge.kernels_won():
        if comparable(kernel.device_kind, kind):
            won.setdefault(kernel.task_id, []).append(kernel)
    found = [
        {
            "task_id": name,
            "name": names[name].name if name in names else "",
            "op_class": names[name].op_class if name in names else "",
            "dtype": names[name].dtype if name in names else "",
            "sizes": names[name].shape_class if name in names else "",
            "tries": count,
            "won": len({each.source_sha256 for each in won.get(name, ())}),
            "best": {
                gpu: min(each.microseconds for each in won[name] if each.gpu == gpu)
                for gpu in sorted({each.gpu for each in won.get(name, ())})
            },
        }
        for name, count in tries.items()
    ]
    return sorted(found, key=lambda each: (-each["tries"], each["name"], each["task_id"]))


def kernels_of(knowledge: KnowledgeBase, task: str, kind: str) -> TaskKernels:
    """Return what is known of a task's kernels.

    Args:
        knowledge: the base.
        task: name of the task, the beginning of its id, or the reference's file.
        kind: of device: simulated or cuda.

    Raises:
        UserError: there is no such task, or there are several.
    """
    names = {each.task_id: each for each in knowledge.tasks_seen()}
    ids = sorted({*names, *(row.task_id for row in knowledge.snapshot().evidence())})
    if Path(task).is_file():
        wanted = [load_task_now(Path(task)).id]
    else:
        wanted = [name for name in ids if name in names and names[name].name == task]
        wanted = wanted or [name for name in ids if name.startswith(task)]
    known = [name for name in wanted if name in ids]
    if not known:
        raise UserError(
            f"the knowledge base knows no kernel of {task!r}; list the tasks it knows: "
            "kernelblaster kb kernels"
        )
    if len(known) > 1:
        which = ", ".join(name[:SHORT] for name in known)
        raise UserError(f"{task!r} are {len(known)} tasks: {which}; name one by its id")
    (name,) = known
    return TaskKernels(
        name,
        names.get(name),
        [each for each in knowledge.tried_on(name) if comparable(each.device_kind, kind)],
        [each for each in knowledge.kernels_won(name) if comparable(each.device_kind, kind)],
    )


def show_tasks(console: Console, tasks: list[dict[str, Any]], kind: str) -> None:
    """Print the tasks, a line each."""
    if not tasks:
        console.print("no kernel was tried yet")
        return
    table = Table("task", "id", "class", "type", "sizes", "tries", "won", "best")
    for each in tasks:
        best = ", ".join(f"{us:.2f} us ({gpu})" for gpu, us in each["best"].items())
        table.add_row(
            escape(each["name"]), each["task_id"][:SHORT], each["op_class"], each["dtype"],
            each["sizes"], str(each["tries"]), str(each["won"]), best,
        )  # fmt: skip
    console.print(table)
    console.print(f"times are {_provenance(kind)}", highlight=False)


def show_kernels(console: Console, found: TaskKernels, kind: str) -> None:
    """Print the tree of a task's kernels."""
    name = found.task.name if found.task else found.task_id[:SHORT]
    lines = tree_lines(found.tried, found.won)
    head = f"{name}: {len(found.tried)} actions tried, {len(found.won)} wins ({_provenance(kind)})"
    for line in (head, *lines):
        console.print(line, markup=False, highlight=False, soft_wrap=True)


def _provenance(kind: str) -> str:
    return "simulated" if kind == "simulated" else "measured"
