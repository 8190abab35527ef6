"""Techniques on the table, and the one chosen."""

from __future__ import annotations

from typing import Any

from pydantic import (
    model_validator,
)

from ...harness.records.record import Record
from ...memory.records.optimizations import Optimization
from ...memory.records.policy import ExpectedGain


class Proposal(Record):
    """One technique on the table for the code at hand."""

    technique: str
    """Its name."""
    source: str
    """Who put it there: the state, a neighbour, the seed, the proposer, a model (`kept` from an
    earlier step, where it was not chosen), or a sweep."""
    settings: tuple[dict[str, Any], ...] = ({},)
    """Parameter settings worth trying, the most promising first."""
    launch: str = ""
    """Kernel of the program that it is for; empty in a run that an earlier version began."""
    basis: str = ""
    """Artifact of a kernel that has the technique and names its parameters: its numbers are changed
    to the settings, without a model; empty where the technique is yet to be written."""
    expected: ExpectedGain
    """What the policy expects of the first of them."""
    optimization: Optimization | None = None
    """What a model that proposed it newly says of it; None where the knowledge base describes
    it."""
    reason: str = ""
    """Why it may pay here."""
    author: str = "builtin"
    """Who proposed it."""
    made_for: str = ""
    """Artifact of the kernel that a model proposed it for; empty where none did."""


class TechniqueChoice(Record):
    """Reply of the optimization selector."""

    technique: str
    """Its name."""
    optimization: Optimization | None = None
    """What a model that proposed it says of it; None where the knowledge base describes it."""
    settings: tuple[dict[str, Any], ...] = ({},)
    """Parameter settings to try, in order."""
    launch: str = ""
    """Kernel of the program that it is for; empty in a run that an earlier version began."""
    basis: str = ""
    """Artifact of a kernel whose named numbers are changed to the settings; empty where the
    technique is yet to be written."""
    expected_log_gain: float
    """Natural logarithm of the speedup, where it passes."""
    success_probability: float
    """That a candidate compiles and verifies."""
    sampled_score: float
    """What Thompson sampling drew for it: why it won this time."""
    reason: str
    """Why this one."""
    author: str
    """Who chose."""

    @classmethod
    def of(
        cls, proposal: Proposal, *, sampled_score: float, reason: str, author: str
    ) -> TechniqueChoice:
        """Return the choice of a proposal."""
        return cls(
            technique=proposal.technique,
            optimization=proposal.optimization,
            settings=proposal.settings,
            launch=proposal.launch,
            basis=proposal.basis,
            expected_log_gain=proposal.expected.mean_log,
            success_probability=proposal.expected.success_probability,
            sampled_score=sampled_score,
            reason=reason,
            author=author,
        )

    @model_validator(mode="before")
    @classmethod
    def _of_an_earlier_version(cls, values: Any) -> Any:
        """Take a checkpoint that says what the technique prepared."""
        if not isinstance(values, dict):
            return values
        return {name: values[name] for name in values if name != "prepared_log"}
