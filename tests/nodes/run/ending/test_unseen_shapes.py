"""The winner at shapes that the search never saw: where it holds, where not, and why."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import graph_support
import pytest
from text_runs import resume, run

from kernelblaster.harness.devices.deferred import ResultAwaited
from kernelblaster.harness.devices.gates import Gates
from kernelblaster.harness.devices.job_records import Job, JobTask
from kernelblaster.harness.records.evaluations import StageResult
from kernelblaster.harness.records.outcomes import Outcome
from kernelblaster.harness.records.tasks import Task
from kernelblaster.tools.evaluation.evaluator import Evaluator


class PartlyRight(graph_support.TextDevice):
    """Finds a kernel wrong where a size is odd and above the task's."""

    async def verify(self, task: Task, source: str, sample: int = 0) -> StageResult:
        if task.full.dimensions["N"] > 1024:
            return StageResult(outcome=Outcome.WRONG_ANSWER, reason="out0[1030]: expected 1, got 0")
        return await super().verify(task, source, sample)


@pytest.fixture
def partly_right(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    graph_support.install(monkeypatch.setattr)
    monkeypatch.setattr(
        "kernelblaster.tools.workspace.open_device", lambda kind, gpu: PartlyRight(gpu)
    )
    asked: list[int] = []

    async def drawn(task: Task, count: int, seed: int, **_: Any) -> tuple[Task, ...]:
        asked.append(count)
        return tuple(
            task.model_copy(
                update={"full": task.full.model_copy(update={"dimensions": {"N": size}})}
            )
            for size in (1021, 1031)[:count]
        )

    monkeypatch.setattr("kernelblaster.nodes.run.ending.unseen_shapes.unseen_tasks", drawn)
    return asked


def test_a_result_says_where_the_winner_holds_and_where_not(
    tmp_path: Path, partly_right: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    events: list[Any] = []
    result = run(tmp_path, events=events, iterations=1)
    below, above = result.shapes
    assert below.holds and below.dimensions == {"N": 1021} and below.microseconds
    assert not above.holds and above.microseconds is None and "expected 1, got 0" in above.reason
    assert [event["event"] for event in events].count("shape") == 2
    # They are no candidates of the search.
    assert result.evaluations == sum(result.outcomes.values())
    told = (tmp_path / "run" / "report.txt").read_text()
    assert "holds at 1 of 2" in told and "N=1031: wrong answer: out0[1030]" in told
    stored = json.loads((tmp_path / "run" / "result.json").read_text())
    assert [each["outcome"] for each in stored["shapes"]] == ["passed", "wrong_answer"]
    monkeypatch.setattr(
        "kernelblaster.nodes.run.ending.unseen_shapes.unseen_tasks", None
    )  # A finished run is not looked at again.
    assert resume(tmp_path / "run").shapes == result.shapes


def test_what_another_host_would_run_is_compiled_and_told_so(
    tmp_path: Path, partly_right: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    async def elsewhere(self: Any, task: Task, source: str) -> Any:
        if task.full.dimensions["N"] == 1031:
            raise ResultAwaited(Job.model_construct(task=JobTask.of(task)))
        return await Gates.run(self, task, source)

    monkeypatch.setattr(Evaluator, "run", elsewhere)
    below, above = run(tmp_path, iterations=1).shapes
    assert below.holds and not above.holds and not above.ran and above.microseconds is None
    told = (tmp_path / "run" / "report.txt").read_text()
    assert "holds at 1 of 1" in told and "N=1031: compiles" in told


def test_none_are_looked_at_where_none_are_asked_for(
    tmp_path: Path, partly_right: list[int]
) -> None:
    assert run(tmp_path, iterations=1, shapes=0).shapes == () and not partly_right


def test_a_reference_that_cannot_be_drawn_leaves_the_winner_standing(
    tmp_path: Path, partly_right: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    from kernelblaster.harness.errors import UserError

    async def failing(*_: Any, **__: Any) -> tuple[Task, ...]:
        raise UserError("text.py: the reference ran past 600 s")

    monkeypatch.setattr("kernelblaster.nodes.run.ending.unseen_shapes.unseen_tasks", failing)
    events: list[Any] = []
    result = run(tmp_path, events=events, iterations=1)
    assert result.outcome == "improved" and result.shapes == ()
    assert any("ran past 600 s" in event.get("text", "") for event in events)
