"""How fast the simulated GPU runs: instructions a second on one and two cores, and a profile.

    python benchmarks/simulator/simulator_speed.py [--gpu H200] [-o FILE]

Eight kernels of census_kernels (and a plain product of 4096 x 4096) run with counters
on and checks off, as a profile runs them; and with all checks, as a verification does. The load of
the machine is told beside the figures.
"""

from __future__ import annotations

import argparse
import asyncio
import datetime
import os
import platform
import re
import subprocess
import tempfile
import time
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path

from kernelblaster.harness.build.toolchain import Toolchain, build, find_toolchain
from kernelblaster.harness.devices.simulated.device import SimulatedDevice
from kernelblaster.harness.gpus import find_gpu
from kernelblaster.harness.host.plan import Plan
from kernelblaster.harness.host.planning import Asked, plan_launch
from kernelblaster.harness.host.process import host_program
from kernelblaster.harness.host.properties import properties_of
from kernelblaster.harness.records.builds import Build
from kernelblaster.harness.records.tasks import Task
from kernelblaster.harness.simt.run import core
from kernelblaster.harness.simt.run.candidate import KernelLaunch, load_candidate
from kernelblaster.harness.task.contract import header
from kernelblaster.harness.task.loading import load_task

HERE = Path(__file__).resolve().parent
KERNELS = (
    "sgemm_register_tiles", "sgemm_cp_async_stages", "hgemm_mma_ldmatrix", "flash_f32",
    "softmax_online_warp", "layer_norm_half2", "transpose_swizzled", "int8_dp4a",
)  # fmt: skip
INSTRUCTIONS = 6_000_000
"""Warp instructions of one measurement, about."""

PRODUCT_TASK = '''import torch
import torch.nn as nn

N = 4096


class Model(nn.Module):
    def forward(self, a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
        return torch.matmul(a, b)


def get_inputs() -> list[torch.Tensor]:
    return [torch.randn(N, N), torch.randn(N, N)]


def get_init_inputs() -> list[object]:
    return []
'''


