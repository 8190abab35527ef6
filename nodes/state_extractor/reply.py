"""What a model replies as state extractor."""

from __future__ import annotations

from pydantic import Field

from ...harness.records import Bottleneck
from ..common.replies import Line, Reply


class StateReading(Reply):
    """Reply of the state extractor."""

    primary: Bottleneck
    """The resource that holds the kernel back first."""
    secondary: Bottleneck | None = None
    """The one that would hold it back next; null where nothing else comes near."""
    description: Line = Field(min_length=1)
    """One sentence: which kernel, what limits it, and the cause in the code (line numbers)."""
    features: tuple[Line, ...] = Field(min_length=1, max_length=8)
    """The figures of the profile that say so, the most telling first; a few words each."""
