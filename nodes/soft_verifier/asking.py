"""Has a model read one source beside the reference, once in a run."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import NamedTuple

from ...harness.records.tasks import Task
from ...memory.records.evidence import Step
from ...memory.run.claim_book import TriedClaim
from ...tools.models.records import Answer, Message
from ...tools.workspace import Workspace
from ..common.asking import asked
from ..common.history.steps import Place, visible_steps, ways_through
from ..common.workspaces import opened
from ..records.plan import RunPlan
from ..records.task import TaskSummary
from .prompt import changes_since, verifier_messages
from .reply import SoftVerdict, verdict_on

ACCEPTED, CHANGES_ACCEPTED = "accepted", "changes accepted"
"""Under which stage of its evaluation a candidate's acceptance is kept: of the whole file, or of
what changed in it."""


class Read(NamedTuple):
    """What a model says of a source."""

    answer: Answer[SoftVerdict]
    whole: bool
    """Whether it was shown all of it."""


async def verdict_of_model(
    plan: RunPlan,
    summary: TaskSummary,
    source: str,
    place: tuple[int, ...],
    before: Place | None,
    made_of: str | None,
) -> Read:
    """Return what the role's model says of a source.

    Args:
        plan: of the run.
        summary: of its task.
        source: text of the kernel.
        place: where in the run it is asked.
        before: iteration, rollout and step of what may be spoken of; None: all that was claimed.
        made_of: artifact of the kernel that it was written from, or its own: what changed since
            the last version on the way that was accepted is read alone. None: all is read.
    """
    changes = ""

    def prepare(workspace: Workspace) -> tuple[tuple[Message, ...], type[SoftVerdict]]:
        nonlocal changes
        task = workspace.task(summary.artifact)
        tried = visible_claims(workspace, before)
        steps = visible_steps(workspace, before or (plan.iterations, 0, 0))
        read = made_of and accepted_version(workspace, task, steps, made_of)
        changes = changes_since(read, source)
        messages = verifier_messages(workspace, plan, task, source, tried, changes)
        return messages, verdict_on(source, task)

    answer = await asked(plan, "soft_verifier", place, prepare)
    return Read(answer, not changes)


def accepted_version(
    workspace: Workspace, task: Task, steps: Sequence[Step], sha256: str
) -> str | None:
    """Return the newest version on the way to a kernel, itself included, that a model has read and
    accepted; None where there is none."""
    way = ways_through(steps).get(sha256, ())
    for each in dict.fromkeys((sha256, *(step.parent_sha256 for step in reversed(way)))):
        text = workspace.artifacts.get_text(each)
        key = workspace.evaluator.key(task, text)
        if any(workspace.store.has_stage(key, stage) for stage in (ACCEPTED, CHANGES_ACCEPTED)):
            return text
    return None


def visible_claims(workspace: Workspace, before: Place | None) -> list[TriedClaim]:
    """Return the claims of earlier iterations and of the own rollout; see `visible_steps`."""
    return [
        tried
        for tried in workspace.store.claims.all()
        if before is None
        or tried.place[0] < before[0]
        or (tried.place[:2] == before[:2] and tried.place[2] <= before[2])
    ]


async def source_of(plan: RunPlan, sha256: str) -> str:
    """Return a stored source."""
    async with opened(plan) as workspace:
        return await asyncio.to_thread(workspace.artifacts.get_text, sha256)
