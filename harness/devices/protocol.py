"""The port every device implements; tests/conformance holds the tests each must pass."""

from __future__ import annotations

from typing import Protocol

from ..judge.timing import Ratio
from ..records import DeviceIdentity, Profile, Record, StageResult, Task, Timing


class Measurement(Record):
    """What the profile stage says of a candidate that passed verification."""

    stage: StageResult
    timing: Timing | None = None
    profile: Profile | None = None


class Comparison(Record):
    """How two sources compare, timed in the same rounds."""

    stage: StageResult
    ratio: Ratio | None = None
    """First over second; None where the stage did not pass."""
    first: Timing | None = None
    second: Timing | None = None


class Device(Protocol):
    """Compiles, verifies and profiles candidates.

    A candidate's fault is data (a StageResult), never an exception; a fault of the machine is a
    `UserError`. Each method may be called alone and repeated: builds are cached by content.
    """

    @property
    def identity(self) -> DeviceIdentity:
        """What this device is: part of every evaluation's key."""
        ...

    async def compile(self, task: Task, source: str) -> StageResult:
        """Compile the source for both variants and check its undefined symbols."""
        ...

    async def verify(self, task: Task, source: str) -> StageResult:
        """Run the candidate on every case and compare with PyTorch."""
        ...

    async def profile(self, task: Task, source: str, sample: int = 0) -> Measurement:
        """Profile and time the candidate at full dimensions.

        A device that measures a sample of the work draws another one for another `sample`.
        """
        ...
