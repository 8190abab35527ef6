"""Let one GPU worker live through 200 evaluations, 60 of them bad, in random order.

    python benchmarks/judge/worker_survival.py [--evaluations 200] [--bad 60] [--seed 0]

No honest candidate may get a wrong verdict, whatever ran before it; no process and no GPU memory
may be left behind. Needs PyTorch, numpy, pydantic and nvcc; the package must be importable as
`kernelblaster`. Prints one JSON line an evaluation, also to $OUT/worker_survival.jsonl where OUT is
set. Exits 1 where anything is not as expected.
"""

from __future__ import annotations

import argparse
import asyncio
import random
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from gpu_log import Log, gpu_memory, processes, settled_memory, workers

from kernelblaster.harness.devices.cuda import CudaDevice
from kernelblaster.harness.errors import UserError
from kernelblaster.harness.judge.timing import Stopping
from kernelblaster.harness.records.evaluations import StageResult
from kernelblaster.harness.records.outcomes import Outcome
from kernelblaster.harness.records.tasks import Task
from kernelblaster.harness.task.loading import load_task

CANDIDATE_SECONDS = 2.0
PROFILED = 4
"""One in this many honest evaluations is timed as well."""
SLACK_MIB = 64
GROWTH_MIB = 512
"""What a worker may hold more at the end than a fresh one: PyTorch's cache, kept modules."""

