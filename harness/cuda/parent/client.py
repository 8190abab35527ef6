"""The parent's side of a GPU's worker: starts it, asks it, ends it, keeps others off the GPU."""

from __future__ import annotations

import atexit
import contextlib
import functools
import json
import os
import secrets
import select
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from ...build.cache import cache_root
from ...build.native import build_native
from ...errors import UserError
from ...process.children import (
    Cancelled,
    caller_cancelled,
    how_it_ended,
    last_line,
    python_environment,
)
from ...process.orphans import watcher_of
from ...process.scratch import new_scratch
from ..gpu_lock import gpu_lock

START_SECONDS = 300.0
"""Importing PyTorch from a cold disk and opening the context."""
REFERENCE_SECONDS = 600.0
"""Of one stage of trusted work: answers, double precision, torch.compile."""
CANDIDATE_SECONDS = 20.0
"""Of one stage of a candidate: a case's two runs, or one timed round."""
KILL_SECONDS = 60.0
"""A killed process waits for its kernels to be taken off the GPU."""
CLOSE_SECONDS = 2.0
"""A thread that still asks when the interpreter ends is not waited for longer."""
POLL_SECONDS = 0.05
LARGEST_ANSWER = 64 << 20
LARGEST_SPLIT_MIB = 512
"""Of the memory that PyTorch keeps, blocks that it may split."""
LEAK_BYTES = 1 << 30
"""GPU memory that may be held beyond the start's before the worker is replaced."""

_KEPT = ("CC", "CXX", "CUDA_HOME", "LIBRARY_PATH", "C_INCLUDE_PATH", "CPATH",
         "NVIDIA_VISIBLE_DEVICES", "NVIDIA_DRIVER_CAPABILITIES", "TRITON_PTXAS_PATH",
         "NCCL_NVLS_ENABLE", "TORCH_SYMM_MEM_DISABLE_MULTICAST", "NVSHMEM_DISABLE_NVLS",
         "PYTORCH_CUDA_ALLOC_CONF", "PYTORCH_ALLOC_CONF")  # fmt: skip


class WorkerEnded(Exception):
    """The worker is gone without an answer. `stage` tells whose work it was doing."""

    def __init__(self, reason: str, stage: str, candidate_loaded: bool) -> None:
        super().__init__(reason)
        self.reason, self.stage, self.candidate_loaded = reason, stage, candidate_loaded
        self.crowded = False
        """Whether others used the GPU meanwhile."""


class WorkerTimedOut(WorkerEnded):
    """A stage ran past its limit, and the worker was killed."""


class _NotStarted(Exception):
    """The worker did not start; without isolation it might."""


class _Spawned(NamedTuple):
    """A process that was started and has not been greeted: it imports PyTorch, and waits."""

    process: subprocess.Popen[bytes]
    scratch: Path


