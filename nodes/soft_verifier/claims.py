"""Runs the inputs that a reviewer claims a kernel to be wrong on, each once.

One that shows the kernel wrong is a case of the task from then on; an objection whose input shows
nothing is dropped.
"""

from __future__ import annotations

import asyncio
from functools import partial

from ...harness.devices.protocol import Capability
from ...harness.records.outcomes import outcome_in_words
from ...harness.task.claims import NOT_AN_INPUT
from ...memory.run.claim_book import TriedClaim
from ...tools.progress import report_progress
from ...tools.workspace import Workspace
from ..common.stopping.interrupts import awaited
from ..common.workspaces import opened
from ..records.plan import RunPlan
from ..records.reviews import Objected
from ..records.task import TaskSummary

Place = tuple[int, int, int]


async def tried_claims(
    plan: RunPlan,
    summary: TaskSummary,
    source_sha256: str,
    objections: tuple[Objected, ...],
    author: str,
    place: Place,
) -> tuple[Objected, ...]:
    """Return objections to a kernel with what came of the inputs that they name.

    Where the device cannot run them they stay open.
    """
    async with opened(plan) as workspace:
        if Capability.CLAIMS not in workspace.device.capabilities:
            return objections
        found = []
        for each in objections:
            if each.is_open:
                each = await _tried(plan, workspace, summary, source_sha256, each)
                tried = _told(each, source_sha256, author, place)
                await asyncio.to_thread(workspace.store.claims.add, tried)
            found.append(each)
    return tuple(found)


async def _tried(
    plan: RunPlan,
    workspace: Workspace,
    summary: TaskSummary,
    source_sha256: str,
    objected: Objected,
) -> Objected:
    claim = objected.claim
    assert claim is not None
    task, source = await asyncio.to_thread(
        lambda: (
            workspace.task(summary.artifact),
            workspace.artifacts.get_text(source_sha256),
        )
    )
    run = partial(workspace.evaluator.claimed, task, source, claim)
    verdict = await awaited(plan, workspace, run)
    if refused := verdict.facts.get(NOT_AN_INPUT):
        words = f"no input of this task: {refused}"
    elif verdict.outcome.breaks_kernel:
        words = outcome_in_words(verdict.outcome, verdict.reason)
    else:
        words = "the kernel and PyTorch agree there"
    return objected.model_copy(
        update={"confirmed": verdict.outcome.breaks_kernel, "found": words}
    )


def _told(objected: Objected, source_sha256: str, author: str, place: Place) -> TriedClaim:
    assert objected.claim is not None and objected.confirmed is not None
    report_progress(
        "claim",
        input=str(objected.claim),
        confirmed=objected.confirmed,
        found=objected.found,
        objection=objected.said,
    )
    return TriedClaim(
        claim=objected.claim,
        objection=objected.said,
        quote=objected.quote,
        source_sha256=source_sha256,
        confirmed=objected.confirmed,
        found=objected.found,
        author=author,
        place=place,
    )
