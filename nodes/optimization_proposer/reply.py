"""What a model replies as optimization proposer."""

from __future__ import annotations

from pydantic import Field

from ..common.replies import NAME, Line, Reply


class Parameter(Reply):
    """A number of a technique that is worth tuning."""

    name: str = Field(pattern=NAME, max_length=32)
    values: tuple[int, ...] = Field(min_length=1, max_length=4)
    """Values worth trying, the default first."""


class NewTechnique(Reply):
    """A technique that has no name in the list yet, as an engineer must know it."""

    description: Line = Field(min_length=1)
    """What is changed in the code; one or two sentences."""
    applies_when: Line = Field(min_length=1)
    avoid_when: Line = Field(min_length=1)
    side_effects: Line = ""
    notes: Line = ""
    """How to implement it here."""
    expected_speedup: float = Field(gt=0.1, le=100)
    """Time before over time after, where it passes; what it would gain on average, not at best."""
    parameters: tuple[Parameter, ...] = Field(default=(), max_length=3)


class ProposedTechnique(Reply):
    """One technique for the kernel at hand."""

    technique: str = Field(pattern=NAME, max_length=48)
    """A name of the lists, or a new one in snake_case."""
    launch: Line = ""
    """The kernel that it changes, by name, where the file launches several; of several changed
    together the one that takes most of the time."""
    reason: Line = Field(min_length=1)
    """Why it pays on this kernel: the figure or the line it acts on; one sentence."""
    new: NewTechnique | None = None
    """Null for a name of the lists."""


class Proposals(Reply):
    """Reply of the optimization proposer."""

    proposals: tuple[ProposedTechnique, ...] = Field(min_length=1, max_length=8)
    """The best first."""
