"""A machine for tests of the GPU worker's parts: the same code, the memory and time of the host."""

from __future__ import annotations

import ctypes
import secrets
import subprocess
import time
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import torch

from kernelblaster.harness.cuda.launching.buffers import Buffers
from kernelblaster.harness.cuda.launching.candidate import Fault, Finish, Launch, Program, Room
from kernelblaster.harness.cuda.worker.session import Clocked
from kernelblaster.harness.host.plan import Plan

STREAM = 0x5EED


class HostProgram:
    """A plain C library in place of machine code: launch() itself is the kernel."""

    def __init__(self, program: Program) -> None:
        # A name loaded before would give back the earlier object with its static variables.
        copy = program.image.with_name(f"{secrets.token_hex(8)}.so")
        copy.write_bytes(program.image.read_bytes())
        self._library = ctypes.CDLL(str(copy))
        self._library.launch.restype = None
        asked = getattr(self._library, "workspace_bytes", None)
        if asked is not None:
            asked.restype = ctypes.c_size_t
        self.workspace_bytes = asked() if asked is not None else 0
        self.launch_count = 0

    def prepare(self, buffers: Buffers) -> HostCall:
        return HostCall(self._library.launch, buffers)

    prepare_timed = prepare

    def close(self) -> None:
        pass


class HostCall:
    def __init__(self, launch: Any, buffers: Buffers) -> None:
        places = buffers.addresses()
        pointers = [places[spec.name] for spec in buffers.tensors] + [places.get("workspace", 0)]
        self._launch = launch
        self._arguments = [ctypes.c_void_p(pointer) for pointer in (*pointers, STREAM)]

    def __call__(self) -> None:
        self._launch(*self._arguments)

    def crowd(self, launch: int, room: Room, finish: Finish) -> Fault | None:
        with room(1):
            self()
            return finish()

    def faults(self) -> list[Fault]:
        return []

    def launches(self) -> list[Launch]:
        return []


class HostMachine:
    """Candidates are plain C here, and a "stream" is only a number."""

    def __init__(self) -> None:
        self.device = torch.device("cpu")
        self.name = "the host"
        self.properties: Any = SimpleNamespace(total_memory=4 << 30)
        self.others = 0
        """Bytes that other processes hold."""
        self.crowds = 0

    def load(self, program: Program) -> HostProgram:
        return HostProgram(program)

    def finish_stream(self) -> Fault | None:
        return None

    def finish_device(self) -> Fault | None:
        return None

    def crowded(self, threads: int) -> AbstractContextManager[None]:
        return nullcontext()

    def is_broken(self) -> bool:
        return False

    def free_bytes(self) -> int:
        return 4 << 30

    def bytes_outside_pytorch(self) -> int:
        return self.others

    def copy_bandwidth(self) -> float:
        return 1e12

    def clock(self, call: Callable[[], Any], ahead: int = 1) -> Clocked:
        began = time.perf_counter()
        call()
        return Clocked(1e6 * (time.perf_counter() - began))


def compile_c(text: str, folder: Path) -> Program:
    """Compile a candidate that is plain C."""
    source, library = folder / "candidate.c", folder / "candidate.so"
    source.write_text(text)
    command = ["cc", "-O1", "-shared", "-fPIC", str(source), "-o", str(library), "-lm"]
    subprocess.run(command, check=True)
    return Program(library, Plan((), 0, {}, 0.0))
