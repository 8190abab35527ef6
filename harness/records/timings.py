"""How long a call takes, and whose number that is."""

from __future__ import annotations

import math
from enum import StrEnum

from pydantic import model_validator

from .record import Record


class Provenance(StrEnum):
    """Where a number comes from. Numbers of different provenance are never compared or averaged."""

    NCU = "ncu"
    SIMULATED = "simulated"
    EVENTS = "events"


SIMULATED_RESOLUTION = 0.01
"""What the quotient of two simulated times may be off by, relative, where each is exact: a gain
within it is none. Two kernels that a GPU takes the same time for differ so in the time model."""


class Timing(Record):
    """How long one call of `launch` takes, and how that is known."""

    microseconds: float
    """Best single estimate (median of the samples)."""
    samples: tuple[float, ...]
    """Microseconds each; for the simulated device one estimate per disjoint sample of blocks."""
    interval: tuple[float, float]
    """Microseconds: a 95 % interval where it was measured; for the simulated device the range over
    the samples and what these leave open, in which the time model's own error is not contained."""
    method: str
    """For example `time model`, `cuda events`."""
    provenance: Provenance
    """Whose number it is: ncu, events or simulated; two kinds are never compared."""
    elapsed_cycles: float | None = None
    """GPU clock cycles of all launches together (ncu's gpc__cycles_elapsed.max); the time model's
    on the simulated device; None where they were not counted."""

    @model_validator(mode="after")
    def _is_a_measurement(self) -> Timing:
        if not (self.samples and self.microseconds > 0 and min(self.samples) > 0):
            raise ValueError("a timing needs positive samples: a failed measurement is no number")
        if not self.interval[0] <= self.microseconds <= self.interval[1]:
            raise ValueError("the estimate lies outside its own interval")
        return self


def error_of_log_ratio(provenance: Provenance, *intervals: tuple[float, float]) -> float:
    """Return the standard error of the logarithm of the quotient of times with these intervals.

    A measured interval is one of 95 %; a simulated one is the range of two samples, whose half is
    taken as one standard error.
    """
    errors = 2.0 if provenance is Provenance.SIMULATED else 2 * 1.96
    return math.hypot(*(math.log(high / low) / errors for low, high in intervals))
