"""What runs of a machine share: results that the next run would get too, and no others."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from kernelblaster.harness.devices.protocol import Measurement
from kernelblaster.harness.records.evaluations import StageResult
from kernelblaster.harness.records.outcomes import Outcome
from kernelblaster.harness.records.timings import Provenance, Timing
from kernelblaster.memory.run.shared_stages import SharedStages


@pytest.fixture
def shared(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> SharedStages:
    monkeypatch.setenv("KERNELBLASTER_CACHE", str(tmp_path / "cache"))
    return SharedStages()


def measured(**facts: Any) -> Measurement:
    timing = Timing(
        microseconds=2.0, samples=(2.0,), interval=(2.0, 2.0), method="text",
        provenance=Provenance.SIMULATED,
    )  # fmt: skip
    return Measurement(stage=StageResult(outcome=Outcome.PASSED, facts=facts), timing=timing)


def failed(outcome: Outcome) -> StageResult:
    return StageResult(outcome=outcome, reason="it says so")


def test_what_one_run_found_the_next_has(shared: SharedStages) -> None:
    assert shared.recall("key", "profile", Measurement) is None
    shared.keep("key", "profile", measured(), 2.5)
    shared.keep("key", "verify", failed(Outcome.RACE), 0.5)
    assert SharedStages().recall("key", "profile", Measurement) == (measured(), 2.5)
    assert SharedStages().recall("key", "verify", StageResult) == (failed(Outcome.RACE), 0.5)
    assert SharedStages().recall("another key", "verify", StageResult) is None


@pytest.mark.parametrize(
    ("stage", "result"),
    [
        *(("verify", failed(each)) for each in (Outcome.CRASHED, Outcome.TIMED_OUT)),
        ("profile", Measurement(stage=failed(Outcome.PROFILER_UNAVAILABLE))),
        ("profile", measured(profiler_unavailable="no permission")),
        ("verify", StageResult(outcome=Outcome.PASSED, facts={"sanitizer_missing": "no time"})),
        ("confirm_profile", measured()),
    ],
)
def test_what_the_machine_may_have_had_a_part_in_is_nobody_elses(
    shared: SharedStages, stage: str, result: Any
) -> None:
    shared.keep("key", stage, result, 1.0)
    assert shared.recall("key", stage, type(result)) is None


def test_an_entry_that_cannot_be_read_is_made_again(shared: SharedStages, tmp_path: Path) -> None:
    shared.keep("key", "verify", StageResult(outcome=Outcome.PASSED), 1.0)
    (stored,) = (tmp_path / "cache" / "stages").rglob("*.json")
    passed = StageResult(outcome=Outcome.PASSED).model_dump_json()
    seconds = (f'{{"seconds": {each}, "found": {passed}}}' for each in ("-5", "NaN", "Infinity"))
    for text in ("{", '{"outcome": "splendid"}', "\xff", *seconds):
        stored.write_text(text, encoding="latin-1")
        assert shared.recall("key", "verify", StageResult) is None
        shared.keep("key", "verify", StageResult(outcome=Outcome.PASSED), 1.0)
        assert shared.recall("key", "verify", StageResult) is not None


def test_another_pytorch_finds_nothing(
    shared: SharedStages, monkeypatch: pytest.MonkeyPatch
) -> None:
    shared.keep("key", "verify", StageResult(outcome=Outcome.PASSED), 1.0)
    monkeypatch.setattr("kernelblaster.memory.run.shared_stages.torch_version", lambda: "9.9")
    assert shared.recall("key", "verify", StageResult) is None
