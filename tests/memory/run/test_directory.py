"""Run directories: they appear whole, one run holds each, and nothing foreign is lost."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from kernelblaster.harness.errors import UserError
from kernelblaster.memory.run.artifacts import ArtifactStore
from kernelblaster.memory.run.directory import (
    NotEmpty,
    RunDirectory,
    is_held,
    new_run_directory,
    read_plan,
)
from kernelblaster.memory.run.run_store import RunStore


def test_a_directory_appears_with_all_that_it_begins_with_and_held(tmp_path: Path) -> None:
    held = RunDirectory.create(tmp_path / "deep" / "run", {"task": "t"}, {"budgets.json": "{}"})
    assert read_plan(held.path) == {"task": "t"}
    assert (held.path / "budgets.json").read_text() == "{}"
    assert [path.name for path in held.path.parent.iterdir()] == ["run"]
    assert is_held(held.path)
    with pytest.raises(UserError, match="in use"):
        RunDirectory.hold(held.path)
    held.close()
    held.close()
    assert not is_held(held.path)
    RunDirectory.hold(held.path).close()


def test_an_empty_directory_will_do_and_no_other(tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    RunDirectory.create(tmp_path / "empty", {}, {}).close()
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "thesis.tex").write_text("years of work")
    with pytest.raises(NotEmpty, match="choose an empty or new directory"):
        RunDirectory.create(tmp_path / "mine", {}, {})
    with pytest.raises(NotEmpty, match="resume"):
        RunDirectory.create(tmp_path / "empty", {}, {})
    (tmp_path / "file").write_text("")
    with pytest.raises(UserError, match="is a file"):
        RunDirectory.create(tmp_path / "file", {}, {})
    assert (tmp_path / "mine" / "thesis.tex").read_text() == "years of work"
    assert sorted(path.name for path in tmp_path.iterdir()) == ["empty", "file", "mine"]


def test_many_at_once_get_a_directory_each(tmp_path: Path) -> None:
    def make(number: int) -> str:
        while True:
            try:
                held = RunDirectory.create(
                    new_run_directory("task", tmp_path), {"number": number}, {}
                )
            except NotEmpty:
                continue
            held.close()
            return held.path.name

    with ThreadPoolExecutor(8) as pool:
        names = list(pool.map(make, range(24)))
    assert sorted(names) == sorted(f"task-{number}" for number in range(1, 25))
    stored = {read_plan(tmp_path / name)["number"] for name in names}
    assert stored == set(range(24))


MAKER = """
import sys
from pathlib import Path
from kernelblaster.memory.run.directory import RunDirectory
print("begin", flush=True)
for number in range(100000):
    RunDirectory.create(Path(sys.argv[1]) / f"run-{number}", {"n": number}, {"x": "y" * 100000})
