"""What programs of many launches cost the simulated GPU: compile, verify and profile, in seconds.

    python benchmarks/simulator/many_launches.py [--gpu H200] [--only lstm] [-o FILE]

Programs of many_launches_tasks, with the plain kernels that a first version has: a VGG,
a DenseNet, an LSTM whose steps are launches, and 400 steps of a kernel each. The wall clock is that
of an evaluation whose task is known; beside it stand the processor's seconds of all its processes,
which hang less on what else the machine does, and its load.
"""

from __future__ import annotations

import argparse
import asyncio
import datetime
import os
import platform
import subprocess
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import TypeVar

from kernelblaster.harness.devices.simulated.device import SimulatedDevice
from kernelblaster.harness.records.tasks import Task
from kernelblaster.harness.task.contract import signature
from kernelblaster.harness.task.loading import load_task

TASKS = Path(__file__).resolve().parent / "many_launches_tasks"
SMALL = {
    "convnet": {"BATCH": 1, "SIZE": 32, "WIDTH": 16},
    "densenet": {"BATCH": 1, "SIZE": 64, "GROWTH": 8},
    "chain": {"ROWS": 64, "COLUMNS": 64},
    "lstm": {"BATCH": 3, "INPUT": 32, "HIDDEN": 64, "STEPS": 512},
}
"""Dimensions of verification: those of the channels are divided, all steps and layers stay."""

Found = TypeVar("Found")


def main() -> None:
    """Measure and print, to a file too where one is named."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--gpu", default="H200")
    parser.add_argument("--only", choices=SMALL, action="append")
    parser.add_argument("-o", "--output", type=Path)
    arguments = parser.parse_args()
    device = SimulatedDevice(arguments.gpu)
    lines: list[str] = []

    def tell(line: str) -> None:
        lines.append(line)
        print(line, flush=True)

    commit = subprocess.run(["git", "-C", str(TASKS), "describe", "--always", "--dirty"],
                            capture_output=True, text=True).stdout.strip()  # fmt: skip
    tell(f"date: {datetime.date.today().isoformat()}; commit: {commit}; {platform.machine()}, "
         f"{os.cpu_count()} cores; load {os.getloadavg()[0]:.1f} at the start")  # fmt: skip
    for name in arguments.only or SMALL:
        for line in asyncio.run(_costs(device, name)):
            tell(line)
    tell(f"load {os.getloadavg()[0]:.1f} at the end")
    if arguments.output:
        arguments.output.write_text("\n".join(lines) + "\n")


def source_of(task: Task) -> str:
    """Return the CUDA source of a task: its host part with the names that the task has."""
    parameters = ", ".join(spec.name for spec in task.full.of_role("parameter"))
    buffers = ", ".join(spec.name for spec in task.full.of_role("buffer"))
    host = (TASKS / f"{task.name}.cu").read_text()
    if task.name == "chain":
        return _chain(host, signature(task))
    for word, text in (
        ("LAUNCH", signature(task)), ("{PARAMETERS}", f"{{{parameters}}}"),
        ("{BUFFERS}", f"{{{buffers}}}"),
    ):  # fmt: skip
        host = host.replace(word, text)
    return f"{(TASKS / 'plain_kernels.cuh').read_text()}\n{host}"


def _chain(host: str, launch: str) -> str:
    kernels = "\n".join(
        f"__global__ void step{step}(const float* x, float* y) {{\n"
        "    long long i = blockIdx.x * (long long)blockDim.x + threadIdx.x;\n"
        f"    if (i < OUT0_NUMEL) y[i] = x[i] * 0.99f + {step / 400!r}f;\n}}"
        for step in range(400)
    )
    calls = "\n    ".join(
        f"step{step}<<<blocks, 256, 0, stream>>>({'out0' if step else 'x'}, out0);"
        for step in range(400)
    )
    host = host.replace("KERNELS", kernels).replace("CALLS", calls).replace("LAUNCH", launch)
    return f'#include "task.cuh"\n{host}'


async def _costs(device: SimulatedDevice, name: str) -> list[str]:
    task = await load_task(TASKS / f"{name}.py", SMALL[name])
    # What is compiled is kept: text that no other run has had is compiled afresh.
    source = f"{source_of(task)}\n// {time.time_ns()}\n"
    compiled, compiling = await _timed(lambda: device.compile(task, source))
    verified, verifying = await _timed(lambda: device.verify(task, source))
    first, profiling = await _timed(lambda: device.profile(task, source))
    _, again = await _timed(lambda: device.profile(task, source))
    lines = [
        f"{name}: compile {compiling}: {compiled.outcome}; verify {verifying}: "
        f"{verified.outcome}; profile {profiling}: {first.stage.outcome}; again {again}"
    ]
    lines += [f"  {each.reason}" for each in (compiled, verified, first.stage) if each.reason]
    if first.timing and first.profile:
        launches = first.profile.launches
        longest = first.profile.dominant
        lines.append(
            f"  {len(launches)} launches, {first.timing.microseconds / 1e3:.3f} ms estimated; "
            f"longest {longest.kernel} {longest.microseconds / 1e3:.3f} ms"
        )
    return lines


async def _timed(work: Callable[[], Awaitable[Found]]) -> tuple[Found, str]:
    started, used = time.perf_counter(), _processor_seconds()
    found = await work()
    return found, (
        f"{time.perf_counter() - started:.1f} s ({_processor_seconds() - used:.1f} s of processor)"
    )


def _processor_seconds() -> float:
    """Return what this process and all that it started have used, those that ended included."""
    parents: dict[int, int] = {}
    used: dict[int, float] = {}
    for path in Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = path.read_text().rpartition(")")[2].split()
        except OSError:
            continue
        process = int(path.parent.name)
        parents[process] = int(fields[1])
        used[process] = sum(map(int, fields[11:15])) / os.sysconf("SC_CLK_TCK")

    def is_ours(process: int) -> bool:
        while process and process != os.getpid():
            process = parents.get(process, 0)
        return bool(process)

    return sum(seconds for process, seconds in used.items() if is_ours(process))


if __name__ == "__main__":
    main()
