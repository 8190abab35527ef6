"""Ask the model of a role for a reply with a form, within the run's caps."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

from ...tools.models.records import Answer, Message, Role
from ...tools.workspace import Workspace
from ..records.plan import RunPlan
from .interrupts import SearchEnds, budgeted
from .replies import Form
from .workspaces import opened


async def asked(
    plan: RunPlan,
    role: Role,
    place: tuple[int, ...],
    prepare: Callable[[Workspace], tuple[tuple[Message, ...], type[Form]]],
) -> Answer[Form]:
    """Return the answer of a role's model; none where a cap ended the search.

    Args:
        plan: says which model, and how it is asked.
        role: who asks.
        place: where in the run; two places get two samples.
        prepare: gives the prompt and the form of the reply; called in a thread, and again after a
            resume, so it must give the same prompt then.
    """

    async def ask() -> Answer[Form]:
        async with opened(plan) as workspace:
            messages, form = await asyncio.to_thread(prepare, workspace)
            return await workspace.asker(plan.models).structured(role, place, messages, form)

    try:
        return await budgeted(plan, ask)
    except SearchEnds as over:
        model = plan.models.model_of(role)
        return Answer(author=model, reason=over.reason, prompt_sha256="")


def stand_in(answer: Answer[Any]) -> str:
    """Return the author of what the built-in reasoner says in a model's place, with the reason."""
    return f"builtin ({answer.author} failed: {answer.reason})"
