"""What a model replies as policy evaluation."""

from __future__ import annotations

from collections.abc import Sequence

from pydantic import Field

from ...memory.records.evidence import Step
from ..common.prompts.iteration import resolve
from ..common.replies import Line, Reply, checked


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


def remarks_on(steps: Sequence[Step]) -> type[PolicyRemarks]:
    """Return the form of remarks on an iteration's steps: their ids must be among them."""

    def check(reply: PolicyRemarks) -> None:
        for remark in reply.remarks:
            resolve(remark.evidence, steps)

    return checked(PolicyRemarks, check)
