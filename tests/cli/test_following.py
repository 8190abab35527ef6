"""Several runs followed one after the other: what is finished is told, whatever ends the rest."""

from __future__ import annotations

import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import typer

from kernelblaster.cli import following
from kernelblaster.harness.errors import UserError


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

    monkeypatch.setattr(following, "watch", watch)
    try:
        following.follow_all([SimpleNamespace(directory=path) for path in runs], showing)
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
