"""Whatever ends a process, nothing that it started goes on, and no folder of it stays for long."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from pathlib import Path

import pytest
import simulated_kernels as kernels
from process_checks import alive, sleep_process
from worker_processes import host_halves_of

from kernelblaster.harness.isolation.privileges import no_new_privileges
from kernelblaster.harness.process import children, orphans, scratch

ENVIRONMENT = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
PARENT = """
import contextlib, sys, threading
from pathlib import Path
from kernelblaster.harness.process import children
from process_checks import sleep_process
# Two threads, as a pool has: one ends while the other's child runs.
(Path(sys.argv[1]) / "short").mkdir()
sleep_process(Path(sys.argv[1]) / "short", 0.01)
thread = threading.Thread(target=sleep_process, args=(Path(sys.argv[1]), 300.0, 300.0))
if len(sys.argv) > 2:
    # As if it were killed between the start of a child and what tells the watcher.
    children.ended_with_us = lambda group: contextlib.nullcontext()
thread.start()
thread.join()
"""


def wait_for(condition: Callable[[], object], seconds: float = 30.0) -> None:
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, "waited in vain"
        time.sleep(0.02)


def written(path: Path) -> bool:
    return path.exists() and bool(path.read_text().strip())


@pytest.mark.parametrize("told", [True, False])
@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM, signal.SIGHUP])
def test_a_process_that_is_killed_takes_its_childrens_children_along(
    tmp_path: Path, number: int, told: bool
) -> None:
    parent = subprocess.Popen(
        [sys.executable, "-c", PARENT, str(tmp_path), *([] if told else ["untold"])],
        env=ENVIRONMENT,
        # Tests that run under nohup hand on that it is ignored.
        preexec_fn=lambda: signal.signal(signal.SIGHUP, signal.SIG_DFL),
    )
    wait_for(lambda: written(tmp_path / "pid"))
    grandchild = int((tmp_path / "pid").read_text())
    assert alive(grandchild)
    parent.send_signal(number)
    parent.wait(timeout=10)
    wait_for(lambda: not alive(grandchild), 10)


def test_a_thread_that_ends_takes_nobodys_child_along(tmp_path: Path) -> None:
    (tmp_path / "short").mkdir()
    (tmp_path / "long").mkdir()
    status: list[int] = []
    long = threading.Thread(
        target=lambda: status.append(sleep_process(tmp_path / "long", 1.5))
    )
    starter = threading.Thread(target=lambda: (long.start(), sleep_process(tmp_path / "short", 0)))
    starter.start()
    starter.join()
    long.join()
    assert status == [0]


def test_a_watcher_that_was_killed_is_replaced(tmp_path: Path) -> None:
    watcher = orphans.watcher_of(os.getpid())
    assert sleep_process(tmp_path, 0) == 0
    assert watcher._process is not None
    first = watcher._process
    first.kill()
    first.wait()
    assert sleep_process(tmp_path, 0) == 0
    assert watcher._process is not first and watcher._process.poll() is None


def test_the_watcher_is_not_shut_off_with_the_first_child(tmp_path: Path) -> None:
    orphans.watcher_of.cache_clear()

    def no_new(status: Path) -> str:
        return next(line for line in status.read_text().splitlines() if "NoNewPrivs" in line)[-1]

    status = children.run_process(
        ["/bin/cat", "/proc/self/status"], directory=tmp_path, environment={},
        log=tmp_path / "status", seconds=20, confine=no_new_privileges,
    )  # fmt: skip
    assert status == 0 and no_new(tmp_path / "status") == "1"
    watcher = orphans.watcher_of(os.getpid())._process
    assert watcher is not None and watcher.poll() is None
    # In a container that allows no new privileges both say 1.
    assert no_new(Path(f"/proc/{watcher.pid}/status")) == no_new(Path("/proc/self/status"))


@pytest.mark.slow
@pytest.mark.parametrize(("number", "code"), [(signal.SIGTERM, 143), (signal.SIGINT, 130)])
def test_evaluate_ends_in_good_order(tmp_path: Path, number: int, code: int) -> None:
    (tmp_path / "scale.py").write_text(kernels.SCALE_TASK)
    (tmp_path / "loop.cu").write_text(kernels.ENDLESS_HOST_LOOP)
    (tmp_path / "tmp").mkdir()
    running = subprocess.Popen(
        [sys.executable, "-m", "kernelblaster", "evaluate", str(tmp_path / "loop.cu"), "--task",
         str(tmp_path / "scale.py"), "--device", "simulated"],
        env={**ENVIRONMENT, "TMPDIR": str(tmp_path / "tmp")},
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
    )  # fmt: skip
    wait_for(lambda: host_halves_of(running.pid), 100)
    (child,) = host_halves_of(running.pid)
    running.send_signal(number)
    out, error = running.communicate(timeout=30)
    assert running.returncode == code, error
    assert "Traceback" not in error and f"stopped by {signal.Signals(number).name}" in error
    assert not alive(child)
    assert [*(tmp_path / "tmp").iterdir()] == []


# ---- scratch folders of the GPU's worker ----


@pytest.fixture
def temporary(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    return tmp_path


def test_folders_of_dead_processes_are_swept_and_no_others(temporary: Path) -> None:
    mine = scratch.new_scratch("test")
    (mine / "log").write_text("in use")
    program = (
        f"import tempfile; tempfile.tempdir = {str(temporary)!r}\n"
        "from kernelblaster.harness.process.scratch import new_scratch\n"
        "print(new_scratch('test'), flush=True); input()"
    )
    other = subprocess.Popen(
        [sys.executable, "-c", program], env=ENVIRONMENT, stdin=subprocess.PIPE,
        stdout=subprocess.PIPE, text=True,
    )  # fmt: skip
    assert other.stdout is not None
    theirs = Path(other.stdout.readline().strip())
    (theirs / "inputs").mkdir()
    prefix = f"{scratch.PREFIX}test-"
    namespace, process, started = theirs.name.removeprefix(prefix).split("-")[:3]
    reused = temporary / f"{prefix}{namespace}-{os.getpid()}-1-abc"
    elsewhere = temporary / f"{prefix}1{namespace}-{process}-{started}-abc"
    older = temporary / f"{prefix}x8a_k2"
    link = temporary / f"{prefix}{namespace}-{process}-{started}-link"
    for folder in (reused, elsewhere, older):
        folder.mkdir()
    link.symlink_to(older)
    assert int(process) == other.pid
    scratch.sweep()
    assert theirs.is_dir() and mine.is_dir() and not reused.exists()
    other.kill()
    other.wait()
    scratch.sweep()
    assert not theirs.exists()
    assert (mine / "log").read_text() == "in use"
    # Another container's, another program's, and what a link leads to, stay.
    assert elsewhere.is_dir() and older.is_dir() and link.is_symlink()
