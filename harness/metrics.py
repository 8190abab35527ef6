"""What is computed over many finished runs: shares, means, quartiles, intervals between policies."""

from __future__ import annotations

from typing import Literal

from pydantic import Field, model_validator

from .records import Integer, Provenance, Record

Against = Literal["initial", "eager", "compile", "pytorch"]
"""What a kernel's time is set beside: `pytorch` is the faster of eager and torch.compile."""


class TaskOutcome(Record):
    """What one policy came to on one task under one seed; what failed is one too.

    The times are of one provenance and, where a device can do that, of the same rounds.
    """

    task: str
    """Which task: the same word under every policy."""
    policy: str
    seed: Integer = 0
    outcome: str
    """improved, not_improved, unconfirmed, or why there is no result: failed, no_first_kernel, ...
    Only the first two are valid."""
    provenance: Provenance | None = None
    """Whose numbers the times are; None where there is no time."""
    initial_us: float | None = Field(default=None, gt=0)
    """Microseconds of the initial kernel."""
    best_us: float | None = Field(default=None, gt=0)
    """Microseconds of the winner, measured again; None where nothing valid was announced."""
    eager_us: float | None = Field(default=None, gt=0)
    """PyTorch eager; None where it was not measured, as on the simulated device."""
    compile_us: float | None = Field(default=None, gt=0)
    """torch.compile; None where it was not measured."""
    bound_us: float | None = Field(default=None, ge=0)
    """Speed of light (`SpeedOfLight.microseconds`)."""
    gain: float | None = Field(default=None, gt=0)
    """The initial kernel's time over the winner's as the run announced it, of paired rounds; where
    it is None, initial_us / best_us."""
    evaluations: int = 0
    """Distinct sources evaluated, the initial kernel included."""
    outcomes: dict[str, int] = Field(default_factory=dict)
    """These evaluations by outcome."""
    tokens: int = 0
    """Of models, input and output."""
    money: float | None = None
    """Dollars; None where no call has a price."""
    seconds: float = 0.0
    """Working time of the run, all sittings."""
    device_seconds: float = 0.0
    """Of these, seconds that the device worked: GPU-seconds on a GPU."""

    @property
    def valid(self) -> bool:
        """Whether the run announced a kernel that held."""
        return self.outcome in VALID

    @model_validator(mode="after")
    def _only_what_holds_has_a_time(self) -> TaskOutcome:
        if self.valid != (self.best_us is not None):
            raise ValueError(f"{self.outcome} with best_us {self.best_us}: only a kernel that held"
                             " has a time, and each that held has one")  # fmt: skip
        if self.valid and (self.initial_us is None or self.provenance is None):
            raise ValueError("a kernel that held has the initial one's time and a provenance")
        return self


VALID = frozenset({"improved", "not_improved"})
"""Outcomes of runs whose announced kernel held when it was measured again."""
