"""The port every device implements; tests/conformance holds the tests each must pass."""

from __future__ import annotations

from enum import StrEnum
from typing import Protocol

from ..judge.timing import Ratio
from ..records.evaluations import DeviceIdentity, StageResult
from ..records.profiles import Profile
from ..records.record import Record
from ..records.tasks import Task
from ..records.timings import Timing
from ..task.claims import ClaimedInput


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


class Capability(StrEnum):
    """What some devices can do and others cannot."""

    CONFIRM = "confirm"
    """`confirm` has more to say of a winner than `verify`: a sanitizer, a fresh process."""
    FRESH = "fresh"
    """`time_fresh` measures in a new process, where those of `profile` live long."""
    COMPARE = "compare"
    """`compare` times two sources in the same rounds: what drifts in time cancels."""
    COUNTERS = "counters"
    """Profiles hold counters of what the kernel did, or the stage's facts say why not."""
    CLAIMS = "claims"
    """`verify_claim` runs a candidate on an input that somebody claims it to be wrong on."""


class Incapable(NotImplementedError):
    """A device was asked for what it does not declare."""

    def __init__(self, capability: Capability) -> None:
        super().__init__(f"this device does not declare {capability}")


CONFIRM_SECONDS = 30.0
"""How long a confirmation goes on with what is slow, where nothing else is asked for."""


class Device(Protocol):
    """Compiles, verifies and profiles candidates.

    A candidate's fault is data (a StageResult), never an exception; a fault of the machine is a
    `UserError`. Each method may be called alone and repeated: builds are cached by content.
    Implementations inherit: what a device does not declare raises `Incapable`.
    """

    @property
    def identity(self) -> DeviceIdentity:
        """What this device is: part of every evaluation's key."""
        ...

    @property
    def capabilities(self) -> frozenset[Capability]:
        """What this device can do beyond compile, verify and profile."""
        return frozenset()

    async def compile(self, task: Task, source: str) -> StageResult:
        """Compile the source for both variants and check its undefined symbols."""
        ...

    async def verify(self, task: Task, source: str, sample: int = 0) -> StageResult:
        """Run the candidate on every case and compare with PyTorch.

        0 are the task's own cases, which anybody can know; any other `sample` has cases drawn from
        that number, the same each time.
        """
        ...

    async def profile(self, task: Task, source: str, sample: int = 0) -> Measurement:
        """Profile and time the candidate at full dimensions.

        A device that measures a sample of the work, on inputs that can be known, draws others for
        another `sample`.
        """
        ...

    async def confirm(self, task: Task, source: str, sample: int = 0) -> StageResult:
        """Verify on the cases of a `sample`, with every check the device has.

        In a process that has run no candidate.
        """
        raise Incapable(Capability.CONFIRM)

    async def verify_claim(self, task: Task, source: str, claim: ClaimedInput) -> StageResult:
        """Run a candidate that passed verification on a claimed input, and compare with PyTorch.

        Where the task's rules do not allow the input, that is the fact NOT_AN_INPUT of a pass.
        """
        raise Incapable(Capability.CLAIMS)

    def confirming_for(self, seconds: float) -> Device:
        """Return this device with another limit of the checks of `confirm` that take long.

        Itself where it has none that do: of Compute Sanitizer at full dimensions, on a GPU.
        """
        return self

    def without_counters(self) -> Device:
        """Return this device as one that times and does not count.

        Itself where counting takes no runs of its own.
        """
        return self

    async def time_fresh(self, task: Task, source: str) -> Measurement:
        """Time the candidate in a process that has run no candidate before.

        What it counted is known from `profile`: a device that needs runs of its own for that leaves
        them out.
        """
        raise Incapable(Capability.FRESH)

    async def compare(self, task: Task, first: str, second: str) -> Comparison:
        """Time two sources that passed verification side by side."""
        raise Incapable(Capability.COMPARE)

    def close(self) -> None:
        """End the processes that live on between requests; the next request starts them again."""
        return
