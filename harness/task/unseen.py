"""A task at other sizes than it was loaded with: unseen by a search, or to write kernels from."""

from __future__ import annotations

import json
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from ..build.cache import cache_root, new_entry
from ..process.children import off_loop
from ..records.identity import sha256_of_json
from ..records.programs import Program
from ..records.tasks import REFERENCE_SECONDS, Task, TaskVariant
from ..records.versions import JUDGE_VERSION
from .loading import ReferenceFails, run_reference
from .pytorch import torch_version

DEFAULT_SHAPES, MOST_SHAPES = 2, 32
"""At which a winner is looked at: one below the task's sizes, one above. Each is an evaluation."""

APART, APART_NODES, APART_SECONDS = 3, 500, 90.0
"""Variants that tell sizes apart, operations above which there is one, for each is exported, and
what they are waited for."""

DRAWS_VERSION = "3"
"""Raised when the same seed draws other sizes, or they are described in another way."""


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
    drawn = _drawn(task, base.dimensions, count, f"{task.id} {seed}")
    return tuple(
        task.model_copy(
            update={"full": each, "verify": each, "program": None, "verify_program": None}
        )
        for each in map(TaskVariant.model_validate, drawn["shapes"])
    )


def told_apart_now(task: Task) -> tuple[Task, ...]:
    """Return the task with other sizes to be verified at, which tell its sizes from plain numbers.

    Three channels are three in both variants, as a kernel of 3 x 3 is: which of the two a number
    stands for, only another variant says, in which all sizes that can change are others. How what
    is halved is rounded takes more than one. They are there to write kernels from, not to be run.
    None where the task's own variants tell as much, or its sizes cannot change. Raises UserError.
    """
    small, program = task.verify.dimensions, task.program
    if program is None or all(
        size <= 2 or small[name] != size for name, size in task.full.dimensions.items()
    ):
        return ()
    count = APART if len(program.nodes) <= APART_NODES else 1
    drawn = _drawn(task, task.full.dimensions, count, "told apart", small, APART_SECONDS)
    return tuple(
        task.model_copy(
            update={"verify": TaskVariant.model_validate(variant | {"name": "verify"}),
                    "verify_program": Program.model_validate(each)}
        )
        for variant, each in zip(drawn["shapes"], drawn["programs"], strict=True)
        if each is not None
    )  # fmt: skip


def changed_dimensions(task: Task, other: Task) -> dict[str, int]:
    """Return the sizes of a task that are not those of either variant of another."""
    return {
        name: size for name, size in other.full.dimensions.items()
        if size not in (task.full.dimensions.get(name), task.verify.dimensions.get(name))
    }  # fmt: skip


def _drawn(
    task: Task, base: Mapping[str, int], count: int, seed: str,
    beside: Mapping[str, int] | None = None, seconds: float = REFERENCE_SECONDS,
) -> dict[str, Any]:  # fmt: skip
    """Return the variants of a task at sizes around some, and where others are told, beside which
    sizes are told apart, the program at each."""
    asked = {"count": count, "seed": seed, "beside": beside}
    key = sha256_of_json([task.id, base, asked, torch_version(), JUDGE_VERSION, DRAWS_VERSION])
    final = cache_root() / "shapes" / key[:2] / key
    drawn: dict[str, Any] | None = _cached(final / "shapes.json")
    if drawn is None:
        try:
            drawn = run_reference(
                Path(task.path), task.source, {}, base, Path(), asks={"shapes": asked},
                variation=task.variation, reading=task.reading, seconds=seconds,
            )  # fmt: skip
        except ReferenceFails:  # It will the next time, too.
            if beside is None:
                raise
            drawn = {"shapes": [], "programs": []}
        with new_entry(final) as directory:
            (directory / "shapes.json").write_text(json.dumps(drawn), encoding="utf-8")
    return drawn


def _cached(path: Path) -> Any:
    with suppress(OSError, ValueError):
        return json.loads(path.read_text(encoding="utf-8"))
    return None
