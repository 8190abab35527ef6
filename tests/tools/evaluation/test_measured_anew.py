"""A kernel that others are told against has a time of this run, with the counters of another."""

from __future__ import annotations

import asyncio
import copy
from collections.abc import Callable
from pathlib import Path

import graph_support
import pytest

from kernelblaster.harness.devices.protocol import Measurement
from kernelblaster.harness.records.evaluations import DeviceIdentity, Evaluation, StageResult
from kernelblaster.harness.records.outcomes import Outcome
from kernelblaster.harness.records.tasks import Task
from kernelblaster.harness.records.timings import Provenance
from kernelblaster.memory.run.run_store import RunStore
from kernelblaster.memory.run.shared_stages import SharedStages
from kernelblaster.tools.evaluation.evaluator import Evaluator

TASK = graph_support.text_task()
SOURCE = graph_support.INITIAL
FIRST_CYCLES = 700.0


class Measuring(graph_support.TextDevice):
    """Measures, a microsecond more each time; what it counts takes a run of its own."""

    def __init__(self, *, able: bool = True, fails: bool = False) -> None:
        super().__init__("H100")
        self.asked: list[str] = []
        self._able, self._fails, self._counts = able, fails, True
        self._more = [0.0]

    @property
    def identity(self) -> DeviceIdentity:
        return super().identity.model_copy(update={"kind": "cuda"})

    def without_counters(self) -> Measuring:
        other = copy.copy(self)
        other._counts = not self._able
        return other

    async def profile(self, task: Task, source: str, sample: int = 0) -> Measurement:
        if not self._counts:
            return await self._alone(task, source)
        self.asked.append("profile")
        timed = await self._timed(task, source)
        assert timed.timing is not None
        counted = timed.timing.model_copy(update={"elapsed_cycles": FIRST_CYCLES})
        stage = timed.stage.model_copy(update={"facts": {"profile_collection": "default"}})
        return timed.model_copy(update={"timing": counted, "stage": stage})

    async def _alone(self, task: Task, source: str) -> Measurement:
        self.asked.append("time")
        if self._fails:
            failed = StageResult(outcome=Outcome.WRONG_ANSWER, reason="beside PyTorch")
            return Measurement(stage=failed)
        timed = await self._timed(task, source)
        return timed.model_copy(update={"profile": None})

    async def _timed(self, task: Task, source: str) -> Measurement:
        found = await super().profile(task, source)
        assert found.timing is not None
        self._more[0] += 1.0
        microseconds = found.timing.microseconds + self._more[0]
        timing = found.timing.model_copy(
            update={
                "provenance": Provenance.EVENTS, "microseconds": microseconds,
                "interval": (microseconds, microseconds),
            }
        )  # fmt: skip
        return found.model_copy(update={"timing": timing})


@pytest.fixture
def shared(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> SharedStages:
    monkeypatch.setenv("KERNELBLASTER_CACHE", str(tmp_path / "cache"))
    return SharedStages()


@pytest.fixture
def asked_by(tmp_path: Path, shared: SharedStages) -> Callable[..., Evaluator]:
    def of(run: str, device: Measuring) -> Evaluator:
        return Evaluator(device, RunStore(tmp_path / f"{run}.sqlite"), shared=shared)

    return of


async def evaluated(evaluator: Evaluator) -> Evaluation:
    return await evaluator.evaluate(TASK, SOURCE, measured_anew=True)


async def test_the_time_is_new_and_the_counters_are_not(
    asked_by: Callable[..., Evaluator],
) -> None:
    device = Measuring()
    first = await evaluated(asked_by("first", device))
    again = await evaluated(asked_by("again", device))
    assert device.asked == ["profile", "time"]
    assert first.timing is not None and again.timing is not None
    assert again.timing.microseconds == first.timing.microseconds + 1.0
    assert again.timing.elapsed_cycles == FIRST_CYCLES
    assert again.profile == first.profile and again.profile is not None
    assert again.facts["profile_collection"] == "default"


async def test_who_asks_again_in_one_run_has_the_same(asked_by: Callable[..., Evaluator]) -> None:
    device = Measuring()
    await evaluated(asked_by("first", device))
    evaluator = asked_by("again", device)
    assert await evaluated(evaluator) == await evaluated(evaluator)
    assert device.asked == ["profile", "time"]


async def test_what_is_taken_over_is_charged_once_however_many_ask(
    tmp_path: Path, shared: SharedStages
) -> None:
    kept = StageResult(outcome=Outcome.PASSED)
    device = Measuring()
    with RunStore(tmp_path / "run.sqlite") as store:
        evaluator = Evaluator(device, store, shared=shared, charged=True)
        shared.keep(evaluator.key(TASK, SOURCE), "verify", kept, 10.0)
        await asyncio.gather(*(evaluator.verify(TASK, SOURCE) for _ in range(6)))
        assert store.ledger.device_seconds() == store.seconds_taken_over() == 10.0
        again = Evaluator(device, store, shared=shared, charged=True)
        assert await again.verify(TASK, SOURCE) == kept
        assert store.ledger.device_seconds() == 10.0


async def test_a_device_that_cannot_time_alone_profiles(asked_by: Callable[..., Evaluator]) -> None:
    device = Measuring(able=False)
    await evaluated(asked_by("first", device))
    await evaluated(asked_by("again", device))
    assert device.asked == ["profile", "profile"]


async def test_what_fails_now_has_no_counters(asked_by: Callable[..., Evaluator]) -> None:
    await evaluated(asked_by("first", Measuring()))
    again = await evaluated(asked_by("again", Measuring(fails=True)))
    assert again.outcome is Outcome.WRONG_ANSWER
    assert (again.timing, again.profile) == (None, None)
