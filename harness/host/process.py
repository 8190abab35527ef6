"""The process of one candidate's host half, as the judge's side sees it: asked, timed, ended."""

from __future__ import annotations

import contextlib
import errno
import os
import signal
import socket
import struct
import subprocess
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from ..build.native import build_native
from ..errors import UserError
from ..isolation import landlock, seccomp
from ..isolation.candidate_process import library_folders
from ..isolation.kernel import Refused
from ..process.children import Cancelled, caller_cancelled, how_it_ended
from ..process.orphans import ended_with_us
from ..records.builds import KernelResources
from ..records.outcomes import Outcome
from .calls import Call, NotACall, read_calls
from .entries import Entry
from .properties import GpuProperties, native

SECONDS = 5.0
"""Wall clock of one request: host code only enqueues work."""
POLL_SECONDS = 0.05
LARGEST_ANSWER = 32 << 20
"""Bytes that the calls of one launch() may take."""
TOUCHED_DEVICE = 77
"""Exit status where host code read or wrote the device's memory (process.c)."""
CALLED_ELSEWHERE = 78
"""Exit status where host code called through a pointer what is no kernel (runtime.h)."""
_ENCLOSE, _OPEN, _LOAD, _DESCRIBE, _WORKSPACE, _VARIABLES, _CALL, _STATE = range(1, 9)
_STEPS = (
    "no new privileges", "dropping capabilities", "a file system of its own",
    "a filter of system calls",
)  # fmt: skip


class HostFailed(Exception):
    """The host half ended, hung, or answered what no runtime would."""

    def __init__(self, outcome: Outcome, reason: str) -> None:
        super().__init__(reason)
        self.outcome, self.reason = outcome, reason


def host_program(cuda_headers: Path) -> Path:
    """Return the program that host halves run in, compiled when this machine has not yet done so.

    Raises UserError where no host compiler works.
    """
    here = Path(__file__).resolve().parent
    sources = [here / "process.c", *sorted((here / "runtime").glob("*.c"))]
    return build_native(
        "host-half", sources, ["-std=gnu11", f"-I{cuda_headers}"], libraries=["dl", "m"],
        tune=False, kind="program",
    )  # fmt: skip


