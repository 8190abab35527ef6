"""Try the CUDA device on a real GPU: examples timed, noise measured, bad candidates survived.

    python benchmarks/gpu_first_light.py --kernels DIR [--only examples,noise,bad] [--tasks a,b]

DIR holds one `<example>.cu` for each example to be evaluated; another file `<example>.*.cu` of the
same example is evaluated after it. Needs PyTorch, numpy, pydantic and nvcc; the package must be
importable as `kernelblaster`. Prints one JSON line a result, and writes the same lines to
$OUT/first_light.jsonl where OUT is set. Exits 1 where an assertion about verdicts failed.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from kernelblaster.harness.devices.cuda import CudaDevice
from kernelblaster.harness.errors import UserError
from kernelblaster.harness.records import Outcome, StageResult, Task
from kernelblaster.harness.tasks import load_task

EXAMPLES = Path(__file__).resolve().parent.parent / "examples"
REPEATS = 3
"""Evaluations of each kernel with a warm worker and a source that was not compiled before."""
NOISE_ROUNDS = 20
SHORT_SECONDS = 3.0

SCALE_TASK = """
import torch
import torch.nn as nn

N = 4194304


class Model(nn.Module):
    def forward(self, x):
        return x * 2.0 + 1.0


def get_inputs():
    return [torch.randn(N)]


def get_init_inputs():
    return []
