"""The gates of a candidate, in order: compile, verify, profile; and those of a winner: confirm.

The one place that says what follows what. A run's nodes ask for single gates, a host that runs jobs
and `evaluate` for all of them; what is finished is asked of a memory first, where there is one.
"""

from __future__ import annotations

import secrets
import time
from collections.abc import Awaitable, Callable
from typing import Protocol, TypeVar

from ..records.evaluations import StageResult, evaluation_key
from ..records.identity import source_sha256
from ..records.outcomes import Outcome, outcome_in_words
from ..records.record import Record
from ..records.tasks import Task
from ..records.timings import Provenance, Timing
from ..task.claims import ClaimedInput
from .protocol import Capability, Comparison, Device, Measurement

AGREEMENT = 1.05
"""Largest accepted factor between the first measurement and the confirming one, from interval to
interval where a simulated time is that of a sample."""

SECRET = "secret_seed"
"""The fact of a confirmation that holds the number that its cases were drawn from."""
LARGEST_SECRET = 1 << 48

Result = TypeVar("Result", bound=Record)


class Passage(Record):
    """How far a candidate came through the gates."""

    verified: StageResult
    """The verdict on its answers, or on its build where that failed."""
    measured: Measurement | None = None
    """None where verification did not pass."""

    @property
    def last(self) -> StageResult:
        """What the last gate said: a pass where all were passed."""
        return self.measured.stage if self.measured else self.verified

    @property
    def facts(self) -> dict[str, float | int | str]:
        """What the gates noted, the later over the earlier."""
        return {**self.verified.facts, **self.last.facts}

    @property
    def timing(self) -> Timing | None:
        """Its time, where all gates were passed."""
        return self.measured.timing if self.measured else None


class Memory(Protocol):
    """Keeps what finished stages said, by the evaluation's key and the stage's name."""

    async def recall(self, key: str, stage: str, kind: type[Result]) -> Result | None:
        """Return what a finished stage said, or None."""
        ...

    async def keep(self, key: str, stage: str, body: str, seconds: float) -> None:
        """Store the JSON of a stage, and how long the device worked on it."""
        ...


class Gates:
    """The gates of one device.

    With a memory the order of effects is: run the stage, store its result, return. A process killed
    before the second repeats the stage; killed after it, the stored result is read. So no finished
    stage runs twice.
    """

    def __init__(self, device: Device, memory: Memory | None = None) -> None:
        self.device = device
        self._memory = memory

    def key(self, task: Task, source: str) -> str:
        """Return the key of this source's evaluation."""
        return evaluation_key(source_sha256(source), task.id, self.device.identity)

    async def compile(self, task: Task, source: str) -> StageResult:
        """Compile the source."""
        return await self._once(
            task, source, "compile", StageResult, lambda: self.device.compile(task, source)
        )

    async def verify(self, task: Task, source: str) -> StageResult:
        """Verify the source against PyTorch."""
        return await self._once(
            task, source, "verify", StageResult, lambda: self.device.verify(task, source)
        )

    async def profile(self, task: Task, source: str) -> Measurement:
        """Profile and time the source."""
        return await self._once(
            task, source, "profile", Measurement, lambda: self.device.profile(task, source)
        )

    async def run(self, task: Task, source: str) -> Passage:
        """Put a source through compile, verify and profile, as far as it comes."""
        compiled = await self.compile(task, source)
        if compiled.outcome is not Outcome.PASSED:
            return Passage(verified=compiled)
        verified = await self.verify(task, source)
        if verified.outcome is not Outcome.PASSED:
            return Passage(verified=verified)
        return Passage(verified=verified, measured=await self.profile(task, source))

    async def claimed(self, task: Task, source: str, claim: ClaimedInput) -> StageResult:
        """Run a source that passed verification on a claimed input."""
        return await self._once(
            task, source, f"claim {claim.id}", StageResult,
            lambda: self.device.verify_claim(task, source, claim),
        )  # fmt: skip

    async def confirm(self, task: Task, source: str, secret: int | None = None) -> Passage:
        """Verify and measure once more, whatever was said before, with all that the device can.

        In fresh processes where the device's live long, on cases that nobody knew and, where it
        measures a sample of the work, on another one: both are drawn from a secret number. That is
        a fact of the result, so that who doubts it can give the number and see the same. What does
        not pass again is not measured.
        """
        able = self.device.capabilities
        drawn = 1 + secrets.randbelow(LARGEST_SECRET) if secret is None else secret

        async def verify() -> StageResult:
            ask = self.device.confirm if Capability.CONFIRM in able else self.device.verify
            found = await ask(task, source, drawn)
            return found.model_copy(update={"facts": found.facts | {SECRET: drawn}})

        stage = "confirm" if secret is None else f"confirm {secret}"
        verified = await self._once(task, source, f"{stage}_verify", StageResult, verify)
        if verified.outcome is not Outcome.PASSED:
            return Passage(verified=verified)
        drawn = int(verified.facts.get(SECRET, drawn))
        measured = await self._once(
            task, source, f"{stage}_profile", Measurement,
            lambda: self.device.time_fresh(task, source)
            if Capability.FRESH in able
            else self.device.profile(task, source, sample=drawn),
        )  # fmt: skip
        return Passage(verified=verified, measured=measured)

    async def compare(self, task: Task, first: str, second: str) -> Comparison | None:
        """Time two sources in the same rounds; None on a device that cannot."""
        if Capability.COMPARE not in self.device.capabilities:
            return None
        return await self._once(
            task, second, f"compare {source_sha256(first)}", Comparison,
            lambda: self.device.compare(task, first, second),
        )  # fmt: skip

    async def _once(
        self,
        task: Task,
        source: str,
        stage: str,
        kind: type[Result],
        run: Callable[[], Awaitable[Result]],
    ) -> Result:
        if self._memory is None:
            return await run()
        key = self.key(task, source)
        stored = await self._memory.recall(key, stage, kind)
        if stored is not None:
            return stored
        began = time.monotonic()
        result = await run()
        seconds = time.monotonic() - began
        await self._memory.keep(key, stage, result.model_dump_json(), seconds)
        return result


def unconfirmed_because(first: Timing, again: Passage) -> str:
    """Return why a second passage does not confirm a time, empty where it does."""
    if again.last.outcome is not Outcome.PASSED:
        return f"it did not pass again: {outcome_in_words(again.last.outcome, again.last.reason)}"
    if again.timing is None:
        return "there is no second measurement"
    one, other = _range(first), _range(again.timing)
    if other[0] <= AGREEMENT * one[1] and one[0] <= AGREEMENT * other[1]:
        return ""
    return both_times(first, again.timing)


def _range(timing: Timing) -> tuple[float, float]:
    """Return where a time lies, as far as the sample of the work says."""
    if timing.provenance is Provenance.SIMULATED:
        return timing.interval
    return timing.microseconds, timing.microseconds


def both_times(first: Timing, again: Timing) -> str:
    """Return two measurements of one kernel in words."""
    return f"measured {first.microseconds:.2f} us first and {again.microseconds:.2f} us again"
