"""What one call to a model answered for several agents."""

from __future__ import annotations

from typing import Any

from pydantic import Field

from ...harness.records.record import Record


class AnsweredTogether(Record):
    """What one call to a model answered for several agents: each takes its own part."""

    place: tuple[int, ...]
    """Where in the run it was asked."""
    roles: tuple[str, ...]
    """Those that it answers for."""
    replies: dict[str, dict[str, Any]] = Field(default_factory=dict)
    """By role, its reply as JSON; none of a role of which there was nothing to ask, or without any
    usable reply."""
    author: str
    """The model."""
    reason: str = ""
    """Why there is no usable reply."""
    prompt_sha256: str
    """Artifact of the prompt."""
    reply_sha256: str | None = None
    """Artifact of the model's raw reply."""
