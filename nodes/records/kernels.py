"""Kernels that passed, in short: how fast, by which steps, from which earlier run."""

from __future__ import annotations

from typing import Any

from pydantic import (
    Field,
    model_validator,
)

from ...harness.records.profiles import Bottleneck
from ...harness.records.record import Record
from ...harness.records.timings import Provenance

KNOWN_KERNEL = "known_kernel"
"""Stands for a technique where a run takes a kernel that an earlier one found."""


class TechniqueStep(Record):
    """One link of the path from the initial kernel to a candidate."""

    technique: str
    """What was applied."""
    parameters: dict[str, Any] = Field(default_factory=dict)
    """With which values."""
    launch: str = ""
    """The kernel of the program that it was aimed at; empty where none was named."""
    gain: float
    """Microseconds of the parent over microseconds of the child: above 1 is faster."""

    @property
    def names(self) -> tuple[str, ...]:
        """Techniques that it stands for: of an earlier run's kernel, those that led to it."""
        if self.technique != KNOWN_KERNEL:
            return (self.technique,)
        return tuple(map(str, self.parameters.get("after", ())))


class KernelPoint(Record):
    """A kernel that passed, in short: its evaluation and the steps to it are in the run's store."""

    source_sha256: str
    """Artifact of its text."""
    evaluation_key: str
    """Of its evaluation in the run's store."""
    microseconds: float = Field(gt=0)
    """Time of one call of `launch`."""
    interval: tuple[float, float]
    """Of the time, in microseconds: as `Timing` has it."""
    provenance: Provenance
    """Measured or simulated."""
    bottleneck: Bottleneck
    """What holds it back."""
    depth: int = Field(default=0, ge=0)
    """Techniques between the initial kernel and it."""
    technique: str = ""
    """The last of them."""
    author: str = ""
    """Who wrote it; empty in a run that an earlier version began."""

    @model_validator(mode="before")
    @classmethod
    def _shortened(cls, values: Any) -> Any:
        """Take a checkpoint of an earlier version, which held the timing and the whole path."""
        if not (isinstance(values, dict) and isinstance(values.get("timing"), dict)):
            return values
        told = {**values}
        timing, path = told.pop("timing"), told.pop("path", ())
        told.pop("bottleneck_ties", None)
        last = {"technique": path[-1]["technique"]} if path else {}
        return {
            **told,
            **{name: timing[name] for name in ("microseconds", "interval", "provenance")},
            "depth": len(path),
            **last,
        }


def faster(left: KernelPoint, right: KernelPoint | None) -> KernelPoint:
    """Return the faster kernel; ties go to fewer techniques, then to the smaller hash.

    Commutative, associative and idempotent: the order in which rollouts report does not matter.
    """
    if right is None:
        return left
    return min(left, right, key=lambda p: (p.microseconds, p.depth, p.source_sha256))


class KnownStart(Record):
    """What the knowledge base had for the run to begin with: kernels that won earlier runs."""

    point: KernelPoint | None = None
    """The one that holds here; None where none does."""
    run: str = ""
    """Id of the run that found it."""
    task: str = ""
    """Name of the task that it was written for."""
    resized: bool = False
    """Whether that one has other sizes."""
    techniques: tuple[str, ...] = ()
    """From the first kernel there to it, in order."""
    gain_then: float | None = None
    """Time of the first kernel there over its own; None where that was not known."""
    passed_over: tuple[str, ...] = ()
    """Known kernels that do not hold here, each with the reason."""

    @property
    def told(self) -> str:
        """Where it comes from, in words."""
        sizes = f" for {self.task} at other sizes" if self.resized else ""
        return f"found by run {self.run}{sizes}" if self.run else ""
