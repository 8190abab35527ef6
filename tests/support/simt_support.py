"""Helpers of the simulated GPU's tests: compile CUDA to PTX, and run kernels on NumPy arrays."""

from __future__ import annotations

import functools
import hashlib
import os
import shutil
import struct
import subprocess
import sysconfig
import tempfile
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray

from kernelblaster.harness.simt.decode.operands import function_address
from kernelblaster.harness.simt.ptx.parser import Module, parse
from kernelblaster.harness.simt.run.core import Launch, Memory, Result, run

GUARD = 512


def nvcc() -> str:
    """Return nvcc of the PyPI packages, else of PATH; skip the test when there is none."""
    root = Path(sysconfig.get_paths()["purelib"], "nvidia")
    for found in sorted(root.glob("cu*/bin/nvcc"), reverse=True):
        return str(found)
    found_on_path = shutil.which("nvcc")
    if not found_on_path:
        pytest.skip("no nvcc")
    return found_on_path


@functools.cache
def compile_ptx(source: str, arch: str = "sm_90") -> Module:
    """Compile CUDA text to a module, once for the test session and the temporary folder."""
    return parse(compile_ptx_text(source, arch).read_text())


def compile_ptx_text(source: str, arch: str = "sm_90") -> Path:
    """Compile CUDA text to a PTX file that stays in the temporary folder."""
    key = hashlib.sha256(f"{arch}{source}".encode()).hexdigest()[:20]
    folder = Path(tempfile.gettempdir(), f"simt-tests-{os.getuid()}")
    folder.mkdir(exist_ok=True)
    path = folder / f"{key}.ptx"
    if not path.exists():
        with tempfile.TemporaryDirectory(dir=folder) as work:
            kernel = Path(work, "kernel.cu")
            kernel.write_text(source)
            command = [nvcc(), f"-arch={arch}", "-std=c++17", "-lineinfo", "-O3", "-ptx",
                       str(kernel), "-o", str(kernel.with_suffix(".ptx"))]  # fmt: skip
            subprocess.run(command, check=True, capture_output=True, text=True)
            os.replace(kernel.with_suffix(".ptx"), path)
    return path


class Arena:
    """Device memory: arrays at places of their own with guard bands between."""

    def __init__(self, size: int = 1 << 24) -> None:
        self._bytes = np.zeros(size + 128, dtype=np.uint8)
        self.offset = -self._bytes.ctypes.data % 128
        self.base = self._bytes.ctypes.data + self.offset
        self.top = 0
        self.ranges: list[tuple[int, int]] = []
        self.initialised = np.zeros(size // 4 + 1, dtype=np.uint8)

    def place(self, array: NDArray[np.generic], initialised: bool = True) -> int:
        """Copy an array to the arena and return its address."""
        start = -(-(self.top + GUARD) // 256) * 256
        data = np.ascontiguousarray(array).view(np.uint8).ravel()
        self._bytes[self.offset + start : self.offset + start + data.size] = data
        self.top = start + data.size
        address = self.base + start
        self.ranges.append((address, address + data.size))
        if initialised:
            self.memory().mark_initialised(address, data.size)
        return address

    def read(self, address: int, like: NDArray[np.generic]) -> NDArray[np.generic]:
        """Return a copy of what lies at an address."""
        start = self.offset + address - self.base
        data = self._bytes[start : start + like.nbytes].copy()
        return data.view(like.dtype).reshape(like.shape)

    def write(self, address: int, data: bytes) -> None:
        """Overwrite bytes at an address."""
        start = self.offset + address - self.base
        self._bytes[start : start + len(data)] = np.frombuffer(data, dtype=np.uint8)

    def memory(self) -> Memory:
        """Describe the arena to the core."""
        starts = [start for start, _ in self.ranges]
        ends = [end for _, end in self.ranges]
        return Memory(self.base, self.top + GUARD, starts, ends, self.initialised)


def argument_bytes(value: object) -> bytes:
    """Pack a scalar argument: int as 32 bits, float as f32, NumPy scalars as they are."""
    if isinstance(value, np.generic):
        return value.tobytes()
    if isinstance(value, float):
        return struct.pack("<f", value)
    assert isinstance(value, int)
    return struct.pack("<i", value)


def kernel_named(module: Module, name: str) -> str:
    """Return the mangled name of the kernel that contains the given name."""
    exact = [k for k, f in module.functions.items() if f.entry and k == name]
    mangled = f"{len(name)}{name}"
    found = exact or [k for k, f in module.functions.items() if f.entry and mangled in k]
    assert len(found) == 1, (name, list(module.functions))
    return found[0]


def execute(
    module: Module,
    name: str,
    grid: int | tuple[int, int, int],
    block: int | tuple[int, int, int],
    *arguments: object,
    outputs: tuple[int, ...] = (),
    shared: int = 0,
    grid_workspace: int | None = None,
    resident_blocks: int = 1024,
    **options: object,
) -> tuple[Result, list[NDArray[np.generic]]]:
    """Run a kernel. Arrays among the arguments become buffers, all of which are returned.

    Buffers whose argument position is in `outputs` count as not initialised. `grid_workspace` is
    the place among the buffers of one that is no argument: a cooperative launch's workspace.
    """
    arena = Arena()
    buffers: list[tuple[int, NDArray[np.generic]]] = []
    parameters = []
    addresses = {}
    for variable in module.variables.values():
        if variable.space in ("global", "const"):
            data = variable.initial or bytes(max(variable.size, 1))
            addresses[variable.name] = arena.place(np.frombuffer(data, dtype=np.uint8))
    for variable in module.variables.values():  # what a loader does
        for offset, symbol in variable.relocations:
            address = addresses.get(symbol) or function_address(module, symbol)
            arena.write(addresses[variable.name] + offset, struct.pack("<Q", address))
    for position, argument in enumerate(arguments):
        if isinstance(argument, np.ndarray):
            address = arena.place(argument, initialised=position not in outputs)
            buffers.append((address, argument))
            parameters.append(struct.pack("<Q", address))
        else:
            parameters.append(argument_bytes(argument))
    as_grid = (grid, 1, 1) if isinstance(grid, int) else grid
    as_block = (block, 1, 1) if isinstance(block, int) else block
    workspace = 0
    if grid_workspace is not None:
        workspace = buffers[grid_workspace][0]
        del parameters[len(module.functions[kernel_named(module, name)].parameters) :]
    launch = Launch(
        module, kernel_named(module, name), as_grid, as_block, shared, parameters, addresses,
        resident_blocks, workspace,
    )  # fmt: skip
    result = run(launch, arena.memory(), **options)  # type: ignore[arg-type]
    return result, [arena.read(address, array) for address, array in buffers]


def kinds(result: Result) -> set[str]:
    """Return the kinds of all reports."""
    return {str(report.kind) for report in result.reports}


def counted(module: Module, result: Result, opcode: str, field: str, *modifiers: str) -> int:
    """Sum one counter over the instructions with an opcode and all the modifiers."""
    rows = [
        i.index
        for i in module.instructions
        if i.opcode == opcode and set(modifiers) <= set(i.modifiers)
    ]
    return int(result.counters[field][rows].sum())
