"""Devices of text declare what they do, and the gates ask for what is declared."""

from __future__ import annotations

import graph_support
import pytest
from conformance.device import CapabilitiesConformance

from kernelblaster.harness.devices.gates import Gates, Passage, Result, unconfirmed_because
from kernelblaster.harness.devices.protocol import Capability, Comparison, Measurement
from kernelblaster.harness.judge.timing import Ratio
from kernelblaster.harness.records.evaluations import StageResult
from kernelblaster.harness.records.outcomes import Outcome
from kernelblaster.harness.records.tasks import Task

GOOD = "us: 10.0\n"


class Able(graph_support.TextDevice):
    """Does whatever a device can, and writes down what it was asked for."""

    asked: list[str] = []

    @property
    def capabilities(self) -> frozenset[Capability]:
        return frozenset(Capability)

    async def verify(self, task: Task, source: str, sample: int = 0) -> StageResult:
        self.asked.append("verify")
        return await super().verify(task, source, sample)

    async def confirm(self, task: Task, source: str, sample: int = 0) -> StageResult:
        self.asked.append("confirm")
        return self._stage("verify", source, {"race"})

    async def time_fresh(self, task: Task, source: str) -> Measurement:
        self.asked.append("fresh")
        return await super().profile(task, source)

    async def compare(self, task: Task, first: str, second: str) -> Comparison:
        ratio = Ratio(ratio=1.0, interval=(0.9, 1.1), rounds=20)
        return Comparison(stage=StageResult(outcome=Outcome.PASSED), ratio=ratio)


@pytest.fixture
def task() -> Task:
    return graph_support.text_task()


class TestText(CapabilitiesConformance):
    """A device that can do nothing beyond the three gates."""

    kernel = GOOD
    wrong_at = GOOD + "wrong at: 3.5\n"

    @pytest.fixture
    def device(self) -> graph_support.TextDevice:
        return graph_support.TextDevice("H100")


class TestAbleText(CapabilitiesConformance):
    """A device that can do all there is."""

    kernel = GOOD
    wrong_at = GOOD + "wrong at: 3.5\n"

    @pytest.fixture
    def device(self) -> graph_support.TextDevice:
        return Able("H100")


async def test_a_confirmation_takes_what_the_device_declares(
    task: Task, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[str] = []
    monkeypatch.setattr(Able, "asked", asked)
    passage = await Gates(Able("H100")).confirm(task, GOOD)
    assert passage.timing is not None and asked == ["confirm", "fresh"]
    failed = await Gates(Able("H100")).confirm(task, GOOD + "outcome: race\n")
    assert failed.measured is None and failed.last.outcome is Outcome.RACE
    assert asked == ["confirm", "fresh", "confirm"]


async def test_the_first_gate_that_refuses_is_the_last(task: Task) -> None:
    gates = Gates(graph_support.TextDevice("H100"))
    for name in ("compile_error", "race", "profiler_unavailable"):
        passage = await gates.run(task, f"{GOOD}outcome: {name}\n")
        assert passage.last.outcome.value == name and passage.timing is None
        assert (passage.measured is not None) == (name == "profiler_unavailable")


class Notes:
    """A memory of finished stages."""

    def __init__(self) -> None:
        self.kept: dict[tuple[str, str], str] = {}

    async def recall(self, key: str, stage: str, kind: type[Result]) -> Result | None:
        body = self.kept.get((key, stage))
        return None if body is None else kind.model_validate_json(body)

    async def keep(self, key: str, stage: str, body: str, seconds: float) -> None:
        assert seconds >= 0 and (key, stage) not in self.kept
        self.kept[key, stage] = body


async def test_what_a_memory_holds_does_not_run_again(
    task: Task, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[str] = []
    monkeypatch.setattr(Able, "asked", asked)
    notes = Notes()
    first = await Gates(Able("H100"), notes).run(task, GOOD)
    again = await Gates(Able("H100"), notes).run(task, GOOD)
    assert first == again and asked == ["verify"]
    assert {stage for _, stage in notes.kept} == {"compile", "verify", "profile"}
    # A confirmation is another question, whatever was said before.
    await Gates(Able("H100"), notes).confirm(task, GOOD)
    assert asked == ["verify", "confirm", "fresh"]


async def test_a_time_that_is_not_measured_again_is_not_confirmed(task: Task) -> None:
    gates = Gates(graph_support.TextDevice("H100"))
    first = (await gates.run(task, GOOD)).timing
    assert first is not None
    assert unconfirmed_because(first, await gates.confirm(task, "us: 10.4\n")) == ""
    slower = unconfirmed_because(first, await gates.confirm(task, "us: 10.6\n"))
    assert slower == "measured 10.00 us first and 10.60 us again"
    race = Passage(verified=StageResult(outcome=Outcome.RACE, reason="two threads"))
    assert unconfirmed_because(first, race) == "it did not pass again: race: two threads"
