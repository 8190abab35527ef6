"""A round of the policies that write one candidate each: the candidate and what the Judge says."""

from __future__ import annotations

from typing import Any, Literal

from pydantic import (
    Field,
    model_validator,
)

from ...harness.records.outcomes import Outcome
from ...harness.records.record import Record
from .kernels import KernelPoint


class Candidate(Record):
    """What a round wrote, and what came of it."""

    technique: str
    """What was done to the kernel before: a method's name, `first_kernel`, or `correction`."""
    rewrite: str = ""
    """Technique of the library that it was made by; empty where a model wrote it."""
    parameters: dict[str, Any] = Field(default_factory=dict)
    """With which values."""
    source_sha256: str | None
    """Artifact of its text; None where nothing was written."""
    author: str
    """Who wrote it."""
    note: str = ""
    """What its writer said, or why nothing was written."""
    expected_log_gain: float = 0.0
    """Natural logarithm of the speedup that was expected of it."""
    prompt_sha256: str | None = None
    """Artifact of the prompt that a model wrote it from."""
    outcome: Outcome | None = None
    """What came of it; None until it is evaluated, or of nothing, why there is nothing."""
    reason: str = ""
    """Why it failed."""
    evaluation_key: str | None = None
    """Of its evaluation in the run's store."""
    point: KernelPoint | None = None
    """The kernel, where it passed."""

    @model_validator(mode="after")
    def _its_own(self) -> Candidate:
        """Hold times and counters to the text that they were taken of."""
        if self.point is not None:
            own = self.source_sha256, self.evaluation_key
            if (self.point.source_sha256, self.point.evaluation_key) != own:
                raise ValueError("a candidate and its measurement are of one source")
        return self


class Feedback(Record):
    """What the Judge says of one candidate."""

    mode: Literal["correction", "optimisation"]
    """Whether it was wrong or is to be faster."""
    source_sha256: str
    """The candidate that is judged."""
    evaluation_key: str
    """The evaluation that it is judged by."""
    finding: str
    """The one diagnosis, or the one bottleneck."""
    method: str
    """The one method; `correction` where it was wrong."""
    advice: str
    """The one hint, or the plan."""
    expected_log_gain: float = 0.0
    """Natural logarithm of the speedup that is expected of it."""
    author: str
    """Who judged."""
    prompt_sha256: str | None = None
    """Artifact of the prompt that a model judged by."""
