"""What is said of a candidate that failed, in the conversation with who wrote it."""

from __future__ import annotations

from ....harness.records.evaluations import Evaluation
from ....tools.models.records import Message
from ....tools.models.reply_forms import RawReply
from ....tools.wording.failures import failure_text
from ....tools.wording.listing import listing
from ....tools.workspace import Workspace
from .render import render

REPAIR_TOKENS = 6000
"""Of one message that says what went wrong."""


def repair_messages(
    evaluation: Evaluation | None, source: str, *, numbered: bool, keep: str
) -> tuple[Message, ...]:
    """Return the message that says what is wrong with a candidate.

    Args:
        evaluation: the verdict on it.
        source: its text.
        numbered: whether the whole file is shown again, with line numbers.
        keep: what must survive the mending, in words.
    """
    failure = (
        failure_text(evaluation.outcome, evaluation.reason, evaluation.diagnostics, source)
        if evaluation
        else "It did not pass."
    )
    return render(
        "repair",
        REPAIR_TOKENS,
        failure=failure,
        listing=listing(source) if numbered else "",
        keep=keep,
    )


def reply_words(workspace: Workspace, sha256: str | None) -> str:
    """Return the text of a model's stored reply; empty where there is none."""
    if sha256 is None:
        return ""
    return RawReply.model_validate_json(workspace.artifacts.get_text(sha256)).words()
