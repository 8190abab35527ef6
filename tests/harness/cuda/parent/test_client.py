"""The client of the GPU's worker, against a worker that crashes, hangs, floods and forges."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from places import SUPPORT

from kernelblaster.harness.cuda import gpu_lock as lock_module
from kernelblaster.harness.cuda.gpu_lock import FOLDERS, gpu_lock, lock_file
from kernelblaster.harness.cuda.parent import client
from kernelblaster.harness.cuda.parent.client import GpuWorker, WorkerEnded, WorkerTimedOut
from kernelblaster.harness.errors import UserError
from kernelblaster.harness.process.children import off_loop

FAKE = [sys.executable, str(SUPPORT / "fake_gpu_worker.py")]


@pytest.fixture(autouse=True)
def no_lock_file_stays() -> Iterator[None]:
    yield
    forget_locks("GPU-none")


@pytest.fixture
def worker(monkeypatch: pytest.MonkeyPatch) -> Iterator[GpuWorker]:
    monkeypatch.setenv("SECRET_KEY", "do not tell")
    monkeypatch.setattr(client, "KILL_SECONDS", 10.0)
    made = GpuWorker(f"GPU-test-{os.getpid()}", FAKE)
    yield made
    made.close()
    forget_locks(made.uuid)


def forget_locks(uuid: str) -> None:
    for name in (uuid, f"{uuid}-turn", f"{uuid}-first"):
        lock_file(name).unlink(missing_ok=True)


def test_one_process_answers_many_requests(worker: GpuWorker) -> None:
    answers = [worker.request({"do": "work"}) for _ in range(3)]
    assert [answer["served"] for answer in answers] == [1, 2, 3]
    assert worker.starts == 1 and worker.hello()["gpu"] == "fake"
    assert "SECRET_KEY" not in worker.hello()["environment"]
    assert "CUDA_VISIBLE_DEVICES" in worker.hello()["environment"]


def test_the_next_process_waits_and_answers_what_is_asked_of_a_fresh_one(
    worker: GpuWorker,
) -> None:
    worker.request({"do": "work"})
    waiting = worker._next
    assert waiting is not None and worker.starts == 1
    answer = worker.request({"do": "work"}, fresh=True)
    assert answer["pid"] == waiting.process.pid and answer["served"] == 1
    died = worker._next
    assert died is not None and died is not waiting
    died.process.kill()
    died.process.wait()
    assert worker.request({"do": "work"}, fresh=True)["pid"] != died.process.pid
    assert not died.scratch.exists()
    last = worker._next
    assert last is not None
    worker.close()
    assert last.process.poll() is not None and not last.scratch.exists()


@pytest.mark.parametrize(
    ("do", "words"),
    [
        ("exit", "status 0: host code did not return"),
        ("kill", "SIGSEGV"),
        ("fail", "status 7: the last words"),
        ("forge", "something else than the worker"),
        ("noise", "something else than the worker"),
        ("flood", "closed its output"),
    ],
)
def test_a_death_costs_one_request(
    worker: GpuWorker, monkeypatch: pytest.MonkeyPatch, do: str, words: str
) -> None:
    monkeypatch.setattr(client, "LARGEST_ANSWER", 4 << 20)
    with pytest.raises(WorkerEnded, match=words) as caught:
        worker.request({"do": do})
    assert caught.value.stage == "candidate" and caught.value.candidate_loaded
    assert worker.request({"do": "work"})["served"] == 1
    assert worker.starts == 2


def test_a_hang_is_killed_with_all_its_children(worker: GpuWorker) -> None:
    pid = worker.request({"do": "work"})["pid"]
    began = time.monotonic()
    with pytest.raises(WorkerTimedOut, match="did not finish within 0.5 s") as caught:
        worker.request({"do": "hang"}, candidate_seconds=0.5)
    assert caught.value.stage == "candidate" and time.monotonic() - began < 5
    assert not Path(f"/proc/{pid}").exists()
    while pid in process_groups() and time.monotonic() - began < 5:
        time.sleep(0.05)
    assert pid not in process_groups()
    assert worker.request({"do": "work"})["served"] == 1


def test_each_stage_has_its_own_limit(worker: GpuWorker) -> None:
    with pytest.raises(WorkerTimedOut) as caught:
        worker.request({"do": "hang", "stage": "reference"}, reference_seconds=0.3)
    assert caught.value.stage == "reference" and not caught.value.candidate_loaded


@pytest.mark.parametrize("do", ["leak", "break", "fill"])
def test_a_worker_of_no_more_use_is_replaced(worker: GpuWorker, do: str) -> None:
    first = worker.request({"do": do})
    assert not worker.is_running
    assert worker.request({"do": "work"})["pid"] != first["pid"]


def test_a_fresh_process_on_request(worker: GpuWorker) -> None:
    first = worker.request({"do": "work"})
    assert worker.request({"do": "work"}, fresh=True)["pid"] != first["pid"]


def test_threads_take_turns(worker: GpuWorker) -> None:
    served: list[int] = []
    threads = [
        threading.Thread(target=lambda: served.append(worker.request({"do": "work"})["served"]))
        for _ in range(8)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(served) == list(range(1, 9))


async def test_cancelling_the_caller_kills_the_worker(worker: GpuWorker) -> None:
    pid = (await off_loop(worker.request, {"do": "work"}))["pid"]
    running = asyncio.create_task(off_loop(worker.request, {"do": "hang"}))
    await asyncio.sleep(0.3)
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running
    assert not Path(f"/proc/{pid}").exists()
    assert (await off_loop(worker.request, {"do": "work"}))["served"] == 1


def test_another_process_on_the_gpu_is_waited_for(worker: GpuWorker) -> None:
    holder = subprocess.Popen(
        [
            sys.executable, "-c",
            "import sys, time; from kernelblaster.harness.cuda.gpu_lock import gpu_lock\n"
            f"with gpu_lock({worker.uuid!r}):\n  print('held', flush=True); time.sleep(1)",
        ],
        stdout=subprocess.PIPE,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
    )  # fmt: skip
    assert holder.stdout is not None and holder.stdout.readline() == b"held\n"
    began = time.monotonic()
    worker.request({"do": "work"})
    assert time.monotonic() - began > 0.5
    holder.wait()
    with gpu_lock(worker.uuid):
        pass


def test_some_share_a_gpu_and_say_that_they_did(folder_of_all: Path) -> None:
    with gpu_lock("GPU-1", shared=True) as first:
        assert not first.had_company()
        time.sleep(0.02)  # A file's time counts in steps of some milliseconds.
        with gpu_lock("GPU-1", shared=True) as second:
            assert first.had_company() and second.had_company()
        assert first.had_company()
    with gpu_lock("GPU-1") as third:
        assert not third.had_company()


def test_who_enters_in_the_same_step_of_the_files_clock_is_company_too(
    folder_of_all: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = os.utime

    def coarse(descriptor: int) -> None:  # As before Linux 6.13, in steps of 20 ms.
        step = time.time_ns() // 20_000_000 * 20_000_000
        real(descriptor, ns=(step, step))

    monkeypatch.setattr(lock_module.os, "utime", coarse)
    for _ in range(3):
        with gpu_lock("GPU-1", shared=True) as first, gpu_lock("GPU-1", shared=True):
            assert first.had_company()


def test_who_wants_to_be_alone_waits_for_those_inside_and_others_for_him(
    folder_of_all: Path,
) -> None:
    order: list[str] = []

    def enter(name: str, shared: bool) -> threading.Thread:
        def use() -> None:
            with gpu_lock("GPU-1", shared=shared):
                order.append(name)
                time.sleep(0.05)
                order.append(f"{name} left")

        thread = threading.Thread(target=use)
        thread.start()
        time.sleep(0.1)
        return thread

    with gpu_lock("GPU-1", shared=True):
        threads = [enter("alone", shared=False), enter("shares", shared=True)]
        assert order == []
    for thread in threads:
        thread.join()
    assert order == ["alone", "alone left", "shares", "shares left"]


def test_those_who_share_let_all_pass_that_want_to_be_alone_and_enter_together(
    folder_of_all: Path,
) -> None:
    order: list[str] = []
    inside = threading.Barrier(3, timeout=10)

    def alone() -> None:
        with gpu_lock("GPU-1"):
            order.append("alone")

    def share() -> None:
        with gpu_lock("GPU-1", shared=True):
            order.append("shares")
            inside.wait()  # Broken where one of the three waits for another to leave.

    threads = [threading.Thread(target=use) for use in (share, alone, share, alone, share, alone)]
    with gpu_lock("GPU-1"):
        for thread in threads:
            thread.start()
        time.sleep(0.2)
    for thread in threads:
        thread.join()
    assert order == [*3 * ["alone"], *3 * ["shares"]] and not inside.broken


def test_who_shares_does_not_wait_for_ever(
    folder_of_all: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lock_module, "PATIENCE_SECONDS", 0.1)
    done = threading.Event()

    def alone() -> None:  # There is always one of the two that is, or wants to be.
        while not done.is_set():
            with gpu_lock("GPU-1"):
                time.sleep(0.02)

    threads = [threading.Thread(target=alone) for _ in range(2)]
    for thread in threads:
        thread.start()
    with gpu_lock("GPU-1", shared=True):
        done.set()
    for thread in threads:
        thread.join()


def test_the_lock_is_the_machines_whoever_asks(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = lock_file("GPU-1/..")
    assert before.parent in FOLDERS and before.name == "kernelblaster-GPU-1___.lock"
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    assert lock_file("GPU-1/..") == before
    shut = tmp_path / "shut"
    shut.mkdir(mode=0o755)
    monkeypatch.setenv("KERNELBLASTER_CACHE", str(tmp_path / "cache"))
    assert lock_file("GPU-1", [shut]) == tmp_path / "cache" / "locks" / "kernelblaster-GPU-1.lock"


@pytest.fixture
def folder_of_all(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = tmp_path / "all"
    folder.mkdir()
    folder.chmod(0o1777)
    monkeypatch.setattr(lock_module.lock_file, "__defaults__", ((folder,),))
    return folder


def test_every_user_may_open_the_lock(folder_of_all: Path) -> None:
    mask = os.umask(0o077)
    try:
        with gpu_lock("GPU-1"):
            pass
    finally:
        os.umask(mask)
    for path in folder_of_all.iterdir():
        assert path.stat().st_mode & 0o777 == 0o666
        path.chmod(0o444)  # As another user's file: it can be read, and not written.
    with gpu_lock("GPU-1"):
        pass


@pytest.mark.parametrize("kind", ["link", "pipe", "folder"])
def test_a_lock_that_somebody_put_something_else_for(folder_of_all: Path, kind: str) -> None:
    path = lock_file("GPU-1")
    target = folder_of_all / "target"
    target.write_text("mine")
    {"link": lambda: path.symlink_to(target), "pipe": lambda: os.mkfifo(path),
     "folder": path.mkdir}[kind]()  # fmt: skip
    with pytest.raises(UserError, match="lock file of the GPU, .*GPU-1.lock, cannot be used"):
        with gpu_lock("GPU-1"):
            pass
    assert target.read_text() == "mine"


def test_a_start_that_works_without_isolation_alone_is_remembered(
    worker: GpuWorker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    worker._command = [*FAKE, "open only"]
    assert worker.request({"do": "work"})["served"] == 1
    assert worker.starts == 2
    assert worker.request({"do": "work"}, fresh=True)["served"] == 1
    assert worker.starts == 3
    worker.close()
    assert [*tmp_path.iterdir()] == []


@pytest.mark.parametrize("count", [1, 2])
def test_a_start_that_failed_beside_others_is_tried_again_alone(
    worker: GpuWorker, tmp_path: Path, count: int
) -> None:
    tries = tmp_path / "tries"
    worker._command = [*FAKE, "fails first", str(tries), str(count)]
    inside = threading.Event()

    def company() -> None:
        with gpu_lock(worker.uuid, shared=True):
            inside.set()
            while not tries.exists() or len(tries.read_text().splitlines()) < 2:
                time.sleep(0.01)

    other = threading.Thread(target=company)
    other.start()
    inside.wait()
    assert worker.request({"do": "work"})["served"] == 1
    other.join()
    assert worker.starts == 3 and worker._enclosed  # Of that isolation it was not to blame.


def test_a_start_that_fails_with_nobody_there_has_failed(worker: GpuWorker, tmp_path: Path) -> None:
    worker._command = [*FAKE, "fails first", str(tmp_path / "tries"), "9"]
    with pytest.raises(UserError, match="does not start"):
        worker.request({"do": "work"})
    assert worker.starts == 2


USER = """
import sys, tempfile
from kernelblaster.harness.cuda.parent import client
client._worker_command = lambda: sys.argv[2:]
worker = client.shared_worker(sys.argv[1])
assert client.shared_worker(sys.argv[1]) is worker
print(worker.request({"do": "work"})["pid"], flush=True)
if sys.stdin.readline().strip() == "raise":
    raise SystemExit(5)
