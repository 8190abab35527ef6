"""Compile, verify and profile a source once: every finished stage is kept and never repeated."""

from __future__ import annotations

import asyncio

from ...harness.devices.gates import Gates, Passage
from ...harness.devices.protocol import Device, Measurement
from ...harness.records.builds import Diagnostic
from ...harness.records.evaluations import DeviceIdentity, Evaluation, StageResult
from ...harness.records.identity import source_sha256
from ...harness.records.outcomes import Outcome
from ...harness.records.tasks import Task
from ...harness.records.timings import Provenance
from ...memory.database import Stored
from ...memory.run.claim_book import TriedClaim
from ...memory.run.run_store import RunStore
from ...memory.run.shared_stages import STAGES, SharedStages
from .time_alone import time_alone

_OF_COUNTERS = ("profile_collection", "profile_counted")
"""Facts of how counters came about."""


class Evaluator(Gates):
    """The gates of a device with a run's store for a memory, and verdicts as evaluations.

    Results of another host are stored as stages too. Where one is missing, verify, profile,
    confirm and evaluate raise ResultAwaited; asked again once it is there, they return it.
    """

    def __init__(
        self,
        device: Device,
        store: RunStore,
        *,
        with_counters: bool = True,
        shared: SharedStages | None = None,
        charged: bool = False,
    ) -> None:
        """Judge on a device, with a store for a memory.

        Args:
            device: the device.
            store: of the run.
            with_counters: whether evaluations hold what was counted, or times alone; the stages,
                which no agent reads, hold all.
            shared: what other runs of this machine found, and are to find of this one; None where
                the run evaluates all itself. What another host measures is not shared.
            charged: whether what another found is charged as if the device had been asked.
        """
        elsewhere = device.identity.kind == "deferred"
        self._stages = _Stages(store, None if elsewhere else shared, charged)
        super().__init__(device, self._stages)
        self._store = store
        self._with_counters = with_counters

    async def verify(self, task: Task, source: str) -> StageResult:
        """Verify the source on all cases of the task, those that reviewers found included."""
        judged = await super().verify(task, source)
        if judged.outcome is not Outcome.PASSED:
            return judged
        return await self.fails_a_claim(task, source) or judged

    async def profile(self, task: Task, source: str) -> Measurement:
        """Profile and time the source; of one that is to be measured anew the time alone, where
        another run has its counters.
        """

        async def measure() -> Measurement:
            counted = self._stages.withheld.get(self.key(task, source))
            if counted is None:
                return await self.device.profile(task, source)
            timed = await self.device.without_counters().profile(task, source)
            return _with_counters_of(counted, timed)

        return await self._once(task, source, "profile", Measurement, measure)

    async def confirm(self, task: Task, source: str, secret: int | None = None) -> Passage:
        """Verify and measure once more; see `Gates.confirm`."""
        failed = await self.fails_a_claim(task, source)
        return Passage(verified=failed) if failed else await super().confirm(task, source, secret)

    async def fails_a_claim(self, task: Task, source: str) -> StageResult | None:
        """Return how a source that passed verification fails on an input that a reviewer found."""
        for tried in await asyncio.to_thread(self._store.claims.cases):
            found = await self.claimed(task, source, tried.claim)
            if found.outcome is not Outcome.PASSED:
                return _as_objected(found, tried)
        return None

    async def evaluate(
        self, task: Task, source: str, *, measured_anew: bool = False
    ) -> Evaluation:
        """Run the stages in order, stopping at the first that fails, and store the verdict.

        A stored pass is looked at again on the inputs that reviewers found since.

        Args:
            task: of the source.
            source: the candidate.
            measured_anew: whether a measured time is this run's own, even where another run has
                one: of what others are told against. What was counted then holds now, too, and what
                is simulated comes to the same.
        """
        key = self.key(task, source)
        stored = await asyncio.to_thread(self._store.get, key)
        if stored is not None:
            passed = stored.outcome is Outcome.PASSED
            failed = await self.fails_a_claim(task, source) if passed else None
            return _overturned(stored, failed) if failed else stored
        if measured_anew:
            self._stages.measured_anew.add(key)
        return await self.conclude(task, source, await self.run(task, source))

    async def conclude(self, task: Task, source: str, passage: Passage) -> Evaluation:
        """Join the stages into one Evaluation and store it; the first verdict of a key stays."""
        return await asyncio.to_thread(self._concluded, task, source, passage)

    def _concluded(self, task: Task, source: str, passage: Passage) -> Evaluation:
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
            device=self._judged_by(key),
            outcome=last.outcome,
            reason=last.reason,
            diagnostics=last.diagnostics,
            build=last.build,
            facts=passage.facts,
            timing=measured.timing if measured and passed else None,
            profile=profile,
        )
        self._store.put(evaluation)
        return evaluation

    def _judged_by(self, key: str) -> DeviceIdentity:
        """Return the device that the verdict under a key comes from.

        That is the other host's where a result came from there; compiling happens here.
        """
        elsewhere = self._store.jobs.measured_by()
        if elsewhere is None or not self._store.has_stage(key, "verify"):
            return self.device.identity
        return elsewhere