"""


@pytest.mark.parametrize("wait", [0.002, 0.01, 0.05])
def test_a_kill_leaves_a_whole_directory_or_none(tmp_path: Path, wait: float) -> None:
    paths = os.pathsep.join(filter(None, sys.path))
    child = subprocess.Popen(
        [sys.executable, "-c", MAKER, str(tmp_path)],
        stdout=subprocess.PIPE, env=os.environ | {"PYTHONPATH": paths},
    )  # fmt: skip
    assert child.stdout is not None and child.stdout.readline() == b"begin\n"
    time.sleep(wait)
    child.send_signal(signal.SIGKILL)
    child.wait()
    RunDirectory.create(tmp_path / "run-0.5", {"n": 0.5}, {"x": "y" * 100000}).close()
    for path in tmp_path.iterdir():  # What was half made is swept.
        assert path.name == f"run-{read_plan(path)['n']}"
        assert len((path / "x").read_text()) == 100000
        assert not is_held(path), "the lock dies with its process"


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("{", "damaged"),
        ("[1]", "damaged"),
        ("{}", "damaged"),
        (json.dumps({"format": "kernelblaster-run/1", "request": {}}), "the version that started"),
    ],
)
def test_a_plan_that_cannot_be_read_is_one_line(tmp_path: Path, text: str, words: str) -> None:
    (tmp_path / "run.json").write_text(text)
    with pytest.raises(UserError, match=words):
        read_plan(tmp_path)
    with pytest.raises(UserError, match="no run directory"):
        read_plan(tmp_path / "nowhere")


def test_an_empty_directory_keeps_its_place_and_its_mode(tmp_path: Path) -> None:
    place = tmp_path / "empty"
    place.mkdir(mode=0o2770)
    place.chmod(0o2770)
    before = place.stat()
    held = RunDirectory.create(place, {"n": 1}, {"budgets.json": "{}"})
    assert (place.stat().st_ino, place.stat().st_mode) == (before.st_ino, before.st_mode)
    held.remove()
    held.close()
    assert place.is_dir() and list(place.iterdir()) == [], "who made it keeps it"


def test_only_what_was_made_is_removed(tmp_path: Path) -> None:
    held = RunDirectory.create(tmp_path / "run", {}, {})
    (tmp_path / "run").rename(tmp_path / "moved")
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "thesis.tex").write_text("years of work")
    held.remove()
    held.close()
    assert (tmp_path / "run" / "thesis.tex").exists() and (tmp_path / "moved").is_dir()
    made = RunDirectory.create(tmp_path / "other", {}, {})
    made.remove()
    made.close()
    assert not (tmp_path / "other").exists()


@pytest.mark.parametrize("there_before", [True, False])
def test_what_others_put_there_meanwhile_stays(tmp_path: Path, there_before: bool) -> None:
    run = tmp_path / "run"
    if there_before:
        run.mkdir()
    held = RunDirectory.create(run, {}, {"budgets.json": "{}"})
    ArtifactStore(run / "artifacts").put_text("a task")
    for name in ("checkpoints.sqlite", "checkpoints.sqlite-wal", "run.sqlite"):
        (run / name).write_text("ours")
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "elsewhere" / "aa").mkdir()
    (tmp_path / "elsewhere" / "aa" / ("0" * 62)).write_text("years of work")
    foreign = (
        "thesis.tex", "best.cu", "notes/run.json", "artifacts/thesis.tex", "artifacts/aa/notes",
    )  # fmt: skip
    for name in foreign:
        (run / name).parent.mkdir(parents=True, exist_ok=True)
        (run / name).write_text("years of work")
    (run / "run.sqlite-shm").symlink_to(tmp_path / "elsewhere" / "aa" / ("0" * 62))
    (run / "artifacts" / "bb").symlink_to(tmp_path / "elsewhere" / "aa")
    held.remove()
    held.close()
    files = {str(path.relative_to(run)) for path in run.rglob("*") if not path.is_dir()}
    assert files == {*foreign, "run.sqlite-shm"}
    assert (tmp_path / "elsewhere" / "aa" / ("0" * 62)).read_text() == "years of work"
    assert (run / "artifacts" / "bb").is_symlink()


def test_all_that_a_run_made_before_it_began_is_removed(tmp_path: Path) -> None:
    held = RunDirectory.create(tmp_path / "run", {}, {"budgets.json": "{}"})
    ArtifactStore(tmp_path / "run" / "artifacts").put_text("a task")
    RunStore(tmp_path / "run" / "run.sqlite").close()
    (tmp_path / "run" / "run.sqlite-wal").write_text("")
    held.remove()
    held.close()
    assert list(tmp_path.iterdir()) == []


def test_a_lost_race_leaves_nothing_open(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def slower(source: Path, target: Path) -> None:
        raise OSError(39, "Directory not empty")

    monkeypatch.setattr("kernelblaster.memory.run.directory.os.rename", slower)
    before = len(os.listdir("/proc/self/fd"))
    for _ in range(5):
        with pytest.raises(NotEmpty):
            RunDirectory.create(tmp_path / "run", {}, {})
    assert len(os.listdir("/proc/self/fd")) == before and list(tmp_path.iterdir()) == []
