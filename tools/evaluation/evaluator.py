"""Compile, verify and profile a source once: every finished stage is kept and never repeated."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from typing import TypeVar

from ...harness.devices.again import Comparing, profile_again, verify_again
from ...harness.devices.deferred import ResultAwaited
from ...harness.devices.protocol import Comparison, Device, Measurement
from ...harness.records import (
    DeviceIdentity,
    Evaluation,
    Outcome,
    Record,
    StageResult,
    Task,
    evaluation_key,
    source_sha256,
)
from ...memory.run.run_store import RunStore

Result = TypeVar("Result", bound=Record)


class Evaluator:
    """A device with a memory: stage results are stored under the evaluation's key.

    The order of effects is: run the stage, store its result, return. A process killed before the
    second repeats the stage; killed after it, the stored result is read. So no finished stage
    runs twice.

    Results of another host are stored as stages too. Where one is missing, verify, profile,
    confirm and evaluate raise ResultAwaited; asked again once it is there, they return it.
    """

    def __init__(self, device: Device, store: RunStore) -> None:
        self._device = device
        self._store = store

    def key(self, task: Task, source: str) -> str:
        """Return the key of this source's evaluation."""
        return evaluation_key(source_sha256(source), task.id, self._device.identity)

    async def compile(self, task: Task, source: str) -> StageResult:
        """Compile the source, or return what compiling it said before."""
        return await self._once(
            task, source, "compile", StageResult, lambda: self._device.compile(task, source)
        )

    async def verify(self, task: Task, source: str) -> StageResult:
        """Verify the source against PyTorch, or return the earlier verdict."""
        return await self._once(
            task, source, "verify", StageResult, lambda: self._device.verify(task, source)
        )

    async def profile(self, task: Task, source: str) -> Measurement:
        """Profile and time the source, or return the earlier measurement."""
        return await self._once(
            task, source, "profile", Measurement, lambda: self._device.profile(task, source)
        )

    async def confirm(self, task: Task, source: str) -> tuple[StageResult, Measurement]:
        """Verify and measure once more in fresh processes, whatever was stored before.

        What does not pass again is not measured: the measurement then holds the verdict alone.
        """
        device = self._device
        try:
            verdict = await self._once(
                task, source, "confirm_verify", StageResult,
                lambda: verify_again(device, task, source),
            )  # fmt: skip
            if verdict.outcome is not Outcome.PASSED:
                return verdict, Measurement(stage=verdict)
            measured = await self._once(
                task, source, "confirm_profile", Measurement,
                lambda: profile_again(device, task, source),
            )  # fmt: skip
        except ResultAwaited as awaited:
            raise ResultAwaited(awaited.job.model_copy(update={"kind": "confirm"})) from None
        return verdict, measured

    async def compare(self, task: Task, first: str, second: str) -> Comparison | None:
        """Time two sources in the same rounds; None on a device that cannot."""
        device = self._device
        if not isinstance(device, Comparing):
            return None
        stage = f"compare {source_sha256(first)}"
        return await self._once(
            task, second, stage, Comparison, lambda: device.compare(task, first, second)
        )

    async def evaluate(self, task: Task, source: str) -> Evaluation:
        """Run the stages in order, stopping at the first that fails, and store the verdict."""
        stored = await asyncio.to_thread(self._store.get, self.key(task, source))
        if stored is not None:
            return stored
        compiled = await self.compile(task, source)
        if compiled.outcome is not Outcome.PASSED:
            return await self.conclude(task, source, compiled)
        verified = await self.verify(task, source)
        if verified.outcome is not Outcome.PASSED:
            return await self.conclude(task, source, verified)
        measured = await self.profile(task, source)
        return await self.conclude(task, source, measured.stage, verified, measured)

    async def conclude(
        self,
        task: Task,
        source: str,
        last: StageResult,
        verified: StageResult | None = None,
        measured: Measurement | None = None,
    ) -> Evaluation:
        """Join the stages into one Evaluation and store it; the first verdict of a key stays."""
        passed = last.outcome is Outcome.PASSED
        key = self.key(task, source)
        evaluation = Evaluation(
            key=key,
            source_sha256=source_sha256(source),
            task_id=task.id,
            device=await asyncio.to_thread(self._judged_by, key),
            outcome=last.outcome,
            reason=last.reason,
            diagnostics=last.diagnostics,
            build=last.build,
            facts={**(verified.facts if verified else {}), **last.facts},
            timing=measured.timing if measured and passed else None,
            profile=measured.profile if measured and passed else None,
        )
        await asyncio.to_thread(self._store.put, evaluation)
        return evaluation

    def _judged_by(self, key: str) -> DeviceIdentity:
        """Return the device that the verdict under a key comes from.

        That is the other host's where a result came from there; compiling happens here.
        """
        elsewhere = self._store.jobs.measured_by()
        if elsewhere is None or self._store.get_stage(key, "verify") is None:
            return self._device.identity
        return elsewhere

    async def _once(
        self,
        task: Task,
        source: str,
        stage: str,
        kind: type[Result],
        run: Callable[[], Awaitable[Result]],
    ) -> Result:
        key = self.key(task, source)
        stored = await asyncio.to_thread(self._store.get_stage, key, stage)
        if stored is not None:
            return kind.model_validate_json(stored)
        began = time.monotonic()
        result = await run()
        if stage != "compile":
            seconds = time.monotonic() - began
            await asyncio.to_thread(self._store.ledger.add_device_seconds, key, stage, seconds)
        await asyncio.to_thread(self._store.put_stage, key, stage, result.model_dump_json())
        return result
