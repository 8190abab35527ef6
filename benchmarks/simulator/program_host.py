"""A whole CUDA program in this process: the stand-in runtime, and its calls as they are made."""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from kernelblaster.harness import host
from kernelblaster.harness.build.native import build_native
from kernelblaster.harness.gpus import Gpu
from kernelblaster.harness.host.calls import Launch, Transfer, read_call
from kernelblaster.harness.host.entries import Entry
from kernelblaster.harness.host.properties import native, properties_of
from kernelblaster.harness.records.builds import KernelResources
from kernelblaster.harness.simt.ptx.records import Module
from kernelblaster.harness.simt.run.arena import Arena
from kernelblaster.harness.simt.run.candidate import place_variables

_SINK = ctypes.CFUNCTYPE(None, ctypes.POINTER(ctypes.c_uint8), ctypes.c_uint64)
_ALLOCATOR = ctypes.CFUNCTYPE(ctypes.c_uint64, ctypes.c_uint64)


def build_runtime(cuda_headers: Path, more: Sequence[Path]) -> Path:
    """Compile the stand-in runtime with what whole programs need beside; return the library."""
    folder = Path(str(host.__file__)).parent / "runtime"
    return build_native(
        "program-runtime", [*sorted(folder.glob("*.c")), *more],
        ["-std=gnu11", f"-I{cuda_headers}"], tune=False,
    )  # fmt: skip


class ProgramHost:
    """The runtime, opened: launches are handed on, copies and fills are made, as they come."""

    def __init__(self, library: Path, gpu: Gpu, on_launch: Callable[[Launch], None]) -> None:
        self.arena = Arena(gpu.memory_bytes)
        self.error: BaseException | None = None
        """What `on_launch` raised, where nothing can propagate."""
        self.library = ctypes.CDLL(str(library), mode=ctypes.RTLD_GLOBAL)
        self._on_launch = on_launch
        self._kept: list[Any] = [_SINK(self._called), _ALLOCATOR(self._allocate)]
        end = self.arena.base + self.arena.arena_bytes
        opened = native(properties_of(gpu), device=(self.arena.base, end))
        self.library.kb_open(ctypes.byref(opened), self._kept[0])
        self.library.kb_set_allocator(self._kept[1])

    def load(
        self,
        program: Path,
        module: Module,
        resources: Mapping[str, KernelResources],
        entries: Mapping[str, Entry],
    ) -> dict[str, int]:
        """Load the host half; return where the module's variables lie. Raises OSError."""
        ctypes.CDLL(str(program))
        for name, entry in entries.items():
            known = resources.get(name)
            sizes = (ctypes.c_uint32 * len(entry.parameters))(*entry.parameters)
            self.library.kb_describe_kernel(
                name.encode(), known.registers if known else 32,
                known.static_shared_bytes if known else 0, entry.max_threads, len(sizes), sizes,
            )  # fmt: skip
        addresses = place_variables(module, self.arena)
        for name, address in addresses.items():
            self.library.kb_place_variable(name.encode(), ctypes.c_uint64(address))
        return addresses

    def _allocate(self, size: int) -> int:
        try:
            return self.arena.allocate("buffer", max(1, size)).address
        except MemoryError:
            return 0

    def _called(self, record: Any, size: int) -> None:
        try:
            call = read_call(ctypes.string_at(record, size))
            if isinstance(call, Launch):
                self._on_launch(call)
            elif isinstance(call, Transfer):
                _make(call)
        except BaseException as error:  # carried over the C frames
            self.error = error


def _make(call: Transfer) -> None:
    for row in range(call.height):
        target = call.target + row * call.target_pitch
        if call.copy:
            ctypes.memmove(target, call.source + row * call.source_pitch, call.width)
        else:
            ctypes.memset(target, call.value, call.width)
