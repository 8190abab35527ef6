"""Profiles kernels of one CUDA source without a task: sampled on the simulated H200."""

from __future__ import annotations

import random
import struct
import subprocess
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest

from kernelblaster.harness.build.compiler_output import kernel_resources
from kernelblaster.harness.build.toolchain import find_toolchain
from kernelblaster.harness.gpus import find_gpu
from kernelblaster.harness.occupancy import occupancy
from kernelblaster.harness.records.profiles import LaunchProfile
from kernelblaster.harness.simt.counters import LaunchCounters
from kernelblaster.harness.simt.model.profile import describe_launch
from kernelblaster.harness.simt.ptx.parser import parse
from kernelblaster.harness.simt.run.candidate import KernelLaunch
from kernelblaster.harness.simt.run.core import Launch, Memory
from kernelblaster.harness.simt.sample.sampling import sample_launch
from kernelblaster.harness.simt.sass.labelled import machine_listing
from kernelblaster.harness.simt.sass.listing import read_listing

from .simt_support import kernel_named, nvcc

H200 = find_gpu("H200")
BUDGET = 50_000_000


@dataclass(frozen=True)
class Timed:
    """One launch."""

    counters: LaunchCounters
    profile: LaunchProfile
    registers: int


class TimedKernels:
    """Kernels `name(const float* x, float* y, int n)` over two arrays of zeros."""

    def __init__(self, source: str, folder: Path, floats: int = 1 << 25) -> None:
        (folder / "k.cu").write_text(source)
        command = [nvcc(), "-arch=sm_90", "-std=c++17", "-O3", "-lineinfo", "-cubin", "--keep",
                   "-Xptxas", "-v", "k.cu", "-o", "k.cubin"]  # fmt: skip
        done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr
        self.module = parse((folder / "k.ptx").read_text())
        self.resources = {each.kernel: each for each in kernel_resources(done.stderr + done.stdout)}
        listing = machine_listing(find_toolchain(), folder / "k.ptx", "sm_90")
        if listing is None:
            pytest.skip("ptxas or nvdisasm is missing")
        self.machine = read_listing(listing)
        self.bytes = np.zeros(8 * floats + 1024, dtype=np.uint8)
        base = -(-self.bytes.ctypes.data // 256) * 256
        half = 4 * floats
        self.memory = Memory(base, 2 * half + 256, [base, base + half + 256],
                             [base + half, base + 2 * half + 256], None)  # fmt: skip

    def asked(
        self, name: str, grid: int | tuple[int, int, int], block: int, n: int, further: int = 0
    ) -> KernelLaunch:
        """Return a launch whose arrays begin so many bytes further than they lie."""
        arguments = [*(struct.pack("<Q", start + further) for start in self.memory.starts),
                     struct.pack("<i", n)]  # fmt: skip
        launch = Launch(self.module, kernel_named(self.module, name),
                        (grid, 1, 1) if isinstance(grid, int) else grid,
                        (block, 1, 1), 0, arguments, {}, 1024, 0)  # fmt: skip
        return KernelLaunch(launch, self.memory)

    def run(
        self, name: str, grid: int | tuple[int, int, int], block: int, n: int, draw: int = 7
    ) -> Timed:
        """Profile one launch; `draw` chooses the random blocks."""
        kernel = kernel_named(self.module, name)
        facts = self.resources[kernel]
        held = occupancy(H200.limits, block, facts.registers, facts.static_shared_bytes)
        counters = sample_launch(
            H200, self.asked(name, grid, block, n), held, facts.static_shared_bytes, BUDGET,
            self.machine[kernel], random.Random(draw), {},
        )  # fmt: skip
        return Timed(counters, describe_launch(H200, facts, counters)[0], facts.registers)
