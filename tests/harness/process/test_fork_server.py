"""Programs are forked by a process kept warm: none outlives its limit, its server, its parent."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest
from process_checks import stays_alive
from worker_processes import workers_of

from kernelblaster.harness.process import fork_client
from kernelblaster.harness.process.children import TimedOut, python_environment
from kernelblaster.harness.process.fork_client import Program, run_forked, server_of
from kernelblaster.harness.simt.child import WORKER


def run(folder: Path, seconds: float = 30.0) -> int:
    """Run a worker whose request is a FIFO: it waits until somebody writes one."""
    request = folder / "request.json"
    if not request.exists():
        os.mkfifo(request)
    return run_forked(
        WORKER, [str(request)], directory=folder, environment=python_environment(folder),
        log=folder / "log", seconds=seconds,
    )  # fmt: skip


def waiting_worker() -> int:
    """Return the worker that runs, as soon as there is one."""
    deadline = time.monotonic() + 60
    while not workers_of(os.getpid()):
        assert time.monotonic() < deadline, "no worker was started"
        time.sleep(0.02)
    (worker,) = workers_of(os.getpid())
    return worker


def test_a_worker_that_fails_says_why_in_its_log(tmp_path: Path) -> None:
    (tmp_path / "request.json").write_text("no request")
    assert run(tmp_path) == 1
    assert "JSONDecodeError" in (tmp_path / "log").read_text()


def test_a_worker_knows_nothing_of_its_server(tmp_path: Path) -> None:
    thread = threading.Thread(target=lambda: run(tmp_path, seconds=20))
    thread.start()
    worker = waiting_worker()
    time.sleep(0.3)
    open_files = {os.readlink(entry) for entry in Path(f"/proc/{worker}/fd").iterdir()}
    session = os.getsid(worker)
    os.kill(worker, signal.SIGKILL)
    thread.join()
    assert session == worker
    assert not any(name.startswith(("socket:", "pipe:", "anon_inode:")) for name in open_files)


def test_a_worker_past_its_limit_is_killed(tmp_path: Path) -> None:
    with pytest.raises(TimedOut):
        run(tmp_path, seconds=1.0)
    assert not workers_of(os.getpid())


def test_where_the_server_is_killed_the_worker_is_and_the_next_one_runs(tmp_path: Path) -> None:
    statuses: list[int] = []
    thread = threading.Thread(target=lambda: statuses.append(run(tmp_path)))
    thread.start()
    worker = waiting_worker()
    server = server_of(os.getpid(), WORKER)._process
    assert server is not None
    server.kill()
    thread.join()
    assert statuses == [-signal.SIGKILL] and not stays_alive(worker)
    other = tmp_path / "other"
    other.mkdir()
    (other / "request.json").write_text("no request")
    # Who finds the server gone runs without one; the next has a new one.
    assert [run(other), run(other)] == [1, 1]
    assert server_of(os.getpid(), WORKER)._process is not server


def test_without_a_server_a_worker_is_started_anew(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "request.json").write_text("no request")

    def no_server(process: int, program: Program) -> fork_client.ForkServer:
        raise fork_client._NoServer("none here")

    monkeypatch.setattr(fork_client, "server_of", no_server)
    assert run(tmp_path) == 1
    assert "JSONDecodeError" in (tmp_path / "log").read_text()


def test_a_server_that_is_asked_nothing_ends() -> None:
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    program = (
        "import sys\n"
        "from kernelblaster.harness.process import fork_server\n"
        "fork_server.IDLE_SECONDS = 0.1\n"
        f"sys.exit(fork_server.main(['{theirs.fileno()}', 'kernelblaster.harness.simt.worker']))\n"
    )
    with ours, theirs:
        done = subprocess.run(
            [sys.executable, "-c", program], pass_fds=[theirs.fileno()], timeout=60
        )
    assert done.returncode == 0


@pytest.mark.slow
def test_nothing_outlives_a_killed_parent(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "request.json")
    program = (
        "import sys; from pathlib import Path\n"
        "from kernelblaster.harness.simt.child import WORKER\n"
        "from kernelblaster.harness.process.fork_client import run_forked\n"
        "from kernelblaster.harness.process.children import python_environment\n"
        f"folder = Path({str(tmp_path)!r})\n"
        "run_forked(WORKER, [str(folder / 'request.json')], directory=folder,\n"
        "           log=folder / 'log', seconds=60, environment=python_environment(folder))\n"
    )
    parent = subprocess.Popen([sys.executable, "-c", program])
    deadline = time.monotonic() + 60
    while not (workers := workers_of(parent.pid)):
        assert time.monotonic() < deadline
        time.sleep(0.05)
    stat = Path(f"/proc/{workers[0]}/stat").read_text()
    server = int(stat.rpartition(")")[2].split()[1])
    parent.kill()
    parent.wait()
    assert not stays_alive(workers[0]) and not stays_alive(server)
