"""A machine for tests of the GPU worker's parts: the same code, the memory and time of the host."""

from __future__ import annotations

import subprocess
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

from kernelblaster.harness.build.toolchain import find_toolchain
from kernelblaster.harness.cuda.client import host_calls_library
from kernelblaster.harness.cuda.host_calls import HostCalls
from kernelblaster.harness.cuda.session import Fault

STREAM = 0x5EED


class HostMachine:
    """Candidates are plain C here, and a "stream" is only a number."""

    def __init__(self) -> None:
        self.device = torch.device("cpu")
        self.stream = STREAM
        self.calls = HostCalls(host_calls_library(), runtime_of_toolchain())
        self.properties: Any = None
        self.background: Callable[[], None] | None = None
        """What another stream would do until the whole device has finished."""

    def finish_stream(self) -> Fault | None:
        return None

    def finish_device(self) -> Fault | None:
        if self.background is not None:
            self.background()
        return None

    def is_broken(self) -> bool:
        return False

    def free_bytes(self) -> int:
        return 4 << 30

    def leaked_bytes(self) -> int:
        return 0

    def clock(self, call: Callable[[], Any]) -> tuple[float, Fault | None]:
        began = time.perf_counter()
        call()
        return 1e6 * (time.perf_counter() - began), None


def runtime_of_toolchain() -> Path:
    """Return the CUDA runtime beside the compiler: it loads without a driver."""
    root = Path(find_toolchain().nvcc).resolve().parent.parent
    return next(path for place in ("lib", "lib64") for path in (root / place).glob("libcudart.so*"))


def compile_c(text: str, folder: Path) -> Path:
    """Compile a candidate that is plain C."""
    source, library = folder / "candidate.c", folder / "candidate.so"
    source.write_text(text)
    command = ["cc", "-O1", "-shared", "-fPIC", str(source), "-o", str(library), "-lm"]
    subprocess.run(command, check=True)
    return library
