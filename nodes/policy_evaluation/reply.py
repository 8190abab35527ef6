"""What a model replies as policy evaluation."""

from __future__ import annotations

from pydantic import Field

from ..common.replies import Line, Reply


class Remark(Reply):
    """What the measurements say about one expectation."""

    evidence: tuple[str, ...] = Field(min_length=1, max_length=12)
    """Ids of the steps it rests on, as listed."""
    text: Line = Field(min_length=1)
    """What the expectation got right or wrong; one sentence."""


class PolicyRemarks(Reply):
    """Reply of policy evaluation."""

    remarks: tuple[Remark, ...] = Field(max_length=12)
    summary: Line = Field(min_length=1)
    """How far this iteration's expectations can be trusted, and where not; one or two
    sentences."""