class GpuWorker:
    """The process beside one GPU; started when first asked, replaced when it is of no more use.

    While one answers, the next has PyTorch imported and waits, off the GPU, for its greeting.

    One request at a time, whatever the number of threads that ask. Of all processes of this
    machine one is on the GPU where it asks to be alone, else those that share it (`gpu_lock`).

    Args:
        uuid: the GPU, as the driver names it.
        command: the program to start; gets the greeting as its first line.
    """

    def __init__(self, uuid: str, command: Sequence[str] | None = None) -> None:
        self.uuid = uuid
        self.starts = 0
        """How often a process was started."""
        self._command = list(command or _worker_command())
        self.reservation = threading.Lock()
        """Held by whoever has several requests to make with nobody else's between them."""
        self._mutex = threading.Lock()
        self._process: subprocess.Popen[bytes] | None = None
        self._scratch: Path | None = None
        self._next: _Spawned | None = None
        self._received = b""
        self._hello: dict[str, Any] = {}
        self._enclosed = True
        """Whether to start it with all of its isolation; not any more where only without it works.
        """

    @property
    def is_running(self) -> bool:
        """Whether a process is there to answer."""
        return self._process is not None and self._process.poll() is None

    def hello(self) -> dict[str, Any]:
        """Return what the worker says of its GPU; starts it the first time. Raises UserError."""
        if not self._hello:
            with self._one_asks():
                self._ensure()
        return self._hello

    def request(
        self,
        body: Mapping[str, Any],
        *,
        candidate_seconds: float = CANDIDATE_SECONDS,
        reference_seconds: float = REFERENCE_SECONDS,
        fresh: bool = False,
        alone: bool = True,
    ) -> dict[str, Any]:
        """Return the answer to a request, with `crowded`: whether others used the GPU meanwhile.

        Args:
            candidate_seconds: wall-clock limit of each stage in which a candidate runs.
            reference_seconds: of each other stage.
            fresh: answer from a process that has run no candidate before.
            alone: whether nobody else may use the GPU meanwhile.

        Raises:
            WorkerEnded, WorkerTimedOut: the process died or was killed.
            UserError: no worker can be started.
            Cancelled: the caller of `off_loop` was cancelled; the process was killed.
        """
        limits = {"candidate": candidate_seconds, "reference": reference_seconds}
        with self._one_asks():
            if fresh:
                self._stop()
            self._ensure()
            # It imports while trusted work is done: by the time that something is timed it waits.
            self._next = self._next or self._spawn()
            with gpu_lock(self.uuid, shared=not alone) as hold:
                try:
                    answer = self._ask({**body, "alone": alone}, limits)
                except WorkerEnded as ended:
                    ended.crowded = hold.had_company()
                    raise
                answer["crowded"] = hold.had_company()
            leaked = answer.get("leaked_bytes", 0)
            full = answer.get("out_of_memory")  # What it still holds, nobody else would have.
            if answer.get("broken") or full or not isinstance(leaked, int) or leaked > LEAK_BYTES:
                self._stop()
            return answer

    def close(self, seconds: float = -1) -> None:
        """End the process; the next request starts another.

        Args:
            seconds: how long to wait for a request that is being answered; then its process is
                ended all the same. By default it is waited for.
        """
        held = self._mutex.acquire(timeout=seconds)
        try:
            self._stop()
            if waiting := self._next:
                self._next = None
                _end(waiting)
        finally:
            if held:
                self._mutex.release()

    @contextlib.contextmanager
    def _one_asks(self) -> Iterator[None]:
        while not self._mutex.acquire(timeout=POLL_SECONDS):
            if caller_cancelled():
                raise Cancelled
        try:
            yield
        finally:
            self._mutex.release()

    def _ensure(self) -> None:
        if self.is_running:
            return
        self._stop()
        # It imports while others have the GPU.
        self._next = self._next or self._spawn()
        enclosed = self._enclosed
        with gpu_lock(self.uuid, shared=True) as hold:
            try:
                self._start()
            except UserError:
                if not hold.had_company():
                    raise
            else:
                if self._enclosed == enclosed or not hold.had_company():
                    return
        # Others may have had the memory that it lacked: that is no word on its isolation.
        self._stop()
        self._enclosed = enclosed
        with gpu_lock(self.uuid):
            self._start()

    def _start(self) -> None:
        """Start the process, once more without isolation where it does not start with it.

        What then worked is remembered, and its results say so.
        """
        if self._enclosed:
            with contextlib.suppress(_NotStarted):
                return self._start_once(enclosed=True)
        try:
            self._start_once(enclosed=False)
        except _NotStarted as error:
            raise UserError(str(error)) from error.__cause__
        self._enclosed = False

    def _start_once(self, *, enclosed: bool) -> None:
        """Start the process and greet it. Raises _NotStarted."""
        waiting, self._next = self._next, None
        if waiting and waiting.process.poll() is not None:
            _end(waiting)
            waiting = None
        self._process, self._scratch = waiting or self._spawn()
        self._received = b""
        self.starts += 1
        greeting = {
            "replay": str(replay_library()),
            "scratch": str(self._scratch),
            "kept": str(_baseline_caches() / "tasks"),
            "writable": [str(self._scratch), str(_baseline_caches())],
            "enclosed": enclosed,
        }
        try:
            said = self._ask(greeting, {"start": START_SECONDS}, stage="start")
        except WorkerEnded as error:
            raise _NotStarted(f"the GPU worker does not start: {error.reason}") from error
        if "machine_error" in said:
            self._stop()
            words = f"the GPU cannot be used from PyTorch: {said['machine_error']}"
            if enclosed and not said.get("enclosed"):
                raise UserError(words)  # It was not for what it gave up.
            raise _NotStarted(words)
        self._hello = said

    def _spawn(self) -> _Spawned:
        scratch = new_scratch("gpu")
        with (scratch / "log").open("wb") as log:
            process = subprocess.Popen(
                self._command,
                cwd=scratch,
                env=_environment(self.uuid, scratch),
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
                start_new_session=True,
            )
        watcher_of(os.getpid()).add(process.pid)
        return _Spawned(process, scratch)

    def _ask(
        self, body: Mapping[str, Any], limits: Mapping[str, float], stage: str = "reference"
    ) -> dict[str, Any]:
        """Send one line and wait for its answer; any failure ends the process."""
        process, token = self._process, secrets.token_hex(16)
        assert process is not None and process.stdin is not None
        loaded = False
        try:
            process.stdin.write(json.dumps({**body, "token": token}).encode() + b"\n")
            process.stdin.flush()
        except OSError:
            raise self._ended(stage, loaded) from None
        deadline = time.monotonic() + limits[stage]
        while True:
            try:
                line = self._line(deadline)
            except TimeoutError:
                self._stop()
                words = f"did not finish within {limits[stage]:g} s"
                raise WorkerTimedOut(words, stage, loaded) from None
            except BaseException:
                self._stop()
                raise
            if line is None:
                raise self._ended(stage, loaded)
            message = _parse(line)
            if message is None or message.pop("token", None) != token:
                self._stop()
                raise WorkerEnded("something else than the worker spoke", stage, loaded)
            if "stage" not in message:
                return message
            stage = str(message["stage"])
            if stage not in limits:
                self._stop()
                raise WorkerEnded("something else than the worker spoke", "candidate", loaded)
            loaded = loaded or stage == "candidate"
            deadline = time.monotonic() + limits[stage]

    def _line(self, deadline: float) -> bytes | None:
        """Return the next line; None at the end. Raises TimeoutError, Cancelled."""
        assert self._process is not None and self._process.stdout is not None
        descriptor = self._process.stdout.fileno()
        while b"\n" not in self._received:
            if caller_cancelled():
                raise Cancelled
            if time.monotonic() > deadline:
                raise TimeoutError
            if len(self._received) > LARGEST_ANSWER:
                return None
            if select.select([descriptor], [], [], POLL_SECONDS)[0]:
                data = os.read(descriptor, 1 << 20)
                if not data:
                    return None
                self._received += data
        line, _, self._received = self._received.partition(b"\n")
        return line

    def _ended(self, stage: str, loaded: bool) -> WorkerEnded:
        """Reap the process and say how it ended."""
        status = None
        if self._process is not None:
            with contextlib.suppress(subprocess.TimeoutExpired):
                status = self._process.wait(timeout=5)
        log = self._scratch / "log" if self._scratch else None
        last = last_line(log) if log else ""
        if status is None:
            reason = "the worker closed its output and stayed" + (f": {last}" if last else "")
        else:
            reason = how_it_ended(status, last)
        self._stop()
        return WorkerEnded(reason, stage, loaded)

    def _stop(self) -> None:
        """Kill the process and whatever it started, and remove its scratch folder.

        Raises UserError where it cannot be killed: its kernel cannot be taken off the GPU.
        """
        process, self._process = self._process, None
        scratch, self._scratch = self._scratch, None
        if process is not None and scratch is not None:
            try:
                _end(_Spawned(process, scratch))
            except subprocess.TimeoutExpired:
                raise UserError(
                    f"process {process.pid} cannot be ended: the GPU {self.uuid} hangs; it has to "
                    "be reset by its administrator"
                ) from None