"""


@pytest.mark.parametrize("end", ["return", "raise", "kill"])
def test_the_shared_worker_ends_with_its_process_and_leaves_nothing(
    worker: GpuWorker, tmp_path: Path, end: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    user = subprocess.Popen(
        [sys.executable, "-c", USER, worker.uuid, *FAKE], stdin=subprocess.PIPE,
        stdout=subprocess.PIPE, text=True,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path), "TMPDIR": str(tmp_path)},
    )  # fmt: skip
    assert user.stdout is not None
    pid = int(user.stdout.readline())
    assert len([*tmp_path.iterdir()]) == 2  # of the worker, and of the next
    if end == "kill":
        user.kill()
    user.communicate(end + "\n")
    assert user.returncode == {"return": 0, "raise": 5, "kill": -9}[end]
    began = time.monotonic()
    while pid in process_groups() and time.monotonic() - began < 10:
        time.sleep(0.05)
    assert pid not in process_groups()
    if end == "kill":
        # Nobody was left to remove it: the next start does.
        monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
        assert len([*tmp_path.iterdir()]) == 2
        worker.request({"do": "work"})
        worker.close()
    assert [*tmp_path.iterdir()] == []


def test_a_worker_that_does_not_start_is_one_clear_line() -> None:
    broken = GpuWorker("GPU-none", [sys.executable, "-c", "raise SystemExit('no such device')"])
    with pytest.raises(UserError, match="does not start: .*no such device"):
        broken.hello()


def test_the_real_worker_says_why_it_cannot_start() -> None:
    import torch

    if torch.cuda.is_available():
        pytest.skip("it would start")
    made = GpuWorker("GPU-none")
    with pytest.raises(UserError, match="cannot be used from PyTorch"):
        made.hello()
    assert not made.is_running


def process_groups() -> set[int]:
    found = set()
    for entry in Path("/proc").glob("[0-9]*/stat"):
        try:
            state, _, group = entry.read_text().rpartition(")")[2].split()[:3]
        except (OSError, ValueError):
            continue
        if state != "Z":  # dead, and not yet read by whoever must
            found.add(int(group))
    return found
