"""The sanitizer among others on a GPU: what they may have caused is looked at again, alone."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import graph_support
import pytest

from kernelblaster.harness.cuda.parent import inspection
from kernelblaster.harness.host.plan import Plan
from kernelblaster.harness.records.builds import Build
from kernelblaster.harness.records.evaluations import StageResult
from kernelblaster.harness.records.outcomes import Outcome

PASSED = StageResult(outcome=Outcome.PASSED, facts={"sanitizer": "memcheck"})
NO_ROOM = StageResult(outcome=Outcome.PASSED, facts={"sanitizer_missing": "out of memory"})
ENDED = StageResult(outcome=Outcome.CRASHED, reason="Program hit cudaErrorMemoryAllocation")
RACE = StageResult(outcome=Outcome.RACE, reason="a race")


@pytest.mark.parametrize(
    "found, company, seconds, asked",
    [
        (PASSED, True, 60.0, 1),
        (NO_ROOM, True, 60.0, 2),
        (ENDED, True, 60.0, 2),
        (RACE, True, 60.0, 1),
        (NO_ROOM, False, 60.0, 1),
        (ENDED, False, 60.0, 1),
        (NO_ROOM, True, 0.0, 1),
    ],
)
def test_what_others_may_have_caused_is_looked_at_again_alone(
    found: StageResult, company: bool, seconds: float, asked: int, tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    held: list[bool] = []
    clock = [0.0]
    monkeypatch.setattr(inspection.time, "monotonic", lambda: clock[0])

    @contextmanager
    def lock(uuid: str, *, shared: bool) -> Iterator[Any]:
        clock[0] += 1e3  # What is waited for others takes nothing from the limit.
        held.append(shared)
        yield SimpleNamespace(had_company=lambda: shared and company)

    limits: list[float] = []

    def sanitized(command: Any, *, seconds: float, **more: Any) -> StageResult:
        limits.append(seconds)
        clock[0] += min(seconds, 20.0)
        return found if len(limits) == 1 else PASSED

    monkeypatch.setattr(inspection, "gpu_lock", lock)
    monkeypatch.setattr(inspection, "sanitize_program", sanitized)
    monkeypatch.setattr(inspection, "replay_library", lambda: tmp_path / "replay.so")
    built = Build(key="0", succeeded=True, arch="sm_90", compiler="", directory="/nowhere")
    inputs = {each.name: "x.bin" for each in graph_support.text_task().full.tensors}
    stage = inspection.Stage(
        gpu_uuid="GPU-inspect", gpu="H200", memory_bytes=1 << 40, inputs=inputs
    )
    result = inspection.sanitize_candidate(
        graph_support.text_task(), built, Plan((), 0, {}, 0.0), stage, seconds=seconds, where="here"
    )
    assert held == [True, False][:asked] and limits == [seconds, seconds - 20.0][:asked]
    assert result == (PASSED if asked == 2 else found)
