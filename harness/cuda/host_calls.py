"""Loads a candidate's host half with its CUDA calls bound to the checks of host_calls.c."""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NamedTuple, TypeVar

from ..build.launch_contract import read_faults
from ..isolation.candidate_thread import Runner, run_here
from ..vetting.elf import DYNSYM, read_sections, read_symbols, require_elf

Result = TypeVar("Result")

INTERCEPTED = frozenset(
    """
    __cudaRegisterFunction __cudaGetKernel __cudaLaunchKernel __cudaLaunchKernel_ptsz
    cudaLaunchKernel cudaLaunchKernel_ptsz cudaLaunchKernelExC cudaLaunchKernelExC_ptsz
    cudaLaunchCooperativeKernel cudaLaunchCooperativeKernel_ptsz
    cudaMemcpyAsync cudaMemcpy2DAsync cudaMemsetAsync cudaMemset2DAsync
    cudaMemcpyToSymbolAsync cudaGetSymbolAddress
    """.split()
)
"""Calls that host_calls.c answers, under names that start with "kuda" instead of "cuda"."""


class Launch(NamedTuple):
    """One kernel launch that the candidate made."""

    kernel: str
    """Mangled name."""
    grid: tuple[int, int, int]
    block: tuple[int, int, int]
    shared_bytes: int
    microseconds: float | None
    """Between events on either side of the launch; None where that was not asked for."""


class _Record(ctypes.Structure):
    _fields_ = [
        ("kernel", ctypes.c_char_p),
        ("grid", ctypes.c_uint * 3),
        ("block", ctypes.c_uint * 3),
        ("shared_bytes", ctypes.c_uint64),
        ("microseconds", ctypes.c_float),
    ]


class HostCalls:
    """host_calls.c, loaded over a CUDA runtime that this process already holds.

    Raises OSError where either library cannot be loaded.
    """

    def __init__(self, library: Path, runtime: Path) -> None:
        self.runner: Runner = run_here
        """Calls whatever may enter a candidate's host code."""
        # Global: the candidate's undefined symbols are looked up there.
        self.runtime = ctypes.CDLL(str(runtime), mode=ctypes.RTLD_GLOBAL)
        self._calls = ctypes.CDLL(str(library), mode=ctypes.RTLD_GLOBAL)
        self._calls.calls_end.restype = ctypes.c_char_p
        self._calls.calls_launch.restype = ctypes.POINTER(_Record)
        if self._calls.calls_open(str(runtime).encode()) != 0:
            raise OSError(f"{runtime} is not loaded")

    def run(self, call: Callable[[], Result]) -> Result:
        """Make a call that enters host code, where host code is to run.

        The runtime keeps its last error for each thread: what looks for a launch's error belongs
        into the same call. What came before is forgotten.
        """

        def afresh() -> Result:
            self.runtime.cudaGetLastError()
            return call()

        return self.runner(afresh)

    def begin(self, stream: int, ranges: Sequence[tuple[int, int]], *, timed: bool) -> None:
        """Expect launches on `stream`, copies within `ranges` (start, end addresses)."""
        array = ctypes.c_uint64 * len(ranges)
        self._calls.calls_begin(
            ctypes.c_void_p(stream),
            array(*(start for start, _ in ranges)),
            array(*(end for _, end in ranges)),
            len(ranges),
            int(timed),
        )

    def end(self) -> list[tuple[str, str]]:
        """Return the faults (kind, message) since `begin`."""
        return read_faults(self._calls.calls_end())

    def launches(self) -> list[Launch]:
        """Return the launches since `begin`, in order; the stream must have finished."""
        found = []
        for index in range(self._calls.calls_launches()):
            pointer = self._calls.calls_launch(index)
            if not pointer:
                break
            record = pointer.contents
            grid, block = record.grid, record.block
            found.append(
                Launch(
                    kernel=record.kernel.decode("utf-8", "replace"),
                    grid=(grid[0], grid[1], grid[2]),
                    block=(block[0], block[1], block[2]),
                    shared_bytes=record.shared_bytes,
                    microseconds=record.microseconds if record.microseconds >= 0 else None,
                )
            )
        return found

    def forget(self) -> None:
        """Drop what is known of an unloaded candidate's kernels."""
        self._calls.calls_forget()


def bind_to_checks(library: bytes) -> bytes:
    """Return a shared object whose intercepted undefined symbols have the checks' names.

    Only characters of the dynamic string table change: undefined symbols are in no hash table, and
    the linker shares the end of a string only between names that are both intercepted. Raises
    ValueError where the object is no 64-bit little-endian ELF file.
    """
    require_elf(library)
    data = bytearray(library)
    sections = read_sections(library)
    for table in sections:
        if table.kind != DYNSYM:
            continue
        # Read from the original: two symbols may share the characters that change.
        for symbol in read_symbols(library, sections, table):
            if symbol.section == 0 and symbol.name in INTERCEPTED:
                data[symbol.name_at + symbol.name.index("cuda")] = ord("k")
    return bytes(data)