def main() -> None:
    """Measure and print, to a file too where one is named."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--gpu", default="H200")
    parser.add_argument("-o", "--output", type=Path)
    arguments = parser.parse_args()
    toolchain = find_toolchain()
    device = SimulatedDevice(arguments.gpu, toolchain)
    lines: list[str] = []

    def tell(line: str) -> None:
        lines.append(line)
        print(line, flush=True)

    commit = subprocess.run(["git", "-C", str(HERE), "describe", "--always", "--dirty"],
                            capture_output=True, text=True).stdout.strip()  # fmt: skip
    tell(f"date: {datetime.date.today().isoformat()}; commit: {commit}; {platform.machine()}, "
         f"{os.cpu_count()} cores; load {os.getloadavg()[0]:.1f} at the start")  # fmt: skip
    tell("thread-instructions a second, in millions (best of 3; processor time for one core)")
    tell(f"{'kernel':26s} {'1 core':>8s} {'2 cores':>8s} {'checked':>8s}")
    for name in KERNELS:
        one, two, checked = _rates(name, arguments.gpu, toolchain)
        tell(f"{name:26s} {one:8.0f} {two:8.0f} {checked:8.0f}")
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "product.py")
        path.write_text(PRODUCT_TASK)
        task = asyncio.run(load_task(path))
        for name in ("sgemm_register_tiles", "sgemm_cp_async_stages"):
            tell(_profile(device, task, name))
    tell(f"load {os.getloadavg()[0]:.1f} at the end")
    if arguments.output:
        arguments.output.write_text("\n".join(lines) + "\n")


def _source(name: str) -> tuple[str, str]:
    source = (HERE / "census_kernels" / f"{name}.cu").read_text()
    named = re.search(r"^// task: (\w+)", source, re.MULTILINE)
    assert named
    return source, named[1]


def _rates(name: str, gpu: str, toolchain: Toolchain) -> tuple[float, float, float]:
    """Return millions of thread-instructions a second: one thread, two threads, with checks.

    In a process of its own: the stand-in runtime is loaded once in each.
    """
    read, write = os.pipe()
    child = os.fork()
    if not child:
        told = " ".join(str(rate) for rate in _measure(name, gpu, toolchain))
        os.write(write, told.encode())
        os._exit(0)
    os.close(write)
    with os.fdopen(read) as pipe:
        rates = [float(part) for part in pipe.read().split()]
    os.waitpid(child, 0)
    return rates[0], rates[1], rates[2]


def _measure(name: str, gpu: str, toolchain: Toolchain) -> tuple[float, float, float]:
    source, task_name = _source(name)
    task = asyncio.run(load_task(HERE / "census_tasks" / f"{task_name}.py"))
    device = SimulatedDevice(gpu, toolchain)
    built: Build = asyncio.run(build(toolchain, source, header(task.full), device.gpu.arch))
    found: list[float] = []

    def on_launch(_: object, asked: KernelLaunch) -> bool:
        probe = core.run(asked.launch, asked.memory, [0], checks=False)
        each = max(1, int(probe.counters["warps"].sum()))
        blocks = range(min(asked.launch.block_count, max(2, INSTRUCTIONS // each)))
        few = range(max(1, len(blocks) // 4))
        found.append(_rate(lambda: core.run(asked.launch, asked.memory, blocks, checks=False),
                           time.process_time))  # fmt: skip
        found.append(_rate(lambda: core.run(asked.launch, asked.memory, blocks, checks=False,
                                            threads=2), time.perf_counter))  # fmt: skip
        found.append(_rate(lambda: core.run(asked.launch, asked.memory, few, checks=True),
                           time.process_time))  # fmt: skip
        return False

    candidate = load_candidate(_request(task, built, gpu, toolchain), on_launch)
    candidate.call()
    return found[0], found[1], found[2]


def _rate(run: Callable[[], core.Result], clock: Callable[[], float]) -> float:
    best = 0.0
    for _ in range(3):
        started = clock()
        result = run()
        best = max(best, float(result.counters["threads"].sum()) / (clock() - started) / 1e6)
    return best


def _request(task: Task, built: Build, gpu: str, toolchain: Toolchain) -> dict[str, object]:
    folder = Path(built.directory)
    return {
        "gpu": gpu, "ptx": str(folder / "candidate.ptx"),
        "plan": asdict(_plan(task, built, gpu, toolchain)),
        "kernels": [kernel.model_dump() for kernel in built.kernels],
        "tensors": [
            {"name": spec.name, "role": spec.role, "dtype": spec.dtype, "nbytes": spec.nbytes}
            for spec in task.full.tensors
        ],
    }  # fmt: skip


def _plan(task: Task, built: Build, gpu: str, toolchain: Toolchain) -> Plan:
    asked = Asked(built, task.full.tensors, properties_of(find_gpu(gpu)), 1 << 33)
    plan = plan_launch(host_program(toolchain.cuda_headers()), asked)
    assert isinstance(plan, Plan), plan.reason
    return plan


def _profile(device: SimulatedDevice, task: Task, name: str) -> str:
    source, _ = _source(name)
    wall, cpu = [], []
    for attempt in range(3):
        started, used = time.perf_counter(), os.times()
        measured = asyncio.run(device.profile(task, f"{source}\n// {attempt}\n"))
        assert measured.timing, measured.stage.reason
        wall.append(time.perf_counter() - started)
        now = os.times()
        cpu.append(sum(now[:4]) - sum(used[:4]))
    started = time.perf_counter()
    asyncio.run(device.profile(task, f"{source}\n// 0\n"))
    again = time.perf_counter() - started
    return (
        f"4096x4096 product, {name}: compile and profile {min(wall):.1f} s "
        f"({min(cpu):.1f} s of processor time); profile alone {again:.1f} s"
    )


if __name__ == "__main__":
    main()
