"""Several runs followed one after the other: what is finished is told, whatever ends the rest."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import graph_support
import pytest
import typer

from kernelblaster.cli import following
from kernelblaster.harness.errors import UserError
from kernelblaster.tools.workspace import open_runs

Done = SimpleNamespace


def follow(
    monkeypatch: pytest.MonkeyPatch, showing: following.Showing, *ends: Any
) -> typer.Exit | None:
    """Follow runs that end as `ends` say; return how the command ended."""
    runs = {Path(f"run-{number}"): end for number, end in enumerate(ends)}

    def watch(session: Any, *_: Any) -> dict[str, Any]:
        end = runs[session.directory]
        if isinstance(end, Exception):
            raise end
        return {"outcome": end}

    def opening(path: Path) -> following.Opening:
        def nothing() -> None: ...

        session = SimpleNamespace(directory=path, discard_unserved=nothing, close=nothing)
        return following.Opening(path, lambda: session)

    monkeypatch.setattr(following, "watch", watch)
    try:
        following.follow_all([opening(path) for path in runs], showing)
    except typer.Exit as ended:
        return ended
    return None


def test_a_run_that_fails_keeps_no_other_from_going_on(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    showing = following.Showing(as_json=True)
    ended = follow(monkeypatch, showing, "improved", UserError("no disk"), "not_improved")
    assert ended is not None and ended.exit_code == 2
    told = json.loads(capsys.readouterr().out)["runs"]
    assert [each["outcome"] for each in told] == ["improved", "failed", "not_improved"]


def test_who_stops_one_run_has_the_answers_of_those_before_it(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    ended = follow(monkeypatch, following.Showing(as_json=True), "improved", typer.Exit(130), "x")
    assert ended is not None and ended.exit_code == 130
    assert json.loads(capsys.readouterr().out) == {"runs": [{"outcome": "improved"}]}
    follow(monkeypatch, following.Showing(events="jsonl"), "improved", typer.Exit(130))
    assert json.loads(capsys.readouterr().out) == {"event": "end", "outcome": "improved"}


def test_a_single_run_that_is_stopped_tells_nothing(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert follow(monkeypatch, following.Showing(as_json=True), typer.Exit(130)) is not None
    assert capsys.readouterr().out == ""


def test_many_tasks_are_opened_one_after_the_other(
    command: Callable[..., Done], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A bad task is one line; its directory goes; the others go on, and the end says what was."""
    graph_support.install(monkeypatch.setattr)
    monkeypatch.setattr("kernelblaster.cli.app.begin_loading", lambda *_: None)
    (tmp_path / "tasks").mkdir()
    for number in range(40):
        (tmp_path / "tasks" / f"{number}_task.py").write_text("")
    held: list[int] = []

    def watch(session: Any, *_: Any) -> dict[str, Any]:
        held.append(len(open_runs()._open))
        begun = session.directory.name
        if begun.startswith("7_"):
            raise UserError(f"{session.plan.task}: no Model in it")
        session.begun = True
        return {"outcome": "improved", "initial_us": 2.0, "best_us": 1.0, "gain": 2.0}

    monkeypatch.setattr(following, "watch", watch)
    flags = ("--kb", tmp_path / "kb", "--iterations", 1)
    done = command("optimize", tmp_path / "tasks", *flags)
    assert done.code == 2 and held == [1] * 40
    bad = tmp_path / "tasks" / "7_task.py"
    assert done.err == f"kernelblaster: {bad}: no Model in it\n"
    assert done.out.endswith("40 runs: 39 improved, 1 failed\n")
    assert len(list((tmp_path / "runs").iterdir())) == 39 and open_runs()._open == {}
    wrong = command("optimize", tmp_path / "tasks", *flags, "--model", "gpt")
    assert wrong.code == 2 and len(wrong.err.splitlines()) == 1 and len(held) == 40
