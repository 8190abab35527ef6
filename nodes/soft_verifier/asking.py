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
from ..records.reviews import CandidateReview
from ..records.task import TaskSummary
from .prompt import changes_since, verifier_messages
from .reply import SoftVerdict, verdict_on

ACCEPTED, CHANGES_ACCEPTED = "accepted", "changes accepted"
"""As what the stage of its evaluation begins under which a candidate's acceptance is kept, of the
whole file or of what changed in it: the place follows, for what a parallel rollout's review said
meanwhile is not known here (`is_visible`)."""
FIRST: Place = (0, 0, -1)
"""Where the first kernel is reviewed: before all steps."""


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
        read = made_of and accepted_version(workspace, task, steps, made_of, before)
        changes = changes_since(read, source)
        messages = verifier_messages(workspace, plan, task, source, tried, changes)
        return messages, verdict_on(source, task)

    answer = await asked(plan, "soft_verifier", place, prepare)
    return Read(answer, not changes)


def accepted_version(
    workspace: Workspace, task: Task, steps: Sequence[Step], sha256: str, before: Place | None
) -> str | None:
    """Return the newest version on the way to a kernel, itself included, that a model has read and
    accepted; None where there is none."""
    way = ways_through(steps).get(sha256, ())
    for each in dict.fromkeys((sha256, *(step.parent_sha256 for step in reversed(way)))):
        text = workspace.artifacts.get_text(each)
        key = workspace.evaluator.key(task, text)
        if acceptances(workspace, key, before, (ACCEPTED, CHANGES_ACCEPTED)):
            return text
    return None


def acceptances(
    workspace: Workspace, key: str, before: Place | None, stages: Sequence[str]
) -> list[CandidateReview]:
    """Return the visible reviews that accepted a candidate, in order of place."""
    found = [
        review
        for stage in stages
        for review in workspace.store.stages(key, stage, CandidateReview)
        if is_visible(review.place, before)
    ]
    return sorted(found, key=lambda review: review.place)


def visible_claims(workspace: Workspace, before: Place | None) -> list[TriedClaim]:
    """Return the claims of earlier iterations and of the own rollout; see `visible_steps`."""
    claims = workspace.store.claims.all()
    return [tried for tried in claims if is_visible(tried.place, before)]


def is_visible(place: Place, before: Place | None) -> bool:
    """Say whether what was said at a place may be known at another: that of the first kernel, of
    earlier iterations and of the own rollout. None: all may."""
    return (
        before is None
        or place == FIRST
        or place[0] < before[0]
        or (place[:2] == before[:2] and place[2] <= before[2])
    )


async def source_of(plan: RunPlan, sha256: str) -> str:
    """Return a stored source."""
    async with opened(plan) as workspace:
        return await asyncio.to_thread(workspace.artifacts.get_text, sha256)
