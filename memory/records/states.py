"""Signatures of profiles, and the performance states that kernels are in."""

from __future__ import annotations

from typing import Literal

from ...harness.records.profiles import Bottleneck
from ...harness.records.record import Record

SIGNATURE_NAME: Literal["signature/v3"] = "signature/v3"
"""Name of the current signature layout; a change of its dimensions is a new name."""
EARLIER_SIGNATURES = ("signature/v1", "signature/v2")
"""Layouts that are read too: the first dimensions of today's."""


class Signature(Record):
    """A profile as a fixed vector; `memory.knowledge.states.dimensions` names its values."""

    name: Literal["signature/v3"] = SIGNATURE_NAME
    values: tuple[float, ...]
    """Each in [0, 1], or below 0 where nobody measured it."""


class PerformanceState(Record):
    """A situation that a kernel can be in, named for what holds it back."""

    id: str
    """Slug, unique in a knowledge base."""
    name: str
    """What it is called, in words."""
    primary: Bottleneck
    """What holds a kernel in it back first."""
    secondary: Bottleneck | None = None
    """What comes next, where something does."""
    centroid: tuple[float, ...]
    """Signature values in the middle of the state."""
    spread: float
    """Largest signature distance (root mean square: `memory.knowledge.states.distances`) of a
    member."""
    description: str
    """How a kernel in it behaves."""
    origin: Literal["seed", "discovered"]
    """Whether it came with the package or was found in a run."""
    count: int = 0
    """Rows of evidence that started in this state, as of the snapshot read."""
