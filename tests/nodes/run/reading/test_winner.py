"""What a finished run announced, read again to be exported."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import graph_support
import pytest
from text_runs import request, run

from kernelblaster.harness.errors import UserError
from kernelblaster.harness.records.tasks import Task
from kernelblaster.harness.task.interface import Shape, TaskInterface
from kernelblaster.nodes.run.reading.winner import winner_of

INTERFACE = TaskInterface(
    forward="Model.forward", arguments=(), outputs=Shape(kind="tensor", name="out0"), qualified={}
)


def at(task: Task, size: int) -> Task:
    other = task.full.model_copy(update={"dimensions": {"N": size}})
    return task.model_copy(update={"full": other, "verify": other})


def test_a_winner_comes_with_the_shapes_at_which_it_holds(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    graph_support.install(monkeypatch.setattr)
    asked: list[Any] = []

    async def drawn(task: Task, *_: Any, **__: Any) -> tuple[Task, ...]:
        return (at(task, 1021), at(task, 1031))

    def drawn_again(task: Task, *which: Any) -> tuple[Task, ...]:
        asked.append(which)
        return (at(task, 1021), at(task, 1031))

    monkeypatch.setattr("kernelblaster.nodes.run.ending.unseen_shapes.unseen_tasks", drawn)
    monkeypatch.setattr("kernelblaster.nodes.run.reading.winner.unseen_tasks_now", drawn_again)
    monkeypatch.setattr("kernelblaster.nodes.run.reading.winner.interface_now", lambda _: INTERFACE)
    result = run(tmp_path, iterations=1, seed=5, shapes=2)
    winner = winner_of(tmp_path / "run")
    assert winner.source == (tmp_path / "run" / "best.cu").read_text() == result.source
    assert [each.full.dimensions["N"] for each in winner.others] == [1021, 1031]
    assert asked == [(2, 5, False)]
    assert winner.task.name == "text" and f"{result.best_us:.2f} us" in winner.facts[0]


def test_a_run_that_is_not_finished_has_none(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    graph_support.install(monkeypatch.setattr)
    request(tmp_path).session(tmp_path / "run").close()
    with pytest.raises(UserError, match="is not finished; go on with: kernelblaster resume"):
        winner_of(tmp_path / "run")
