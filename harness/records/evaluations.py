"""The verdict on a source for a task on a device, stage by stage, and its key."""

from __future__ import annotations

import functools
from typing import Literal

from pydantic import Field, model_validator

from .builds import Build, Diagnostic
from .identity import sha256_of_json
from .outcomes import Outcome
from .profiles import Profile
from .record import Record
from .timings import Timing
from .versions import harness_version


class StageResult(Record):
    """What one stage (compile, verify) says: a pass, or the outcome and why."""

    outcome: Outcome
    reason: str = ""
    """One line; empty for a pass."""
    diagnostics: tuple[Diagnostic, ...] = ()
    build: Build | None = None
    facts: dict[str, float | int | str] = Field(default_factory=dict)
    """Numbers of a pass worth keeping: cases run, largest error, tolerance used."""


class DeviceIdentity(Record):
    """What evaluated: two evaluations compare only when this is equal."""

    kind: Literal["simulated", "cuda", "deferred"]
    """Whose numbers its own may be compared with."""
    gpu: str
    """Its name: H100."""
    arch: str
    """Compute capability: sm_90."""
    toolchain: str
    """Compiler and its version."""
    harness: str = Field(default_factory=lambda known: harness_version(known.get("kind", "")))
    """Versions of the judge and of the device that measures: see `harness_version`."""

    def __str__(self) -> str:
        return f"{self.kind} {self.gpu} ({self.arch}, {self.toolchain})"


class Evaluation(Record):
    """The verdict on one source for one task on one device.

    Example:
        found: kernelblaster.Evaluation = kernelblaster.evaluate("kernel.cu", "examples/softmax.py")
        print(found.outcome, found.reason, found.timing)
    """

    key: str
    """Identity of what was evaluated: source, task, device."""
    source_sha256: str
    task_id: str
    device: DeviceIdentity
    outcome: Outcome
    reason: str = ""
    """One line; empty for a pass."""
    diagnostics: tuple[Diagnostic, ...] = ()
    build: Build | None = None
    facts: dict[str, float | int | str] = Field(default_factory=dict)
    timing: Timing | None = None
    profile: Profile | None = None

    @model_validator(mode="after")
    def _only_a_pass_carries_a_time(self) -> Evaluation:
        if self.outcome is Outcome.PASSED:
            if self.timing is None:
                raise ValueError("a passed evaluation carries a timing")
        elif self.timing is not None or self.profile is not None:
            raise ValueError(f"an evaluation that is {self.outcome} carries no time and no profile")
        elif not self.reason:
            raise ValueError("a failed evaluation says why")
        elif not self.outcome.has_candidate:
            raise ValueError(f"{self.outcome} is no verdict on a source")
        return self


@functools.lru_cache(maxsize=1024)
def evaluation_key(source_sha256: str, task_id: str, device: DeviceIdentity) -> str:
    """Return the key under which an evaluation is stored: nothing is evaluated twice."""
    return sha256_of_json([source_sha256, task_id, device.model_dump()])
