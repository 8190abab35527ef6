"""The Python side of the stand-in CUDA runtime: an arena of device memory, and launches."""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from ...build.launch_contract import build_contract_library, read_faults
from ...gpus import Gpu

GUARD_BYTES = 4096
GUARD_VALUE = 0xA5
STREAM = 0x5BEA0
"""The stream handle given to `launch`: any other stream is refused."""
HOST_TOUCHED_DEVICE = 77
"""Exit status of a process whose host code read or wrote device memory (runtime/arena.c)."""

LaunchCallback = Callable[
    [str, tuple[int, int, int], tuple[int, int, int], int, Callable[[Sequence[int]], list[bytes]]],
    bool,
]
"""Kernel, grid, block, dynamic shared bytes, and a reader of the argument bytes by their sizes."""

_CALLBACK = ctypes.CFUNCTYPE(
    ctypes.c_int, ctypes.c_char_p, ctypes.POINTER(ctypes.c_uint), ctypes.POINTER(ctypes.c_uint),
    ctypes.c_uint64, ctypes.POINTER(ctypes.c_void_p),
)  # fmt: skip


class _Properties(ctypes.Structure):
    """kb_gpu of runtime/runtime.h."""

    _fields_ = [
        ("name", ctypes.c_char * 256),
        *[(name, ctypes.c_int32) for name in (
            "major", "minor", "sms", "warps", "blocks", "shared_per_sm", "shared_optin",
            "shared_default", "shared_reserved", "shared_unit", "registers", "register_unit",
            "warp_unit", "clock_khz")],
        ("l2_bytes", ctypes.c_int64),
        ("memory_bytes", ctypes.c_int64),
    ]  # fmt: skip


class _Transfer(ctypes.Structure):
    """kb_transfer of runtime/transfers.c."""

    _fields_ = [
        ("is_copy", ctypes.c_int32),
        ("value", ctypes.c_int32),
        *[(name, ctypes.c_uint64) for name in (
            "source", "source_pitch", "target", "target_pitch", "width", "height")],
    ]  # fmt: skip


_TRANSFER_CALLBACK = ctypes.CFUNCTYPE(None, ctypes.POINTER(_Transfer))


@dataclass(frozen=True)
class Transfer:
    """One asynchronous copy or fill: `height` rows of `width` bytes, a pitch apart."""

    is_copy: bool
    value: int
    """Byte that a fill writes."""
    source: int
    """0 where it is no device memory."""
    source_pitch: int
    target: int
    target_pitch: int
    width: int
    height: int


@dataclass(frozen=True)
class Allocation:
    """One buffer of the arena: [address, address + size)."""

    name: str
    address: int
    size: int


def build_runtime(
    cuda_headers: Path, *, name: str = "cuda-runtime", more: Sequence[Path] = ()
) -> Path:
    """Compile the stand-in runtime, with `more` C files, and return the library's path.

    Raises UserError where no host compiler works.
    """
    sources = sorted((Path(__file__).resolve().parent.parent / "runtime").glob("*.c"))
    return build_contract_library(name, [*sources, *more], cuda_headers)


class NoAddressSpace(MemoryError):
    """The simulated GPU's memory cannot be reserved: a limit of this machine, not the candidate."""


