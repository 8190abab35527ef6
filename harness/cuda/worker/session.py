"""The GPU inside the worker: its stream, its errors, its clock, and a cache to be flushed."""

from __future__ import annotations

import ctypes
import re
import time
from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import asdict
from pathlib import Path
from typing import Any, NamedTuple, Protocol

import torch

from ...gpus import Limits
from ...host.properties import GpuProperties
from ..launching.candidate import DriverProgram, Fault, LoadedProgram, Program
from ..launching.crowd import Crowd
from ..launching.driver import Driver

FLUSH_FACTOR = 4
"""The flush writes this many times the L2, so that also a cache that favours old lines holds none
of them, and then reads the first half: written lines would otherwise be pushed out by what is timed
and at its cost (5 us of 50 on an H200). Together about 120 us there, in which the host has time to
enqueue what is timed; where that is too little, more of them come before it."""

_KINDS = {
    2: "invalid_launch",  # cudaErrorMemoryAllocation
    98: "invalid_launch",  # cudaErrorInvalidDeviceFunction
    209: "invalid_launch",  # cudaErrorNoKernelImageForDevice
    700: "out_of_bounds",  # cudaErrorIllegalAddress
    701: "invalid_launch",  # cudaErrorLaunchOutOfResources
    702: "timed_out",  # cudaErrorLaunchTimeout
    710: "assert",  # cudaErrorAssert
    715: "trap",  # cudaErrorIllegalInstruction
    716: "misaligned",  # cudaErrorMisalignedAddress
    717: "out_of_bounds",  # cudaErrorInvalidAddressSpace
    718: "trap",  # cudaErrorInvalidPc
    719: "trap",  # cudaErrorLaunchFailure: __trap() among others
}

_NOT_READY = 600
"""What asking an unfinished event leaves behind: no error."""

class Clocked(NamedTuple):
    """A call that was timed."""

    microseconds: float
    """Between the events on either side of it."""
    fault: Fault | None = None
    late: bool = False
    """Whether the GPU was through with what came before when the host had not enqueued all of the
    call: it may have waited for the host since."""
    host_microseconds: float = 0.0
    """That enqueuing took."""


class GpuSession(Protocol):
    """What verification and timing need of the machine they run on."""

    device: torch.device
    name: str
    """The GPU and the PyTorch that computes on it."""

    @property
    def crowds(self) -> int:
        """How often there truly was little room where `crowded` was asked for."""
        ...

    def load(self, program: Program) -> LoadedProgram:
        """Load a candidate, to be called on the one stream. Raises NotLoaded."""
        ...

    def finish_stream(self) -> Fault | None:
        """Wait for the candidate's stream; return what went wrong on the GPU."""
        ...

    def finish_device(self) -> Fault | None:
        """Wait for everything on the GPU; return what went wrong."""
        ...

    def crowded(self, threads: int) -> AbstractContextManager[Callable[[], None]]:
        """Leave room on the GPU for one block of so many threads, for a while: see `Crowd`."""
        ...

    def is_broken(self) -> bool:
        """Whether the context is lost, so that this process is of no more use."""
        ...

    def free_bytes(self) -> int:
        """Memory that can still be allocated."""
        ...

    def clock(self, call: Callable[[], Any], ahead: int = 1) -> Clocked:
        """Flush the L2, `ahead` times, run a call on the stream, and wait; return its time."""
        ...

    def copy_bandwidth(self) -> float:
        """Return bytes per second (read plus written) of a large copy on the device, best of 5."""
        ...


