"""How long PyTorch may take is the run's: what it began with, until `resume` says otherwise."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import graph_support
import pytest
from asked import Asked

from kernelblaster.graph.session import Session
from kernelblaster.harness.errors import UserError
from kernelblaster.harness.records.tasks import Task
from kernelblaster.harness.task import cases, full_case, loading
from kernelblaster.memory.run.directory import change_reference_seconds, reference_seconds_of
from kernelblaster.nodes.common.workspaces import workspace_of
from kernelblaster.nodes.records.plan import RunPlan

VARIABLE = "KERNELBLASTER_REFERENCE_SECONDS"
Done = SimpleNamespace


@pytest.fixture
def told(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> list[float]:
    """What whoever reads a task is told; runs are of text."""
    graph_support.install(monkeypatch.setattr)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("kernelblaster.cli.app.begin_loading", lambda *_: None)
    (tmp_path / "text.py").write_text("")
    found: list[float] = []

    async def read_task(path: Path, *rest: Any) -> Task:
        found.append(rest[-1])
        return graph_support.text_task().model_copy(update={"reference_seconds": rest[-1]})

    monkeypatch.setattr("kernelblaster.nodes.run.beginning.load_task.read_task", read_task)
    return found


def begun(folder: Path, **changes: Any) -> RunPlan:
    """A run that was laid out, and has done nothing."""
    session = Asked.of(
        task="text.py", knowledge=str(folder / "kb"), iterations=1, rollouts=1, steps=1, **changes
    ).session(folder / "run")
    session.close()
    return session.plan


def stored(directory: Path) -> float:
    """The limit of the run's task as its nodes read it."""
    session = Session.open(directory)
    try:
        with workspace_of(session.plan) as workspace:
            (name,) = (
                entry.written["summary"]["artifact"]
                for entry in workspace.store.journal.entries() if entry.node == "load_task"
            )  # fmt: skip
            return workspace.task(name).reference_seconds
    finally:
        session.close()


def test_a_run_keeps_what_it_began_with_until_resume_changes_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, told: list[float],
    command: Callable[..., Done],
) -> None:  # fmt: skip
    monkeypatch.setenv(VARIABLE, "120")
    assert begun(tmp_path).reference_seconds == 120.0
    monkeypatch.setenv(VARIABLE, "7")
    assert command("resume", "run", "--quiet").code == 0
    assert told == [120.0] and stored(tmp_path / "run") == 120.0
    assert command("resume", "run", "--quiet", "--reference-seconds", 30).code == 0
    assert stored(tmp_path / "run") == 30.0


def test_what_is_asked_for_stands_before_the_variable_and_is_changed_before_the_task_is_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, told: list[float],
    command: Callable[..., Done],
) -> None:  # fmt: skip
    monkeypatch.setenv(VARIABLE, "120")
    assert begun(tmp_path, reference_seconds=45.0).reference_seconds == 45.0
    assert command("resume", "run", "--quiet", "--reference-seconds", 60).code == 0
    assert told == [60.0]


def test_what_is_no_number_of_seconds_is_one_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, told: list[float]
) -> None:
    for bad in ("-1", "soon", "inf"):
        monkeypatch.setenv(VARIABLE, bad)
        with pytest.raises(UserError, match="above 0"):
            begun(tmp_path)
    change_reference_seconds(tmp_path, 3.0)
    assert reference_seconds_of(tmp_path) == 3.0
    for bad in ('"soon"', "-1", "[3", "true"):
        (tmp_path / "reference_seconds.json").write_text(bad)
        with pytest.raises(UserError, match="damaged"):
            reference_seconds_of(tmp_path)


def test_every_question_to_pytorch_has_the_limit_of_its_task(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    task = graph_support.text_task().model_copy(update={"reference_seconds": 11.0})
    limits: list[float] = []

    def asked(*_: Any, seconds: float, **__: Any) -> dict[str, Any]:
        limits.append(seconds)
        raise UserError("no PyTorch")

    for module in (cases, full_case, loading):
        monkeypatch.setattr(module, "run_reference", asked)
    with pytest.raises(UserError, match="no PyTorch"):
        cases.prepare_cases_now(task)
    assert isinstance(full_case.prepare_full_case_now(task), full_case.NoFullCase)
    path = tmp_path / "task.py"
    path.write_text(f"# {tmp_path}\n")
    with pytest.raises(UserError, match="no PyTorch"):
        loading.load_task_now(path, seconds=12.0)
    assert limits == [11.0, 11.0, 12.0]
    assert task.id == graph_support.text_task().id