@functools.cache
def shared_worker(uuid: str) -> GpuWorker:
    """Return this process's one worker for a GPU: devices are opened often, PyTorch loads once.

    It ends with this process, and takes its scratch folder along.
    """
    worker, owner = GpuWorker(uuid), os.getpid()

    def end() -> None:
        if os.getpid() == owner:  # A fork's exit is none of its business.
            worker.close(seconds=CLOSE_SECONDS)

    atexit.register(end)
    return worker


def replay_library() -> Path:
    """Return replay.c compiled against the toolkit's headers. Raises UserError."""
    from ...build.toolchain import find_toolchain

    source = Path(__file__).resolve().parents[1] / "launching" / "replay.c"
    headers = find_toolchain().cuda_headers()
    return build_native("replay", [source], ["-std=gnu11", f"-I{headers}"], libraries=["dl"])


def _worker_command() -> list[str]:
    package = __name__.removesuffix(".parent.client")
    return [sys.executable, "-P", "-m", f"{package}.worker.main"]


def _environment(uuid: str, scratch: Path) -> dict[str, str]:
    """Return an environment without secrets, with one GPU and compile caches that last."""
    kept = _baseline_caches()
    environment = python_environment(scratch)
    # Blocks of gigabytes that are split for smaller tensors are lost to larger ones.
    environment["PYTORCH_CUDA_ALLOC_CONF"] = f"max_split_size_mb:{LARGEST_SPLIT_MIB}"
    environment |= {name: os.environ[name] for name in _KEPT if name in os.environ}
    return environment | {
        "CUDA_VISIBLE_DEVICES": uuid,
        "CUDA_DEVICE_ORDER": "PCI_BUS_ID",
        "TORCHINDUCTOR_CACHE_DIR": str(kept / "inductor"),
        "TRITON_CACHE_DIR": str(kept / "triton"),
        # Compiling in this process: a pool would be processes to look after.
        "TORCHINDUCTOR_COMPILE_THREADS": "1",
        # Threads that wait by working keep the hosts of other GPUs from theirs.
        "OMP_WAIT_POLICY": "PASSIVE",
        "KERNELBLASTER_CACHE": str(cache_root()),
        "USER": "kernelblaster",
    }


def _baseline_caches() -> Path:
    """Return the folder of what torch.compile keeps, made if missing."""
    kept = cache_root() / "compiled-baselines"
    kept.mkdir(parents=True, exist_ok=True)
    return kept


def _end(spawned: _Spawned) -> None:
    """Kill a process and whatever it started. Raises subprocess.TimeoutExpired."""
    process = spawned.process
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    for pipe in (process.stdin, process.stdout):
        if pipe is not None:
            with contextlib.suppress(OSError):
                pipe.close()
    try:
        process.wait(timeout=KILL_SECONDS)
        watcher_of(os.getpid()).remove(process.pid)
    finally:
        shutil.rmtree(spawned.scratch, ignore_errors=True)


def _parse(line: bytes) -> dict[str, Any] | None:
    try:
        value = json.loads(line)
    except (ValueError, RecursionError):
        return None
    return value if isinstance(value, dict) else None
