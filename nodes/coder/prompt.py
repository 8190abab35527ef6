"""The Coder's question to a model: the task with an example, or the last kernel and its feedback.

Light memory: what was written or said before the last round is in no prompt.
"""

from __future__ import annotations

from collections.abc import Mapping
from importlib import resources
from typing import Any

from ...tools.models.records import Message
from ...tools.wording.failures import failure_text
from ...tools.wording.listing import listing
from ...tools.wording.measurements import profile_text, summary_text
from ...tools.workspace import Workspace
from ..common.prompts.render import render
from ..common.prompts.subject import bounds_context, task_context
from ..records.rounds import Candidate, Feedback

State = Mapping[str, Any]
"""What the node reads."""


def coder_messages(workspace: Workspace, state: State, source: str | None) -> tuple[Message, ...]:
    """Return the prompt of the Coder; `source` is the file to change, None for the first one."""
    plan, feedback, latest = state["plan"], state["feedback"], state["latest"]
    task = workspace.task(state["summary"].artifact)
    mode = "first" if source is None else feedback.mode if feedback else "alone"
    said = _feedback(feedback) | _verdict(workspace, state, latest, feedback, source)
    return render(
        "coder",
        plan.models.context_of("coder"),
        # Not measured_by: it changes when another host's first result arrives.
        **task_context(task, workspace.device.identity),
        **bounds_context(task, workspace.device.identity),
        **said,
        mode=mode,
        listing=listing(source) if source else "",
        example_task=_shipped("example_task.txt"),
        example=_shipped("example.cu"),
    )


def _shipped(name: str) -> str:
    return resources.files(__package__).joinpath(name).read_text(encoding="utf-8").strip()


def _feedback(feedback: Feedback | None) -> dict[str, str]:
    if feedback is None:
        return {"finding": "", "method": "", "advice": ""}
    return feedback.model_dump(include={"finding", "method", "advice"})


def _verdict(
    workspace: Workspace,
    state: State,
    latest: Candidate | None,
    feedback: Feedback | None,
    source: str | None,
) -> dict[str, str]:
    """Return the report on the file at hand: why it failed, or, without a Judge, its profile."""
    told = {"failure": "", "summary": "", "profile": ""}
    if source is None or latest is None or (feedback and feedback.mode == "optimisation"):
        return told
    evaluation = workspace.evaluation(str(latest.evaluation_key))
    if latest.point is None:
        told["failure"] = failure_text(
            evaluation.outcome, evaluation.reason, evaluation.diagnostics, source
        )
    elif evaluation.profile is not None and evaluation.timing is not None:
        task = workspace.task(state["summary"].artifact)
        told["summary"] = summary_text(task, evaluation.profile, evaluation.timing)
        told["profile"] = profile_text(evaluation.profile)
    return told
