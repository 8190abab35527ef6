"""The main job as a user runs it: real compiler, simulated device, real child processes."""

from __future__ import annotations

import json
import os
import signal
import sqlite3
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
from places import EXAMPLES, resized

SMALL = ("--iterations", "1", "--rollouts", "2", "--steps", "1", "--seed", "3", "--shapes", "0")
"""How long a run is; README's first command is run whole by .ci/run."""


@pytest.fixture(scope="module")
def task(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The example of the README, of a small matrix."""
    return resized(EXAMPLES / "softmax.py", tmp_path_factory.mktemp("task"), ROWS=512, COLUMNS=1024)


def start(*arguments: object) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-m", "kernelblaster", *map(str, arguments)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
    )


def finish(process: subprocess.Popen[str], code: int = 0) -> tuple[str, str]:
    out, error = process.communicate(timeout=300)
    assert process.returncode == code, out + error
    return out, error


def result_of(out: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(out.splitlines()[-1])
    return found


def comparable(result: dict[str, Any]) -> dict[str, Any]:
    place = {"run", "best_source", "lessons", "seconds"}
    return {name: value for name, value in result.items() if name not in place}


@pytest.fixture(scope="module")
def whole(task: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """An uninterrupted run, by which the others are judged."""
    folder = tmp_path_factory.mktemp("whole")
    out, _ = finish(
        start("optimize", task, *SMALL, "--json",
              "--run", folder / "run", "--kb", folder / "kb")
    )  # fmt: skip
    assert len(out.splitlines()) == 1, "JSON alone on standard output"
    return result_of(out)


def test_the_result_has_every_promised_key(whole: dict[str, Any]) -> None:
    promised = (
        "outcome task device gpu provenance initial_us best_us gain gain_ci evaluations "
        "model_calls tokens seconds techniques bottleneck_before bottleneck_after best_source run"
    )
    assert set(promised.split()) <= set(whole)
    assert whole["outcome"] == "improved" and whole["gain"] > 1.5
    assert whole["provenance"] == whole["device"] == "simulated"
    assert "extern" in Path(whole["best_source"]).read_text()


def test_the_best_kernel_passes_again_when_evaluated_alone(
    whole: dict[str, Any], task: Path
) -> None:
    out, _ = finish(
        start("evaluate", whole["best_source"], "--task", task, "--json")
    )
    evaluation = json.loads(out)
    assert evaluation["outcome"] == "passed"
    assert evaluation["timing"]["microseconds"] == pytest.approx(whole["best_us"])
    assert evaluation["timing"]["provenance"] == "simulated"


def test_kill_in_the_middle_of_a_real_run_then_resume(
    whole: dict[str, Any], task: Path, tmp_path: Path
) -> None:
    """SIGKILL when two evaluations are stored; resume ends as the uninterrupted run did."""
    process = start(
        "optimize", task, *SMALL,
        "--run", tmp_path / "run", "--kb", tmp_path / "kb",
    )  # fmt: skip
    database = tmp_path / "run" / "run.sqlite"
    while count(database) < 2:
        assert process.poll() is None, process.communicate()
        time.sleep(0.02)
    process.send_signal(signal.SIGKILL)
    process.wait()
    before = rows(database)
    out, _ = finish(start("resume", tmp_path / "run", "--json"))
    assert comparable(result_of(out)) == comparable(whole)
    # Rows are never rewritten: what was evaluated before the kill is still the first.
    assert rows(database)[: len(before)] == before


@pytest.mark.seldom
def test_control_c_drains_and_says_how_to_go_on(
    whole: dict[str, Any], task: Path, tmp_path: Path
) -> None:
    process = start(
        "optimize", task, *SMALL,
        "--run", tmp_path / "run", "--kb", tmp_path / "kb",
    )  # fmt: skip
    while count(tmp_path / "run" / "run.sqlite") < 1:
        assert process.poll() is None, process.communicate()
        time.sleep(0.02)
    process.send_signal(signal.SIGINT)
    _, error = finish(process, code=130)
    assert f"kernelblaster resume {tmp_path / 'run'}" in error and "Traceback" not in error
    finish(start("report", tmp_path / "run"), code=2)
    out, _ = finish(start("resume", tmp_path / "run", "--json"))
    assert comparable(result_of(out)) == comparable(whole)
    listed, _ = finish(start("report", tmp_path / "run"))
    assert "Path of the winner" in listed and "simulated" in listed


def count(database: Path) -> int:
    return len(rows(database))


def rows(database: Path) -> list[Any]:
    if not database.exists():
        return []
    try:
        with sqlite3.connect(f"file:{database}?mode=ro", uri=True) as connection:
            return connection.execute("SELECT key, body FROM evaluations ORDER BY rowid").fetchall()
    except sqlite3.OperationalError:
        return []
