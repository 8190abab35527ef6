"""How a case of a task is drawn on the GPU, and what its outputs may differ by."""

from __future__ import annotations

from dataclasses import dataclass

from ...records.tensors import Tolerance
from ...records.variations import Level
from ...reference.drawing.draws import Draw
from ...task.claims import ClaimedInput


@dataclass(frozen=True)
class CasePlan:
    """One case: how to draw it again, and what its outputs may differ by."""

    name: str
    how: Draw
    tolerances: tuple[Tolerance | None, ...]
    """Of each output; None for one that PyTorch itself does not meet: it is not compared."""
    own_errors: tuple[float | None, ...]
    """PyTorch's own largest error of each output against double precision; None where unknown."""
    exact: bool
    """Whether double precision is known and affordable."""
    constant: tuple[str, Level] | None = None
    """A constant of the task that is another in this case, and how it is changed."""
    claim: ClaimedInput | None = None
    """What the inputs of this case are claimed to hold."""