def _as_objected(found: StageResult, tried: TriedClaim) -> StageResult:
    """Return a failure on a claimed input, with the input and what was said of the kernel."""
    told = Diagnostic(
        kind="objection",
        message=f"that input holds {tried.claim}; it was found by a reviewer ({tried.author}), who "
        f"said of a kernel: {tried.objection}",
    )
    reason = f"where {tried.claim}: {found.reason}"
    return found.model_copy(
        update={"reason": reason, "diagnostics": (*found.diagnostics, told)}
    )


def _overturned(stored: Evaluation, failed: StageResult) -> Evaluation:
    update = {
        "outcome": failed.outcome, "reason": failed.reason, "diagnostics": failed.diagnostics,
        "timing": None, "profile": None,
    }  # fmt: skip
    return Evaluation.model_validate(dict(stored) | update)


def _was_measured(found: Measurement) -> bool:
    """Whether another measurement would come to another time: a simulated one would not."""
    return found.timing is not None and found.timing.provenance is not Provenance.SIMULATED


def _with_counters_of(counted: Measurement, timed: Measurement) -> Measurement:
    """Return a measurement with another's counters; as it is where it did not pass."""
    if timed.timing is None or counted.timing is None or counted.profile is None:
        return timed
    cycles = counted.timing.elapsed_cycles
    told = {name: fact for name, fact in counted.stage.facts.items() if name in _OF_COUNTERS}
    stage = timed.stage.model_copy(update={"facts": timed.stage.facts | told})
    timing = timed.timing.model_copy(update={"elapsed_cycles": cycles})
    return Measurement(stage=stage, timing=timing, profile=counted.profile)


class _Stages:
    """What the gates remember with: a run's store, and behind it what other runs found."""

    def __init__(self, store: RunStore, shared: SharedStages | None, charged: bool) -> None:
        self._store, self._shared, self._charged = store, shared, charged
        self.measured_anew: set[str] = set()
        """Keys of which no other run's measurement is taken."""
        self.withheld: dict[str, Measurement] = {}
        """What another run measured of these, where that was asked for."""

    async def recall(self, key: str, stage: str, kind: type[Stored]) -> Stored | None:
        return await asyncio.to_thread(self._recalled, key, stage, kind)

    def _recalled(self, key: str, stage: str, kind: type[Stored]) -> Stored | None:
        found = self._store.get_stage(key, stage, kind)
        if found is not None or self._shared is None or stage not in STAGES:
            return found
        kept = self._shared.recall(key, stage, kind)
        if kept is None:
            return None
        found, seconds = kept
        if isinstance(found, Measurement) and key in self.measured_anew and _was_measured(found):
            self.withheld[key] = found
            return None
        charged = seconds if self._charged and stage != "compile" else 0.0
        body = found.model_dump_json()
        self._store.put_stage(key, stage, body, taken_over=True, charged=charged)
        return found

    async def keep(self, key: str, stage: str, body: str, seconds: float) -> None:
        await asyncio.to_thread(self._kept, key, stage, body, seconds)

    def _kept(self, key: str, stage: str, body: str, seconds: float) -> None:
        if stage != "compile":
            self._store.ledger.add_device_seconds(key, stage, seconds)
        self._store.put_stage(key, stage, body)
        if self._shared is not None and stage in STAGES:
            kind = Measurement if stage == "profile" else StageResult
            self._shared.keep(key, stage, kind.model_validate_json(body), seconds)
