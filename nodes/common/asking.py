"""Ask the model of a role for a reply with a form, within the run's caps."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

from pydantic import ValidationError

from ...tools.models.records import Answer, Message, Role
from ...tools.workspace import Workspace
from ..records.plan import RunPlan
from ..records.together import AnsweredTogether
from .replies import Form
from .stopping.interrupts import SearchEnds, budgeted
from .workspaces import opened


async def asked(
    plan: RunPlan,
    role: Role,
    place: tuple[int, ...],
    prepare: Callable[[Workspace], tuple[tuple[Message, ...], type[Form]]],
    together: AnsweredTogether | None = None,
) -> Answer[Form]:
    """Return the answer of a role's model; none where a cap ended the search.

    Args:
        plan: says which model, and how it is asked.
        role: who asks.
        place: where in the run; two places get two samples.
        prepare: gives the prompt and the form of the reply; called in a thread, and again after a
            resume, so it must give the same prompt then.
        together: what a model was asked for several roles; one that fits no more is asked alone.
    """

    async def ask() -> Answer[Form]:
        async with opened(plan) as workspace:
            messages, form = await asyncio.to_thread(prepare, workspace)
            if together is not None and together.place == place and role in together.roles:
                if (told := _part(together, role, form)) is not None:
                    return told
            return await workspace.asker(plan.models).structured(role, place, messages, form)

    try:
        return await budgeted(plan, ask)
    except SearchEnds as over:
        model = plan.models.model_of(role)
        return Answer(author=model, reason=over.reason, prompt_sha256="")


def _part(together: AnsweredTogether, role: Role, form: type[Form]) -> Answer[Form] | None:
    """Return a role's part of an answer; None where it does not fit what came of the others."""
    value = None
    if role in together.replies:
        try:
            value = form.model_validate(together.replies[role])
        except ValidationError:
            return None
    return Answer(
        value=value,
        author=together.author,
        reason=together.reason,
        prompt_sha256=together.prompt_sha256,
        reply_sha256=together.reply_sha256,
    )


def stand_in(answer: Answer[Any]) -> str:
    """Return the author of what the built-in reasoner says in a model's place, with the reason."""
    return f"builtin ({answer.author} failed: {answer.reason})"
