"""A bench as a user runs it, killed in the middle: the command goes on to the same numbers."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import bench_child
import graph_support
import pytest
from benches import done, planned
from run_child import support_paths

from kernelblaster.bench.results import write_results

ASKED = (
    "--policy", "kernelblaster", "--jobs", "1", "--budget", "evaluations=3", "--rollouts", "1",
    "--steps", "2", "--device", "simulated", "--gpu", "H100",
)  # fmt: skip


def command(*words: object, seconds: str = "0") -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, bench_child.__file__, "bench", *map(str, words)],
        env=os.environ | {"PYTHONPATH": support_paths(), "TEXT_DEVICE_SECONDS": seconds},
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
    )  # fmt: skip


def workers_of(directory: Path) -> list[int]:
    """Return the processes that were started with the bench's directory as their last word."""
    found = []
    for place in Path("/proc").glob("[0-9]*"):
        try:
            words = (place / "cmdline").read_bytes().split(b"\0")
        except OSError:
            continue
        if str(directory).encode() in words and b"bench" not in words:
            found.append(int(place.name))
    return found


def test_killed_and_gone_on_with_it_comes_to_the_same_numbers(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    suite, directory = tmp_path / "suite", tmp_path / "bench"
    suite.mkdir()
    for name in ("one", "two"):
        (suite / f"{name}.py").write_text(f"# {name}\n")
    killed = command(suite, *ASKED, "--out", directory, seconds="0.1")
    while not list(directory.glob("outcomes/*/*/*.json")):
        assert killed.poll() is None, killed.communicate()[1]
        time.sleep(0.02)
    killed.send_signal(signal.SIGKILL)
    killed.wait()
    over = len(list(directory.glob("outcomes/*/*/*.json")))
    assert over < 2
    while workers_of(directory):  # They see that their parent is gone.
        time.sleep(0.02)
    on = command(directory, "--json", "--jobs", "1")
    out, error = on.communicate(timeout=120)
    assert on.returncode == 0, error
    found = json.loads(out)
    assert found["finished"] == 2

    graph_support.install(monkeypatch.setattr)
    graph_support.install_bench(monkeypatch.setattr)
    lock = planned(tmp_path / "whole", "kernelblaster", evaluations=3)
    done(tmp_path / "whole", lock)
    assert found["numbers_sha256"] == write_results(tmp_path / "whole", lock).numbers_sha256
