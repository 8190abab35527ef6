"""Opened runs: opened once, shared, closed when nobody needs them, never two of one directory."""

from __future__ import annotations

from pathlib import Path

import graph_support
import pytest

from kernelblaster.harness.errors import UserError
from kernelblaster.memory.run.directory import RunDirectory, is_held
from kernelblaster.tools.workspace import KEPT_OPEN, OpenRuns, open_knowledge


@pytest.fixture
def runs(monkeypatch: pytest.MonkeyPatch) -> OpenRuns:
    graph_support.install(monkeypatch.setattr)
    return OpenRuns()


def made(folder: Path, name: str = "run") -> Path:
    held = RunDirectory.create(folder / name, {}, {})
    held.close()
    return held.path


def how(folder: Path) -> tuple[str, str, str]:
    with open_knowledge(str(folder / "kb")):
        pass
    return "simulated", "H100", str(folder / "kb")


def test_all_who_use_a_run_share_what_is_open(tmp_path: Path, runs: OpenRuns) -> None:
    path = made(tmp_path)
    with runs.using(path, *how(tmp_path)) as first, runs.using(path, *how(tmp_path)) as second:
        assert first is second and is_held(path)
    with runs.using(path, *how(tmp_path)) as again:
        assert again is first, "it stays open between two uses"
    runs.finished(path)
    assert not is_held(path) and not runs.has(path)


def test_the_time_between_two_openings_is_free(
    tmp_path: Path, runs: OpenRuns, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A graph of another program waits with its run closed: hours may pass until it goes on."""
    now = 1000.0
    monkeypatch.setattr("kernelblaster.memory.run.ledger.time.time", lambda: now)
    path = made(tmp_path)
    for waited in (0.0, 3600.0, 7200.0):
        now += waited
        with runs.using(path, *how(tmp_path)) as workspace:
            now += 5.0
            workspace.store.ledger.still_working()
            seconds = workspace.store.ledger.wall_seconds()
        runs.finished(path)
    assert seconds == 15.0


def test_a_run_that_another_holds_is_refused(tmp_path: Path, runs: OpenRuns) -> None:
    path = made(tmp_path)
    other = RunDirectory.hold(path)
    with pytest.raises(UserError, match="in use"), runs.using(path, *how(tmp_path)):
        pass
    other.close()
    with runs.using(path, *how(tmp_path)):
        pass
    runs.release(path)


def test_the_runs_used_last_stay_open(tmp_path: Path, runs: OpenRuns) -> None:
    paths = [made(tmp_path, f"run-{number}") for number in range(KEPT_OPEN + 3)]
    for path in paths:
        with runs.using(path, *how(tmp_path)):
            pass
    assert [runs.has(path) for path in paths] == [False] * 3 + [True] * KEPT_OPEN
    with runs.using(paths[3], *how(tmp_path)):
        pass  # Used again: not the oldest any more.
    with runs.using(paths[0], *how(tmp_path)):
        pass
    assert runs.has(paths[3]) and not runs.has(paths[4]) and runs.has(paths[0])
    for path in paths:
        runs.release(path)


def test_a_run_that_is_kept_stays_open_until_it_is_released(
    tmp_path: Path, runs: OpenRuns
) -> None:
    held = RunDirectory.create(tmp_path / "kept", {}, {})
    runs.keep(held, *how(tmp_path), until_released=True)
    for number in range(KEPT_OPEN + 2):
        path = made(tmp_path, f"run-{number}")
        with runs.using(path, *how(tmp_path)):
            pass
    runs.finished(held.path)
    assert runs.has(held.path) and is_held(held.path)
    runs.discard(held.path)
    assert not held.path.exists() and not runs.has(held.path)


def test_what_cannot_be_opened_lets_the_directory_go(tmp_path: Path, runs: OpenRuns) -> None:
    path = made(tmp_path)
    (path / "run.sqlite").write_text("no database, whatever its name says, but long enough" * 20)
    with pytest.raises(UserError, match="run.sqlite"), runs.using(path, *how(tmp_path)):
        pass
    assert not is_held(path) and not runs.has(path)


def test_a_run_that_stops_is_let_go_and_one_that_is_kept_is_not(
    tmp_path: Path, runs: OpenRuns
) -> None:
    path = made(tmp_path)
    with pytest.raises(KeyError), runs.using(path, *how(tmp_path)):
        raise KeyError
    assert not is_held(path), "another process may go on"
    runs.keep(RunDirectory.hold(path), *how(tmp_path), until_released=True)
    with pytest.raises(KeyError), runs.using(path, *how(tmp_path)):
        raise KeyError
    assert is_held(path)
    runs.release(path)


def test_runs_that_begin_make_room_too(tmp_path: Path, runs: OpenRuns) -> None:
    paths = []
    for number in range(KEPT_OPEN + 4):
        held = RunDirectory.create(tmp_path / f"run-{number}", {}, {})
        runs.keep(held, *how(tmp_path), until_released=False)
        paths.append(held.path)
    assert sum(runs.has(path) for path in paths) == KEPT_OPEN
    for path in paths:
        runs.release(path)


def test_a_directory_is_begun_for_one_graph(tmp_path: Path, runs: OpenRuns) -> None:
    held = RunDirectory.create(tmp_path / "run", {}, {})
    runs.keep(held, *how(tmp_path), until_released=True)
    assert runs.begun(held.path) and not runs.begun(held.path)
    runs.release(held.path)


def test_a_run_does_not_go_on_with_an_empty_knowledge_base(tmp_path: Path, runs: OpenRuns) -> None:
    path = made(tmp_path)
    with pytest.raises(UserError, match="no knowledge base"):
        with runs.using(path, "simulated", "H100", str(tmp_path / "gone")):
            pass
    assert not is_held(path)