TASK = """
import torch
import torch.nn as nn

N = 65536


class Model(nn.Module):
    def forward(self, x):
        return x * 2.0 + 1.0


def get_inputs():
    return [torch.randn(N)]
"""
FRAME = """#include "task.cuh"
#include <cassert>
#include <cstdio>
#include <cstdlib>
TOP
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
ENORMOUS = 'extern "C" size_t workspace_bytes() { return size_t(1) << 50; }'
HALF_OF_IT = 'extern "C" size_t workspace_bytes() { return size_t(32) << 30; }'
STACK = "volatile char big[{}]; for (int k = 0; k < {}; k += 4096) big[k] = char(i); "

BAD: dict[str, tuple[str, str, str, set[str]]] = {
    # name: (declarations, body of the kernel, host code, outcomes that are right)
    "illegal address": ("", "y[i + (1ll << 40)] = x[0];", RUN, {"out_of_bounds"}),
    "misaligned": ("", "if (i == 0) ((float2*)(y + 1))[0] = make_float2(0, 0); " + RIGHT, RUN,
                   {"misaligned"}),
    "endless device loop": ("", "while (((volatile float*)y)[0] != 42.f) {} " + RIGHT, RUN,
                            {"timed_out"}),
    "endless host loop": ("", RIGHT, "volatile int on = 1; while (on) {} " + RUN, {"timed_out"}),
    "device-side assert": ("", "assert(i < 5); " + RIGHT, RUN, {"crashed"}),
    "trap": ("", "if (i == 3) __trap(); " + RIGHT, RUN, {"crashed"}),
    "exit(0)": ("", RIGHT, "exit(0);", {"crashed", "timed_out"}),
    "abort": ("", RIGHT, "abort();", {"crashed"}),
    "host segfault": ("", RIGHT, "*(volatile int*)8 = 1; " + RUN, {"crashed"}),
    "host stack": ("static int deep(volatile int n) { volatile char much[65536]; much[n] = 1; "
                   "return n < 0 ? 0 : deep(n + 1) + much[0]; }",
                   RIGHT, "if (deep(0) == 7) return; " + RUN, {"crashed"}),
    "host touches device memory": ("", RIGHT, RUN + " ((volatile float*)out0)[0] = 1.f;",
                                   {"crashed"}),
    "10 GB from the host": ("", RIGHT, 'for (int k = 0; k < 160000000; k++) printf("%64d", k); '
                            + RUN, {"forbidden"}),
    "100 GB from the device": (
        "", 'for (int k = 0; k < 25000; k++) printf("%64d", k); ' + RIGHT, RUN,
        {"passed", "timed_out"},
    ),
    "all memory, workspace": (ENORMOUS, RIGHT, RUN, {"crashed"}),
    "much memory, workspace": (HALF_OF_IT, RIGHT, RUN, {"passed", "crashed"}),
    "all memory, stack": ("", STACK.format(520000, 520000) + RIGHT, RUN, {"passed", "crashed"}),
    "much memory, stack": ("", STACK.format(65536, 65536) + RIGHT, RUN, {"passed", "crashed"}),
    "all memory, device heap": ("", "while (char* p = (char*)malloc(1 << 20)) p[0] = 1; " + RIGHT,
                                RUN, {"forbidden"}),
    "all memory, cudaMalloc": ("", RIGHT, "void* p; while (!cudaMalloc(&p, 1 << 30)) {} " + RUN,
                               {"forbidden"}),
    "another stream": ("", RIGHT, RUN.replace("stream>>>", "0>>>"), {"forbidden"}),
    "too many threads": ("", RIGHT, RUN.replace("256, 0", "2048, 0"), {"crashed"}),
    "many launches": ("", RIGHT, "for (int k = 0; k < 20000; k++) { " + RUN + " }",
                      {"passed", "timed_out"}),
    "guard band": ("", RIGHT + " if (i == 0) y[n] = 1.f;", RUN, {"out_of_bounds"}),
    "changes its input": ("", RIGHT + " if (i == 0) ((float*)x)[0] = 5.f;", RUN, {"wrong_answer"}),
    "wrong answer": ("", "if (i < n) y[i] = i == 7 ? 0.f : x[i] * 2.0f + 1.0f;", RUN,
                     {"wrong_answer"}),
    "nothing": ("", RIGHT, "", {"wrong_answer"}),
    "works at first": ("", RIGHT, "static int calls; if (calls++ < 20) { " + RUN + " }",
                       {"wrong_answer"}),
}  # fmt: skip
STRIDE = "for (; i < n; i += gridDim.x * 256ll) y[i] = x[i] * 2.0f + 1.0f;"
SHARED = ("extern __shared__ float s[]; if (i < n) s[threadIdx.x] = x[i]; __syncthreads(); "
          "if (i < n) y[i] = s[threadIdx.x] * 2.0f + 1.0f;")  # fmt: skip
HONEST: dict[str, tuple[str, str, str]] = {
    "plain": ("", RIGHT, RUN),
    "small blocks": ("", RIGHT, RUN.replace("255) / 256, 256", "63) / 64, 64")),
    "grid stride": ("", STRIDE, "scale<<<64, 256, 0, stream>>>(x, out0, X_NUMEL);"),
    "large shared memory": (
        "", SHARED, "cudaFuncSetAttribute(scale, cudaFuncAttributeMaxDynamicSharedMemorySize, "
        "98304); " + RUN.replace("256, 0,", "256, 98304,")),
    "copy in place": (
        "", RIGHT, "cudaMemcpyAsync(out0, x, 4 * X_NUMEL, cudaMemcpyDeviceToDevice, stream); "
        + RUN.replace("(x, out0", "(out0, out0")),
    "workspace": (
        'extern "C" size_t workspace_bytes() { return 4 * X_NUMEL; }', RIGHT,
        RUN.replace("out0", "(float*)workspace") + " cudaMemcpyAsync(out0, workspace, "
        "4 * X_NUMEL, cudaMemcpyDeviceToDevice, stream);"),
}  # fmt: skip


def source(top: str, body: str, host: str) -> str:
    """Return a candidate."""
    return FRAME.replace("TOP", top).replace("BODY", body).replace("HOST", host)


def order(evaluations: int, bad: int, seed: int) -> list[tuple[str, str, set[str]]]:
    """Return (name, source, right outcomes) of every evaluation, bad kinds in turn, shuffled."""
    wrong = [(name, source(*parts), right) for name, (*parts, right) in BAD.items()]
    good = [(name, source(*parts), {"passed"}) for name, parts in HONEST.items()]
    plan = [wrong[number % len(wrong)] for number in range(bad)]
    plan += [good[number % len(good)] for number in range(evaluations - bad)]
    random.Random(seed).shuffle(plan)
    return plan


async def evaluate(device: CudaDevice, task: Task, text: str, timed: bool) -> StageResult:
    """Compile, verify and, where asked, time; return the stage that ended it."""
    stage = await device.compile(task, text)
    if stage.outcome is Outcome.PASSED:
        stage = await device.verify(task, text)
    if stage.outcome is Outcome.PASSED and timed:
        measured = await device.profile(task, text)
        stage = measured.stage
        if stage.outcome is Outcome.PASSED and measured.timing is None:
            raise AssertionError("a pass without a time")
    return stage


async def run(log: Log, given: argparse.Namespace, folder: Path) -> None:
    """Run all evaluations on one device."""
    path = folder / "scale.py"
    path.write_text(TASK)
    task = await load_task(path)
    before, began = gpu_memory(), time.monotonic()
    device = CudaDevice(
        candidate_seconds=CANDIDATE_SECONDS, with_compile=False, with_counters=False,
        stopping=Stopping(seconds=0.3),
    )  # fmt: skip
    plan = order(given.evaluations, given.bad, given.seed)
    first = next(text for _, text, right in plan if right == {"passed"})
    await device.verify(task, first)
    fresh = gpu_memory()
    log.write("device", identity=device.identity.model_dump(), hello=device.workers[0].hello(),
              memory_mib={"before": before, "fresh worker": fresh}, seed=given.seed)  # fmt: skip
    wrong_verdicts, honest, counts = 0, 0, dict[str, int]()
    for number, (name, text, right) in enumerate(plan):
        is_honest = name in HONEST
        honest += is_honest
        started = time.monotonic()
        # What works in its first calls only is found while it is timed.
        timed = honest % PROFILED == 0 if is_honest else name == "works at first"
        found: dict[str, Any] = {"number": number, "name": name, "honest": is_honest}
        try:
            stage = await evaluate(device, task, text, timed)
        except Exception as error:  # the harness must never fail, whatever a candidate did
            outcome, reason = "harness failed", repr(error)[:500]
        else:
            outcome, reason = str(stage.outcome), stage.reason
        counts[outcome] = counts.get(outcome, 0) + 1
        log.write("evaluation", **found, timed=timed, outcome=outcome, right=outcome in right,
                  reason=reason, seconds=round(time.monotonic() - started, 3),
                  starts=device.workers[0].starts)  # fmt: skip
        log.expect(outcome in right, f"{number} {name}: {outcome}: {reason}")
        wrong_verdicts += is_honest and outcome not in right
    await device.verify(task, first)
    at_end = settled_memory(fresh + GROWTH_MIB)
    log.expect(at_end <= fresh + GROWTH_MIB, f"worker's memory: {fresh} MiB fresh, {at_end} at end")
    device.close()
    left = list(processes().values()) + workers()
    after = settled_memory(before + SLACK_MIB)
    log.expect(not left, f"left running: {left}")
    log.expect(after <= before + SLACK_MIB, f"GPU memory: {before} MiB before, {after} after")
    log.write(
        "end", evaluations=len(plan), bad=len(plan) - honest, honest=honest, counts=counts,
        wrong_verdicts_on_honest=wrong_verdicts, failures=log.failures, left=left,
        memory_mib={"before": before, "fresh worker": fresh, "worker at end": at_end,
                    "after": after},
        starts=device.workers[0].starts, seconds=round(time.monotonic() - began, 1),
    )  # fmt: skip


async def main() -> int:
    """Read the arguments and run."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--evaluations", type=int, default=200)
    parser.add_argument("--bad", type=int, default=60)
    parser.add_argument("--seed", type=int, default=0)
    given = parser.parse_args()
    log = Log("worker_survival")
    with tempfile.TemporaryDirectory() as scratch:
        await run(log, given, Path(scratch))
    return 1 if log.failures else 0


if __name__ == "__main__":
    try:
        sys.exit(asyncio.run(main()))
    except UserError as error:
        sys.exit(f"error: {error}")