class Runtime:
    """Loads the stand-in runtime and one candidate into this process. One per process."""

    def __init__(
        self,
        library: Path,
        gpu: Gpu,
        on_launch: LaunchCallback,
        stream: int = STREAM,
    ) -> None:
        self.library = ctypes.CDLL(str(library), mode=ctypes.RTLD_GLOBAL)
        self.library.kb_open.restype = ctypes.c_void_p
        self.library.kb_faults.restype = ctypes.c_char_p
        self._on_launch = on_launch
        self._stream = stream
        self._callback = _CALLBACK(self._launched)
        self.error: BaseException | None = None
        """What a launch raised inside the callback, where nothing can propagate."""
        self.cooperative = False
        """Whether the launch being handed over is a cooperative one."""
        # Only address space: pages are backed where touched.
        arena_bytes = gpu.memory_bytes // GUARD_BYTES * GUARD_BYTES
        base = self.library.kb_open(
            ctypes.byref(_properties(gpu)), ctypes.c_uint64(arena_bytes), self._callback,
            ctypes.c_void_p(stream or None),
        )  # fmt: skip
        if not base:
            raise NoAddressSpace(f"cannot reserve {arena_bytes} bytes of address space")
        self.base, self.arena_bytes = int(base), arena_bytes
        bytes_type = ctypes.c_uint8 * arena_bytes
        self.memory: npt.NDArray[np.uint8] = np.ctypeslib.as_array(
            bytes_type.from_address(self.base)
        )
        self._next = self.base + GUARD_BYTES
        self.allocations: list[Allocation] = []
        self._candidate: ctypes.CDLL | None = None

    # -- memory

    def allocate(self, name: str, size: int) -> Allocation:
        """Reserve a page-aligned buffer with a guard band on both sides."""
        allocation = Allocation(name, self._next, size)
        end = self._next + size
        self._next = -(-(end + GUARD_BYTES) // GUARD_BYTES) * GUARD_BYTES
        if self._next > self.base + self.arena_bytes:
            raise MemoryError("the simulated GPU's memory is too small for the task's tensors")
        self.allocations.append(allocation)
        count = len(self.allocations)
        starts = (ctypes.c_uint64 * count)(*(a.address for a in self.allocations))
        ends = (ctypes.c_uint64 * count)(*(a.address + a.size for a in self.allocations))
        self.library.kb_set_allocations(starts, ends, count)
        return allocation

    def view(self, allocation: Allocation) -> npt.NDArray[np.uint8]:
        """Return the bytes of a buffer, writable in place."""
        start = allocation.address - self.base
        return self.memory[start : start + allocation.size]

    def paint_guards(self) -> None:
        """Fill every guard band with the guard value."""
        for start, end in self._guards():
            self.memory[start:end] = GUARD_VALUE

    def broken_guards(self) -> list[str]:
        """Return, for each buffer whose guard band was written, where the first write fell."""
        found = []
        for index, (start, end) in enumerate(self._guards()):
            wrong = np.flatnonzero(self.memory[start:end] != GUARD_VALUE)
            if len(wrong) == 0:
                continue
            if index == 0:
                before = self.allocations[0]
                distance = before.address - self.base - start - int(wrong[-1])
                found.append(f"{distance} bytes before the start of {before.name}")
            else:
                found.append(f"{int(wrong[0])} bytes past the end of "
                             f"{self.allocations[index - 1].name}")  # fmt: skip
        return found

    def account_transfers(
        self, on_transfer: Callable[[Transfer], None], *, in_place_of_moving: bool = True
    ) -> None:
        """Call `on_transfer` for each copy and fill.

        Large ones then move as little as possible, unless they are only to be told.
        """

        def transferred(pointer: Any) -> None:
            told = pointer.contents
            try:
                on_transfer(
                    Transfer(
                        bool(told.is_copy), told.value, told.source, told.source_pitch,
                        told.target, told.target_pitch, told.width, told.height,
                    )
                )  # fmt: skip
            except BaseException as error:  # as in _launched
                self.error = error

        self._transfer_callback = _TRANSFER_CALLBACK(transferred)
        self.library.kb_account_transfers(self._transfer_callback, int(in_place_of_moving))

    def back_with_tile(self, allocation: Allocation, descriptor: int, tile_bytes: int) -> None:
        """Let a buffer repeat the first `tile_bytes` of a file, copied only where written.

        A tile as long as the buffer, or longer, maps the file as it is.
        """
        page_end = -(-allocation.size // GUARD_BYTES) * GUARD_BYTES
        if self.library.kb_map_tile(
            ctypes.c_uint64(allocation.address), ctypes.c_uint64(page_end), descriptor,
            ctypes.c_uint64(tile_bytes),
        ):  # fmt: skip
            raise MemoryError(f"cannot map {allocation.name}")

    def _guards(self) -> list[tuple[int, int]]:
        edges = [0]
        for allocation in self.allocations:
            edges += [allocation.address - self.base, allocation.address - self.base
                      + allocation.size]  # fmt: skip
        edges.append(self._next - self.base)
        return list(zip(edges[::2], edges[1::2], strict=True))

    # -- the candidate

    def load(self, candidate: Path) -> None:
        """Load the candidate's host half; its registrations run now."""
        self._candidate = ctypes.CDLL(str(candidate))

    def describe_kernel(
        self, name: str, registers: int, static_shared: int, max_threads: int
    ) -> None:
        """Tell the runtime what ptxas says of a kernel."""
        self.library.kb_set_kernel(name.encode(), registers, static_shared, max_threads)

    def place_variable(self, name: str, address: int) -> None:
        """Tell the runtime where a __device__ or __constant__ variable lies."""
        self.library.kb_set_variable(name.encode(), ctypes.c_void_p(address))

    def workspace_bytes(self) -> int:
        """Return what the candidate's workspace_bytes() asks for; 0 where it defines none."""
        assert self._candidate is not None
        try:
            function = self._candidate.workspace_bytes
        except AttributeError:
            return 0
        function.restype = ctypes.c_size_t
        return int(function())

    def call(self, addresses: Sequence[int], workspace: int) -> list[tuple[str, str]]:
        """Call launch() with device addresses and return the faults (kind, message) it met."""
        assert self._candidate is not None
        self.library.kb_clear_faults()
        arguments = [ctypes.c_void_p(address or None) for address in addresses]
        function = self._candidate.launch
        function.restype = None
        self.library.kb_protect(1)
        function(*arguments, ctypes.c_void_p(workspace or None), ctypes.c_void_p(self._stream))
        self.library.kb_protect(0)
        if self.error is not None:
            raise self.error
        return read_faults(self.library.kb_faults())

    def _launched(
        self, name: bytes, grid: Sequence[int], block: Sequence[int], shared: int,
        arguments: Sequence[int],
    ) -> int:  # fmt: skip
        def read(sizes: Sequence[int]) -> list[bytes]:
            return [ctypes.string_at(arguments[i], size) for i, size in enumerate(sizes)]

        self.cooperative = bool(self.library.kb_is_cooperative())
        try:
            ok = self._on_launch(
                name.decode(), (grid[0], grid[1], grid[2]), (block[0], block[1], block[2]),
                shared, read,
            )  # fmt: skip
        except BaseException as error:  # carried over the C frames and raised by call()
            self.error = error
            return 1
        return 0 if ok else 1


def _properties(gpu: Gpu) -> _Properties:
    limits = gpu.limits
    return _Properties(
        gpu.full_name.encode(), limits.capability[0], limits.capability[1], gpu.sms, limits.warps,
        limits.blocks, limits.shared_bytes, limits.shared_bytes_optin, limits.shared_default,
        limits.shared_reserved, limits.shared_unit, limits.registers, limits.register_unit,
        limits.warp_unit, int(gpu.clock_ghz * 1e6), gpu.l2_bytes, gpu.memory_bytes,
    )  # fmt: skip