class HostProcess:
    """A candidate's host half, loaded into a process that is shut off from everything else."""

    def __init__(self, process: subprocess.Popen[bytes], channel: socket.socket) -> None:
        self._process, self._channel = process, channel
        self.missing: tuple[str, ...] = ()
        """What of its isolation this machine does not offer, in words."""

    def load(
        self,
        gpu: GpuProperties,
        resources: Sequence[KernelResources],
        entries: Mapping[str, Entry],
        largest_copy: int,
    ) -> None:
        """Load the shared object, for a GPU and with these kernels. Raises HostFailed."""
        opened = bytes(native(gpu, largest_copy=largest_copy))
        self._ask(_OPEN, opened + struct.pack("<Q", LARGEST_ANSWER))
        if error := self._ask(_LOAD).decode("utf-8", "replace"):
            raise HostFailed(Outcome.CRASHED, f"the host half does not load: {error[:300]}")
        by_name = {kernel.kernel: kernel for kernel in resources}
        self._ask(_DESCRIBE, b"".join(
            _description(name, by_name.get(name), entry) for name, entry in entries.items()
        ))  # fmt: skip

    def workspace_bytes(self) -> int:
        """Return what workspace_bytes() asks for; 0 where it is not defined. Raises HostFailed."""
        return int.from_bytes(self._ask(_WORKSPACE)[:8], "little")

    def variables(self) -> list[tuple[str, int]]:
        """Return name and bytes of each __device__ and __constant__ variable. Raises HostFailed."""
        answer, found, at = self._ask(_VARIABLES), [], 0
        while at + 16 <= len(answer):
            size, length = struct.unpack_from("<QQ", answer, at)
            name = answer[at + 16 : at + 16 + length].decode("utf-8", "replace")
            found.append((name, size))
            at += 16 + length
        return found

    def call(self, pointers: Sequence[int], variables: int) -> tuple[list[Call], float]:
        """Call launch() and return what it asked for, and its seconds of processor time.

        Args:
            pointers: the arguments, the stream's handle the last of them.
            variables: where the first of the variables is said to lie.

        Raises:
            HostFailed: it did not return, or left records that cannot be.
        """
        began = self._processor_seconds()
        answer = self._ask(_CALL, struct.pack(f"<{1 + len(pointers)}Q", variables, *pointers))
        spent = self._processor_seconds() - began
        try:
            return read_calls(answer), spent
        except NotACall as error:
            reason = f"the process of the host half recorded what cannot be: {error}"
            raise HostFailed(Outcome.CRASHED, reason) from None

    def state(self) -> int:
        """Return a hash of all that the candidate could remember a call by. Raises HostFailed."""
        return int.from_bytes(self._ask(_STATE)[:8], "little")

    def enclose(self, ruleset_missing: str) -> None:
        """Have the process shut itself off, and note what could not be applied."""
        refusal = seccomp.KILL if seccomp.can_kill() else seccomp.refuse_with(errno.EPERM)
        try:
            rules = seccomp.rules_for_candidate(refusal, own=self._process.pid)
            program = seccomp.native_filter(rules, refusal)
        except Refused:
            program = b""
        codes = struct.unpack("<4Q", self._ask(_ENCLOSE, program))
        missing = [
            f"{step} ({os.strerror(code)})"
            for step, code in zip(_STEPS, codes, strict=True)
            if code and not (step == _STEPS[2] and ruleset_missing)
        ]
        self.missing = tuple(missing + ([ruleset_missing] if ruleset_missing else []))

    def close(self) -> None:
        """End the process."""
        self._channel.close()
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()

    def _processor_seconds(self) -> float:
        # The clock of another process (CPUCLOCK_SCHED): what it does itself cannot set it.
        return time.clock_gettime((~self._process.pid << 3) | 2)

    def _ask(self, request: int, body: bytes = b"") -> bytes:
        deadline = time.monotonic() + SECONDS
        try:
            self._channel.sendall(struct.pack("<QQ", request, len(body)) + body)
            length = int.from_bytes(self._receive(8, deadline), "little")
            if length > 2 * LARGEST_ANSWER:
                raise HostFailed(Outcome.CRASHED, "the process of the host half answers too much")
            return self._receive(length, deadline)
        except OSError:
            raise self._ended() from None

    def _receive(self, size: int, deadline: float) -> bytes:
        parts = []
        while size:
            self._channel.settimeout(POLL_SECONDS)
            try:
                part = self._channel.recv(min(size, 1 << 20))
            except TimeoutError:
                if caller_cancelled():
                    raise Cancelled from None
                if time.monotonic() > deadline:
                    reason = f"host code did not return within {SECONDS:g} s"
                    raise HostFailed(Outcome.TIMED_OUT, reason) from None
                continue
            if not part:
                raise self._ended()
            parts.append(part)
            size -= len(part)
        return b"".join(parts)

    def _ended(self) -> HostFailed:
        try:
            status = self._process.wait(timeout=5)
        except subprocess.TimeoutExpired:
            status = 0
        if status == TOUCHED_DEVICE:
            reason = (
                "host code read or wrote device memory: only kernels may touch device pointers"
            )
            return HostFailed(Outcome.CRASHED, reason)
        if status == CALLED_ELSEWHERE:
            reason = (
                "host code calls through a pointer, or by a virtual function, what is no kernel: "
                "only kernels are called by an address that is computed or read from memory"
            )
            return HostFailed(Outcome.FORBIDDEN, reason)
        if status == -signal.SIGSYS:
            reason = (
                "host code asked the operating system for what launch() may not have: a process, a "
                "thread, a socket, a timer, another process or the like"
            )
            return HostFailed(Outcome.FORBIDDEN, reason)
        return HostFailed(Outcome.CRASHED, how_it_ended(status))


@contextlib.contextmanager
def host_process(program: Path, library: Path) -> Iterator[HostProcess]:
    """Start the program for a candidate's shared object, shut off, nothing loaded yet.

    Raises:
        UserError: it does not start on this machine.
    """
    missing, ruleset = "", -1
    try:
        ruleset, lacking = landlock.open_ruleset(
            readable=[library, *library_folders()], writable=(), devices=()
        )
        missing = "; ".join(lacking)
    except Refused as refused:
        missing = f"a file system of its own ({refused})"
    ours, theirs = socket.socketpair()
    kept = [theirs.fileno(), *([ruleset] if ruleset >= 0 else [])]
    try:
        with theirs:
            process = subprocess.Popen(
                [str(program), str(library), str(theirs.fileno()), str(ruleset)],
                cwd="/", env={}, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL, pass_fds=kept, start_new_session=True,
            )  # fmt: skip
    except OSError as error:
        ours.close()
        raise UserError(f"{program} does not start: {error}") from error
    finally:
        if ruleset >= 0:
            os.close(ruleset)
    with ended_with_us(process.pid):
        found = HostProcess(process, ours)
        try:
            found.enclose(missing)
            yield found
        finally:
            found.close()


def _description(name: str, resources: KernelResources | None, entry: Entry) -> bytes:
    registers = resources.registers if resources else 32
    static = resources.static_shared_bytes if resources else 0
    sizes = entry.parameters
    numbers = (registers, static, entry.max_threads, len(sizes), *sizes)
    text = struct.pack(f"<{len(numbers)}I", *numbers) + name.encode() + b"\0"
    return text + b"\0" * (-len(text) % 8)
