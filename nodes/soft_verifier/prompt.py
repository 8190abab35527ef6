"""The soft verifier's question to a model: the winner beside the reference."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ...tools.models.records import Message
from ...tools.wording.listing import listing
from ...tools.workspace import Workspace
from ..common.prompts.path import path_text
from ..common.prompts.render import render
from ..common.prompts.subject import task_context
from ..common.steps import path_to

State = Mapping[str, Any]
"""What the node reads."""


def verifier_messages(workspace: Workspace, state: State, source: str) -> tuple[Message, ...]:
    """Return the prompt of the soft verifier."""
    plan, winner = state["plan"], state["confirmation"].point
    task = workspace.task(state["summary"].artifact)
    return render(
        "soft_verifier",
        plan.models.context_of("soft_verifier"),
        **task_context(task, workspace.measured_by),
        listing=listing(source),
        path=path_text(path_to(winner.source_sha256, workspace.store.replay.steps())),
    )