class CudaSession:
    """The one GPU that this process sees."""

    def __init__(self, replay: Path) -> None:
        """Open the context; `replay` is replay.c, compiled.

        Raises RuntimeError, OSError or DriverError where CUDA does not work here.
        """
        self.device = torch.device("cuda", 0)
        torch.zeros(1, device=self.device)
        self.properties = torch.cuda.get_device_properties(self.device)
        self.name = (
            f"{self.properties.name} {getattr(self.properties, 'uuid', '')}, "
            f"PyTorch {torch.__version__}, CUDA {torch.version.cuda}"
        )
        self.driver = Driver(replay)
        self._runtime = ctypes.CDLL(str(loaded_runtime()))
        self._runtime.cudaGetErrorName.restype = ctypes.c_char_p
        self._runtime.cudaGetErrorString.restype = ctypes.c_char_p
        self._stream = torch.cuda.Stream(self.device)
        self.stream = int(self._stream.cuda_stream)
        self._scrap = torch.empty(
            FLUSH_FACTOR * max(self.properties.L2_cache_size, 32 << 20),
            dtype=torch.uint8, device=self.device,
        )  # fmt: skip
        self._reread = self._scrap[: self._scrap.numel() // 2].view(torch.float32)
        self._sum = torch.empty((), device=self.device)
        self._begin = torch.cuda.Event(enable_timing=True)
        self._end = torch.cuda.Event(enable_timing=True)
        self._copy_bandwidth = 0.0
        ask = self._attribute
        self._crowd = Crowd(self.driver, sms=ask(16), threads=ask(39), shared_bytes=ask(97))
        self.clock(lambda: None)

    @property
    def crowds(self) -> int:
        """See GpuSession."""
        return self._crowd.times

    def load(self, program: Program) -> LoadedProgram:
        """See GpuSession."""
        return DriverProgram(self.driver, self.stream, program)

    def finish_stream(self) -> Fault | None:
        """See GpuSession."""
        return self._fault(self._runtime.cudaStreamSynchronize(ctypes.c_void_p(self.stream)))

    def finish_device(self) -> Fault | None:
        """See GpuSession."""
        return self._fault(self._runtime.cudaDeviceSynchronize())

    def crowded(self, threads: int) -> AbstractContextManager[Callable[[], None]]:
        """See GpuSession."""
        return self._crowd.leaving_room_for(threads)

    def is_broken(self) -> bool:
        """See GpuSession."""
        self._runtime.cudaGetLastError()
        return bool(self._runtime.cudaDeviceSynchronize() != 0)

    def free_bytes(self) -> int:
        """See GpuSession."""
        torch.cuda.empty_cache()
        return int(torch.cuda.mem_get_info(self.device)[0])

    def clock(self, call: Callable[[], Any], ahead: int = 1) -> Clocked:
        """See GpuSession."""
        with torch.cuda.stream(self._stream):
            for _ in range(ahead):
                self._scrap.zero_()
            torch.sum(self._reread, dim=0, out=self._sum)
            self._begin.record()
            began = time.perf_counter_ns()
            call()
            host = (time.perf_counter_ns() - began) / 1e3
            self._end.record()
        late = self._has_begun()
        fault = self.finish_stream()
        if fault is not None:
            return Clocked(0.0, fault)
        return Clocked(1000.0 * float(self._begin.elapsed_time(self._end)), None, late, host)

    def _has_begun(self) -> bool:
        try:
            return bool(self._begin.query())
        except RuntimeError:  # The candidate has failed already: who waits for it finds how.
            return False

    def told_to_host_code(self) -> dict[str, Any]:
        """Return what a host half is told of this GPU: the fields of GpuProperties."""
        ask = self._attribute
        limits = Limits(
            capability=(ask(75), ask(76)), warps=ask(39) // 32, blocks=ask(106),
            shared_bytes=ask(81), shared_bytes_optin=ask(97), shared_default=ask(8),
            shared_reserved=ask(111), registers=ask(82),
            # Nobody asks a real GPU how its L1 may be divided.
            shared_carveouts=(), l1_bytes=0,
        )  # fmt: skip
        properties = GpuProperties(
            name=self.properties.name, limits=limits, sms=ask(16), clock_khz=ask(13),
            l2_bytes=self.properties.L2_cache_size, memory_bytes=self.properties.total_memory,
        )  # fmt: skip
        return asdict(properties)

    def _attribute(self, number: int) -> int:
        """Return an attribute of cudaDeviceAttr."""
        value = ctypes.c_int()
        self._runtime.cudaDeviceGetAttribute(ctypes.byref(value), number, 0)
        return value.value

    def copy_bandwidth(self) -> float:
        """See GpuSession; measured once."""
        if not self._copy_bandwidth:
            source = torch.empty(
                min(1 << 29, self.free_bytes() // 4), dtype=torch.uint8, device=self.device
            )
            target = torch.empty_like(source)
            times = [self.clock(lambda: target.copy_(source)).microseconds for _ in range(5)]
            self._copy_bandwidth = 2e6 * float(source.numel()) / min(times)
        return self._copy_bandwidth

    def bytes_outside_pytorch(self) -> int:
        """Return how much of the GPU's memory is in use, this process's PyTorch left out."""
        torch.cuda.empty_cache()
        free, total = torch.cuda.mem_get_info(self.device)
        return int(total - free - torch.cuda.memory_reserved(self.device))

    def _fault(self, code: int) -> Fault | None:
        """Return a runtime's error code as a fault; the error a launch left counts too."""
        last = self._runtime.cudaGetLastError()
        code = code or last
        if code in (0, _NOT_READY):
            return None
        name = self._runtime.cudaGetErrorName(code).decode()
        words = self._runtime.cudaGetErrorString(code).decode()
        return _KINDS.get(code, "cuda_error"), f"{words} ({name})"


def loaded_runtime(maps: Path = Path("/proc/self/maps")) -> Path:
    """Return the CUDA runtime that this process has loaded. Raises OSError where it has none."""
    for line in maps.read_text().splitlines():
        path = line.split(maxsplit=5)[-1]
        if re.search(r"/libcudart[^/]*\.so[.\d]*$", path):
            return Path(path)
    raise OSError("this PyTorch does not load the CUDA runtime as a shared library")
