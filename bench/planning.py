"""What a bench is to do, resolved and locked: the set of tasks, variants, seeds and versions."""

from __future__ import annotations

import platform
from importlib import metadata

from ..harness.devices.registry import device_choice, open_device
from ..harness.errors import UserError
from ..harness.records.evaluations import DeviceIdentity
from ..harness.records.identity import sha256_of
from ..harness.records.readings import Reading
from ..harness.records.versions import harness_version
from ..harness.suites.records import SuiteTasks
from ..harness.task.pytorch import torch_version
from ..memory.run.shared_stages import fresh_by_default
from ..nodes.records.plan import RunContext
from ..nodes.run.beginning.begin import resolve_models
from .records import Knowledge, LockedTask, SuiteLock, Variant
from .variants import lengthened

PACKAGES = ("kernelblaster", "langgraph", "langchain-openai", "chromadb", "numpy", "pydantic")
"""Whose versions stand in the lock beside PyTorch's and the toolchain's."""


def lock_of(
    found: SuiteTasks,
    context: RunContext,
    variants: tuple[Variant, ...],
    seeds: tuple[int, ...],
    reading: Reading,
    *,
    knowledge: Knowledge,
    knowledge_from: str = "",
    named: frozenset[str] = frozenset(),
) -> SuiteLock:
    """Return the lock of a bench that is about to begin.

    Args:
        found: the tasks.
        context: what all runs have in common.
        variants: of what is compared.
        seeds: of the runs.
        reading: how references are read.
        knowledge: who shares a base.
        knowledge_from: directory of the base that each begins with a copy of.
        named: settings of `context` that the caller chose; the others may be lengthened to use up
            a cap on evaluations.

    Raises:
        UserError: the device cannot be used, or does not evaluate here.
    """
    device, _ = device_choice(context.device, context.gpu)
    if device.startswith("deferred"):
        raise UserError(
            "--device deferred: a bench waits for its measurements; run it where the GPU is"
        )
    identity = open_device(device, context.gpu).identity
    common = context.model_copy(
        update={
            "device": device, "gpu": identity.gpu, "on_budget": "finish", "knowledge": None,
            "fresh": _is_fresh(context),
        }
    )  # fmt: skip
    for variant in variants:
        resolve_models(variant.in_place_of(common))
    return SuiteLock(
        suite=found.name,
        origin=found.origin,
        versions=versions(identity.kind),
        device=identity,
        knowledge=knowledge,
        knowledge_from=knowledge_from,
        seeds=seeds,
        variants=tuple(
            variant.model_copy(update={"settings": lengthened(variant, common, named)})
            for variant in variants
        ),
        context=common,
        reading=reading,
        tasks=tuple(
            LockedTask(
                name=task.name, sha256=sha256_of(task.source), origin=task.origin,
                tolerance=task.tolerance,
            )
            for task in found.tasks
        ),
        left_out=found.left_out,
    )  # fmt: skip


def _is_fresh(context: RunContext) -> bool:
    """Whether each run evaluates all itself.

    Else they share what they find, charged with the seconds that it took whoever came first: a cap
    on working time would be reached later by whoever came after.
    """
    if context.budgets.wall_seconds is not None:
        return True
    return fresh_by_default() if context.fresh is None else context.fresh


def versions(device: str) -> dict[str, str]:
    """Return the versions of what has a part in the numbers of a kind of device."""
    found = {
        "python": platform.python_version(),
        "torch": torch_version(),
        "judge and device": harness_version(device),
    }
    for name in PACKAGES:
        try:
            found[name] = metadata.version(name)
        except metadata.PackageNotFoundError:
            found[name] = "not installed"
    return found


def require_same(lock: SuiteLock) -> None:
    """Refuse to go on with other versions or another device than a bench began with.

    Raises:
        UserError: names what differs: the numbers of the two would stand in one table.
    """
    context = lock.context
    identity = open_device(context.device, context.gpu).identity
    before = {**lock.versions, **_told(lock.device)}
    now = {**versions(identity.kind), **_told(identity)}
    changed = [
        f"{name} was {before.get(name)} and is {now.get(name)}"
        for name in {**before, **now} if before.get(name) != now.get(name)
    ]  # fmt: skip
    if changed:
        raise UserError(f"this bench cannot go on here: {', '.join(changed)}; start a new one")


def _told(identity: DeviceIdentity) -> dict[str, str]:
    return {name: str(value) for name, value in identity.model_dump().items()}
