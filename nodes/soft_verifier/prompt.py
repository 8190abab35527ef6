"""The soft verifier's question to a model: a kernel beside the reference."""

from __future__ import annotations

from collections.abc import Sequence

from ...harness.records.tasks import Task
from ...memory.run.claim_book import TriedClaim
from ...tools.models.records import Message
from ...tools.wording.difference import difference
from ...tools.wording.listing import line_of, listing
from ...tools.workspace import Workspace
from ..common.prompts.render import render
from ..common.prompts.subject import task_context
from ..records.plan import RunPlan

MOST_CHANGED = 0.7
"""Length of the changes over that of the file, from which the file is easier to read."""
MOST_REFUTED = 6
"""Claims told of that showed nothing."""


def verifier_messages(
    workspace: Workspace,
    plan: RunPlan,
    task: Task,
    source: str,
    tried: Sequence[TriedClaim] = (),
    changes: str = "",
) -> tuple[Message, ...]:
    """Return the prompt of the soft verifier.

    Args:
        workspace: of the run.
        plan: of the run.
        task: what the file computes.
        source: the file.
        tried: the claims that it may know of.
        changes: what alone is read of it, see `changes_since`; empty for the whole file.
    """
    return render(
        "soft_verifier",
        plan.models.context_of("soft_verifier"),
        **task_context(task, workspace.measured_by),
        listing="" if changes else listing(source),
        changes=changes,
        claims=refuted_text(tried, source),
    )


def changes_since(accepted: str | None, source: str) -> str:
    """Return what changed since a version that was accepted; empty where the file is to be read."""
    changes = difference(accepted, source) if accepted else ""
    return changes if len(changes) <= MOST_CHANGED * len(source) else ""


def refuted_text(tried: Sequence[TriedClaim], source: str) -> str:
    """Return what was claimed of lines that a source has too, and shown wrong by running it."""
    told = {
        " ".join(each.quote.split()): f"- {each.objection}; run where {each.claim}: {each.found}"
        for each in tried
        if not each.confirmed and line_of(source, each.quote) is not None
    }
    return "\n".join(list(told.values())[-MOST_REFUTED:])
