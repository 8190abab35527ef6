"""A task at sizes that no search has seen: drawn from a seed, and told from the task by its id."""

from __future__ import annotations

import json
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from ..build.cache import cache_root, new_entry
from ..process.children import off_loop
from ..records.identity import sha256_of_json
from ..records.tasks import Task, TaskVariant
from ..records.versions import JUDGE_VERSION
from .loading import run_reference
from .pytorch import torch_version

DEFAULT_SHAPES, MOST_SHAPES = 2, 32
"""At which a winner is looked at: one below the task's sizes, one above. Each is an evaluation."""

DRAWS_VERSION = "1"
"""Raised when the same seed draws other sizes."""


async def unseen_tasks(task: Task, count: int, seed: int, *, measured: bool) -> tuple[Task, ...]:
    """Return the task at other sizes, without blocking; see `unseen_tasks_now`."""
    return await off_loop(unseen_tasks_now, task, count, seed, measured)


def unseen_tasks_now(task: Task, count: int, seed: int, measured: bool) -> tuple[Task, ...]:
    """Return the task at up to `count` sizes that it was not written for, drawn from a seed.

    Where a GPU measures, they lie around the task's full dimensions; else around those at which it
    is verified, so that a simulated device can check all of each answer. They are ragged where the
    task allows it: none may be there, where its sizes cannot change. Each has one variant only:
    it is verified and timed at the same dimensions. Raises UserError.
    """
    base = task.full if measured else task.verify
    key = sha256_of_json(
        [task.id, base.dimensions, count, seed, torch_version(), JUDGE_VERSION, DRAWS_VERSION]
    )
    final = cache_root() / "shapes" / key[:2] / key
    described = _cached(final / "shapes.json")
    if described is None:
        described = run_reference(
            Path(task.path), task.source, {}, base.dimensions, Path(),
            asks={"shapes": {"count": count, "seed": f"{task.id} {seed}"}},
            variation=task.variation, reading=task.reading,
        )["shapes"]  # fmt: skip
        with new_entry(final) as directory:
            (directory / "shapes.json").write_text(json.dumps(described), encoding="utf-8")
    return tuple(_at(task, each) for each in described)


def changed_dimensions(task: Task, other: Task) -> dict[str, int]:
    """Return the sizes of a task that are not those of either variant of another."""
    return {
        name: size for name, size in other.full.dimensions.items()
        if size not in (task.full.dimensions.get(name), task.verify.dimensions.get(name))
    }  # fmt: skip


def _at(task: Task, described: Mapping[str, Any]) -> Task:
    one = TaskVariant.model_validate(described)
    return task.model_copy(
        update={"full": one, "verify": one, "program": None, "verify_program": None}
    )


def _cached(path: Path) -> Any:
    with suppress(OSError, ValueError):
        return json.loads(path.read_text(encoding="utf-8"))
    return None
