"""Compile, verify and profile a source once: every finished stage is kept and never repeated."""

from __future__ import annotations

import asyncio

from ...harness.devices.gates import Gates, Passage
from ...harness.devices.protocol import Device
from ...harness.records import DeviceIdentity, Evaluation, Outcome, Task, source_sha256
from ...memory.database import Stored
from ...memory.run.run_store import RunStore
from .time_alone import time_alone


class Evaluator(Gates):
    """The gates of a device with a run's store for a memory, and verdicts as evaluations.

    Results of another host are stored as stages too. Where one is missing, verify, profile,
    confirm and evaluate raise ResultAwaited; asked again once it is there, they return it.
    """

    def __init__(self, device: Device, store: RunStore, *, with_counters: bool = True) -> None:
        """Judge on a device, with a store for a memory.

        Args:
            device: the device.
            store: of the run.
            with_counters: whether evaluations hold what was counted, or times alone; the stages,
                which no agent reads, hold all.
        """
        super().__init__(device, _Stages(store))
        self._store = store
        self._with_counters = with_counters

    async def evaluate(self, task: Task, source: str) -> Evaluation:
        """Run the stages in order, stopping at the first that fails, and store the verdict."""
        stored = await asyncio.to_thread(self._store.get, self.key(task, source))
        if stored is not None:
            return stored
        return await self.conclude(task, source, await self.run(task, source))

    async def conclude(self, task: Task, source: str, passage: Passage) -> Evaluation:
        """Join the stages into one Evaluation and store it; the first verdict of a key stays."""
        last, measured = passage.last, passage.measured
        passed = last.outcome is Outcome.PASSED
        key = self.key(task, source)
        profile = measured.profile if measured and passed else None
        if profile is not None and not self._with_counters:
            profile = time_alone(task, profile)
        evaluation = Evaluation(
            key=key,
            source_sha256=source_sha256(source),
            task_id=task.id,
            device=await asyncio.to_thread(self._judged_by, key),
            outcome=last.outcome,
            reason=last.reason,
            diagnostics=last.diagnostics,
            build=last.build,
            facts=passage.facts,
            timing=measured.timing if measured and passed else None,
            profile=profile,
        )
        await asyncio.to_thread(self._store.put, evaluation)
        return evaluation

    def _judged_by(self, key: str) -> DeviceIdentity:
        """Return the device that the verdict under a key comes from.

        That is the other host's where a result came from there; compiling happens here.
        """
        elsewhere = self._store.jobs.measured_by()
        if elsewhere is None or not self._store.has_stage(key, "verify"):
            return self.device.identity
        return elsewhere


class _Stages:
    """What of a run's store the gates remember with."""

    def __init__(self, store: RunStore) -> None:
        self._store = store

    async def recall(self, key: str, stage: str, kind: type[Stored]) -> Stored | None:
        return await asyncio.to_thread(self._store.get_stage, key, stage, kind)

    async def keep(self, key: str, stage: str, body: str, seconds: float) -> None:
        if stage != "compile":
            await asyncio.to_thread(self._store.ledger.add_device_seconds, key, stage, seconds)
        await asyncio.to_thread(self._store.put_stage, key, stage, body)