"""

SCALE = """#include "task.cuh"
#include <cassert>
#include <cstdio>
#include <cstdlib>
__global__ void scale(const float* x, float* y, long long n) {
    long long i = blockIdx.x * (long long)blockDim.x + threadIdx.x;
    BODY
}
extern "C" void launch(float* out0, const float* x, void* workspace, cudaStream_t stream) {
    HOST
}
"""
RIGHT = "if (i < n) y[i] = x[i] * 2.0f + 1.0f;"
RUN = "scale<<<(X_NUMEL + 255) / 256, 256, 0, stream>>>(x, out0, X_NUMEL);"
OTHER_STREAM = RUN.replace("stream>>>", "0>>>")

BAD: dict[str, tuple[str, str, set[str]]] = {
    # name: (body of the kernel, host code, outcomes that are right)
    "illegal address": ("y[i + (1ll << 40)] = x[0];", RUN, {"out_of_bounds"}),
    "guard band": (RIGHT + " if (i == 0) y[n] = 1.f;", RUN, {"out_of_bounds"}),
    "misaligned": ("if (i == 0) ((float2*)(y + 1))[0] = make_float2(0, 0); " + RIGHT, RUN,
                   {"misaligned"}),
    "endless device loop": ("while (((volatile float*)y)[0] != 42.f) {} " + RIGHT, RUN,
                            {"timed_out"}),
    "endless host loop": (RIGHT, "volatile int on = 1; while (on) {} " + RUN, {"timed_out"}),
    "device assert": ("assert(i < 5); " + RIGHT, RUN, {"crashed"}),
    "trap": ("if (i == 3) __trap(); " + RIGHT, RUN, {"crashed"}),
    "exit(0)": (RIGHT, "exit(0);", {"crashed", "timed_out"}),
    "abort": (RIGHT, "abort();", {"crashed"}),
    "host segfault": (RIGHT, "*(volatile int*)8 = 1; " + RUN, {"crashed"}),
    "host touches device memory": (RIGHT, RUN + " ((volatile float*)out0)[0] = 1.f;", {"crashed"}),
    "host allocation": (
        RIGHT, "static void* volatile p; while ((p = malloc(1 << 30))) {} " + RUN, {"forbidden"},
    ),
    "device allocation": (RIGHT, "void* p; cudaMalloc(&p, 1ll << 40); " + RUN, {"forbidden"}),
    "device heap": ("char* p = (char*)malloc(1 << 20); if (p) p[0] = 1; " + RIGHT, RUN,
                    {"forbidden"}),
    "host prints 1 GB": (RIGHT, 'for (int k = 0; k < 1 << 24; k++) printf("%64d", k); ' + RUN,
                         {"forbidden"}),
    "device prints a lot": ('for (int k = 0; k < 64; k++) printf("%64d", k); ' + RIGHT, RUN,
                            {"passed", "timed_out"}),
    "another stream": (RIGHT, OTHER_STREAM, {"forbidden"}),
    "too many threads": (RIGHT, RUN.replace("256, 0", "2048, 0"), {"crashed"}),
    "wrong answer": ("if (i < n) y[i] = i == 7 ? 0.f : x[i] * 2.0f + 1.0f;", RUN,
                     {"wrong_answer"}),
    "part of the output": ("if (i < n - 3) y[i] = x[i] * 2.0f + 1.0f;", RUN, {"wrong_answer"}),
    "works only at first": (
        RIGHT, "static int calls; if (calls++ < 20) { " + RUN + " }", {"wrong_answer"},
    ),
}  # fmt: skip


class Log:
    """Prints JSON lines and keeps them."""

    def __init__(self) -> None:
        folder = os.environ.get("OUT")
        self._file = open(Path(folder, "first_light.jsonl"), "a") if folder else None  # noqa: SIM115
        self.failures = 0

    def write(self, kind: str, **values: Any) -> None:
        line = json.dumps({"kind": kind, **values})
        print(line, flush=True)
        if self._file:
            self._file.write(line + "\n")
            self._file.flush()

    def expect(self, right: bool, what: str) -> None:
        if not right:
            self.failures += 1
            self.write("FAILED", what=what)


def scale(body: str, host: str) -> str:
    return SCALE.replace("BODY", body).replace("HOST", host)


async def timed(work: Any) -> tuple[Any, float]:
    began = time.monotonic()
    return await work, round(time.monotonic() - began, 3)


async def evaluate(device: CudaDevice, task: Task, source: str) -> dict[str, Any]:
    """Compile, verify and time one source; return what a person wants to see of it."""
    compiled, compile_seconds = await timed(device.compile(task, source))
    found: dict[str, Any] = {"outcome": str(compiled.outcome), "compile_seconds": compile_seconds}
    if compiled.outcome is not Outcome.PASSED:
        return found | {"reason": compiled.reason}
    verified, found["verify_seconds"] = await timed(device.verify(task, source))
    found |= {"outcome": str(verified.outcome), "reason": verified.reason,
              "verify_facts": verified.facts,
              "notes": [item.message for item in verified.diagnostics][:3]}  # fmt: skip
    if verified.outcome is not Outcome.PASSED:
        return found
    measured, found["profile_seconds"] = await timed(device.profile(task, source))
    found |= {"outcome": str(measured.stage.outcome), "reason": measured.stage.reason}
    if measured.timing is None or measured.profile is None:
        return found
    low, high = measured.timing.interval
    return found | {
        "microseconds": measured.timing.microseconds,
        "half_width": (high - low) / 2 / measured.timing.microseconds,
        "total_seconds": round(
            compile_seconds + found["verify_seconds"] + found["profile_seconds"], 3
        ),
        "facts": measured.stage.facts,
        "launches": [
            [launch.kernel, launch.grid, launch.block, round(launch.microseconds, 2)]
            for launch in measured.profile.launches
        ],
    }


async def run_examples(device: CudaDevice, log: Log, kernels: Path, names: list[str]) -> None:
    """Evaluate every kernel once cold and then with a warm worker, each time a new source."""
    tasks, seconds = await timed(
        asyncio.gather(*(load_task(EXAMPLES / f"{name}.py") for name in names))
    )
    log.write("tasks", names=names, load_seconds=seconds)
    for task in tasks:
        files = [*kernels.glob(f"{task.name}.cu"), *sorted(kernels.glob(f"{task.name}.*.cu"))]
        log.expect(bool(files), f"{kernels} holds a kernel for {task.name}")
        for file in files:
            source = file.read_text()
            for repeat in range(REPEATS + 1):
                # A comment of its own: nothing comes from the build cache.
                fresh = f"{source}\n// {time.time_ns()}\n"
                found = await evaluate(device, task, fresh)
                log.write("example", task=task.name, file=file.name,
                          warm=repeat > 0, **found)  # fmt: skip
                log.expect(found["outcome"] == "passed", f"{file.name}: {found.get('reason')}")
                if found["outcome"] != "passed":
                    break


async def run_noise(
    device: CudaDevice, log: Log, kernels: Path, names: list[str], folder: Path
) -> None:
    """Measure kernels against themselves: the interval of the ratio must cover 1."""
    path = folder / "scale.py"
    path.write_text(SCALE_TASK)
    subjects = [(await load_task(path), scale(RIGHT, RUN))]
    for name in names[:2]:
        file = kernels / f"{name}.cu"
        if file.exists():
            subjects.append((await load_task(EXAMPLES / f"{name}.py"), file.read_text()))
    for task, source in subjects:
        covered, widths, found = 0, [], []
        began = time.monotonic()
        for _ in range(NOISE_ROUNDS):
            compared = await device.compare(task, source, source)
            if compared.ratio is None:
                log.expect(False, f"noise {task.name}: {compared.stage.reason}")
                break
            low, high = compared.ratio.interval
            covered += low <= 1 <= high
            widths.append(compared.ratio.half_width)
            found.append([round(compared.ratio.ratio, 5), round(low, 5), round(high, 5),
                          compared.ratio.rounds])  # fmt: skip
        log.write(
            "noise", task=task.name, covered=covered, of=NOISE_ROUNDS,
            widest=max(widths, default=None), seconds=round(time.monotonic() - began, 2),
            ratios=found,
        )  # fmt: skip
        log.expect(covered >= NOISE_ROUNDS - 2, f"noise {task.name}: covered {covered} times")
        log.expect(max(widths, default=1) <= 0.01, f"noise {task.name}: half-width")


async def run_bad(log: Log, folder: Path) -> None:
    """Let bad candidates do their worst; an honest one must pass after each."""
    path = folder / "scale.py"
    path.write_text(SCALE_TASK)
    task = await load_task(path)
    device = CudaDevice(candidate_seconds=SHORT_SECONDS, with_compile=False)
    honest = scale(RIGHT, RUN)
    before = gpu_memory()
    for name, (body, host, outcomes) in BAD.items():
        source = scale(body, host)
        (stage, seconds) = await timed(_verdict(device, task, source))
        after, honest_seconds = await timed(device.verify(task, honest))
        log.write("bad", name=name, outcome=str(stage.outcome), reason=stage.reason,
                  seconds=seconds, honest=str(after.outcome), honest_seconds=honest_seconds,
                  starts=device.workers[0].starts)  # fmt: skip
        log.expect(str(stage.outcome) in outcomes, f"{name}: {stage.outcome}: {stage.reason}")
        log.expect(after.outcome is Outcome.PASSED, f"honest after {name}: {after.reason}")
    device.close()
    await asyncio.sleep(1)
    log.write("after", memory_before=before, memory_after=gpu_memory(), processes=leftovers())
    log.expect(not leftovers(), "no worker is left")


async def _verdict(device: CudaDevice, task: Task, source: str) -> StageResult:
    """Return the first stage that fails, or the last."""
    stage = await device.compile(task, source)
    if stage.outcome is Outcome.PASSED:
        stage = await device.verify(task, source)
    if stage.outcome is Outcome.PASSED:
        stage = (await device.profile(task, source)).stage
    return stage


def gpu_memory() -> str:
    """Return the memory in use as nvidia-smi gives it."""
    command = ["nvidia-smi", "--query-gpu=memory.used", "--format=csv,noheader"]
    return subprocess.run(command, capture_output=True, text=True).stdout.strip()


def leftovers() -> list[str]:
    """Return the command lines of workers that still run."""
    found = []
    for entry in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            words = entry.read_bytes().replace(b"\0", b" ").decode()
        except OSError:
            continue
        if "harness.cuda.worker" in words:
            found.append(words.strip())
    return found


async def main() -> int:
    """Run the parts asked for."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--kernels", type=Path, required=True)
    parser.add_argument("--only", default="bad,examples,noise")
    parser.add_argument("--tasks", default=",".join(sorted(p.stem for p in EXAMPLES.glob("*.py"))))
    parser.add_argument("--no-compile", action="store_true", help="leave torch.compile out")
    given = parser.parse_args()
    log, parts, names = Log(), given.only.split(","), given.tasks.split(",")
    device = CudaDevice(with_compile=not given.no_compile)
    hello, seconds = await timed(asyncio.to_thread(device.workers[0].hello))
    log.write("device", identity=device.identity.model_dump(), hello=hello, start_seconds=seconds)
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch)
        if "examples" in parts:
            await run_examples(device, log, given.kernels, names)
        if "noise" in parts:
            await run_noise(device, log, given.kernels, names, folder)
        if "bad" in parts:
            await run_bad(log, folder)
    device.close()
    log.write("end", failures=log.failures)
    return 1 if log.failures else 0


if __name__ == "__main__":
    try:
        sys.exit(asyncio.run(main()))
    except UserError as error:
        sys.exit(f"error: {error}")
