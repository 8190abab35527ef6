"""What a verdict and a time cost, beside PyTorch's load_inline and 100 runs, or another checkout.

    python benchmarks/judge/cost_of_truth.py [--out FILE.json] [--repeats 5] [--inline 2]
    python benchmarks/judge/cost_of_truth.py [--device simulated] --beside CHECKOUT [--turns 2]

Five small tasks with one honest kernel each. For each: seconds from source text to verdict and time
with a warm worker and a source that was never compiled, without and with a profile by hardware
counters; and, side by side in the same run, seconds of torch.utils.cpp_extension.load_inline plus
100 timed runs of the same kernel, with neither a verdict nor a profile. Needs a GPU, nvcc, ninja.
The second form does the same with this checkout and another one's package, in turns, each with a
cache of its own, and tells the ratio; the simulated device's time comes with its profile.
"""

from __future__ import annotations

import argparse
import asyncio
import datetime
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
import uuid
from pathlib import Path
from typing import Any

from kernelblaster.harness.devices.cuda import CudaDevice
from kernelblaster.harness.devices.protocol import Device
from kernelblaster.harness.devices.simulated.device import SimulatedDevice
from kernelblaster.harness.errors import UserError
from kernelblaster.harness.records.outcomes import Outcome
from kernelblaster.harness.records.tasks import Task
from kernelblaster.harness.task.contract import header
from kernelblaster.harness.task.loading import load_task

REFERENCE = """
import torch
import torch.nn as nn

ROWS = 2048
COLUMNS = 1024


class Model(nn.Module):
    def forward(self, x):
        return {answer}


def get_inputs():
    return [torch.randn(ROWS, COLUMNS)]
"""
ELEMENTWISE = """#include "task.cuh"
__global__ void kernel(float* out0, const float* x) {{
    long long i = blockIdx.x * (long long)blockDim.x + threadIdx.x;
    if (i < X_NUMEL) {{ float v = x[i]; out0[i] = {value}; }}
}}
extern "C" void launch(float* out0, const float* x, void* workspace, cudaStream_t stream) {{
    kernel<<<(X_NUMEL + 255) / 256, 256, 0, stream>>>(out0, x);
}}
"""
ROWS = """#include "task.cuh"
__global__ void kernel(float* out0, const float* x) {{
    const float* row = x + blockIdx.x * DIM_COLUMNS;
    float sum = 0.f;
    for (int i = threadIdx.x; i < DIM_COLUMNS; i += 32) {{ float v = row[i]; sum += {value}; }}
    for (int o = 16; o; o >>= 1) sum += __shfl_xor_sync(~0u, sum, o);
    if (threadIdx.x == 0) out0[blockIdx.x] = sum;
}}
extern "C" void launch(float* out0, const float* x, void* workspace, cudaStream_t stream) {{
    kernel<<<DIM_ROWS, 32, 0, stream>>>(out0, x);
}}
"""
TASKS = {
    "scale": ("x * 2.0 + 1.0", ELEMENTWISE.format(value="v * 2.0f + 1.0f")),
    "relu": ("torch.relu(x)", ELEMENTWISE.format(value="fmaxf(v, 0.f)")),
    "sigmoid": ("torch.sigmoid(x)", ELEMENTWISE.format(value="1.f / (1.f + expf(-v))")),
    "row_sum": ("x.sum(dim=1)", ROWS.format(value="v")),
    "row_squares": ("(x * x).sum(dim=1)", ROWS.format(value="v * v")),
}

INLINE = """
import json, sys, time
import torch
from torch.utils.cpp_extension import load_inline
given = json.load(sys.stdin)
began = time.monotonic()
module = load_inline(
    name=given["name"], cpp_sources="torch::Tensor call(torch::Tensor x);",
    cuda_sources=given["source"], functions=["call"], build_directory=given["folder"],
    extra_cuda_cflags=["-O3", "-std=c++17"],
)
built = time.monotonic()
x = torch.randn(2048, 1024, device="cuda")
begin, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
times = []
for _ in range(100):
    begin.record(); module.call(x); end.record(); end.synchronize()
    times.append(begin.elapsed_time(end))
print(json.dumps({"build_seconds": built - began, "seconds": time.monotonic() - began}))
"""
WRAPPER = """
#include <c10/cuda/CUDAStream.h>
torch::Tensor call(torch::Tensor x) {
    auto out = torch::empty(OUT_SHAPE, x.options());
    launch(out.data_ptr<float>(), x.data_ptr<float>(), nullptr, c10::cuda::getCurrentCUDAStream());
    return out;
}
"""


async def evaluate(device: Device, task: Task, source: str) -> float:
    """Return the seconds from source text to a verdict and a time."""
    fresh = f"{source}// {uuid.uuid4()}\n"  # Nothing comes from the build cache.
    began = time.monotonic()
    for stage in (await device.compile(task, fresh), await device.verify(task, fresh),
                  (await device.profile(task, fresh)).stage):  # fmt: skip
        if stage.outcome is not Outcome.PASSED:
            raise SystemExit(f"{task.name}: {stage.outcome}: {stage.reason}")
    return time.monotonic() - began


def inline(task: Task, source: str) -> dict[str, float]:
    """Return the seconds of load_inline and 100 timed runs; starting PyTorch is not counted."""
    shape = ", ".join(str(size) for size in task.full.of_role("output")[0].shape)
    text = header(task.full).replace("#pragma once", "#include <torch/extension.h>")
    text += source.replace('#include "task.cuh"', "") + WRAPPER.replace("OUT_SHAPE", f"{{{shape}}}")
    with tempfile.TemporaryDirectory() as folder:
        given = {"name": f"inline_{uuid.uuid4().hex}", "source": text, "folder": folder}
        done = subprocess.run(
            [sys.executable, "-c", INLINE], input=json.dumps(given), capture_output=True, text=True
        )
    if done.returncode:
        raise SystemExit(f"load_inline: {done.stderr.strip()[-2000:]}")
    found: dict[str, float] = json.loads(done.stdout.splitlines()[-1])
    return found


def side_by_side(given: argparse.Namespace) -> None:
    """Measure this checkout and another one in turns, each in processes of its own."""
    checkouts = {"here": Path(__file__).resolve().parents[2], "beside": given.beside.resolve()}
    found: dict[str, list[dict[str, Any]]] = {name: [] for name in checkouts}
    with tempfile.TemporaryDirectory() as folder:
        for turn in range(given.turns):
            for name, checkout in checkouts.items():
                package = Path(folder, name)
                package.mkdir(exist_ok=True)
                if not (package / "kernelblaster").exists():
                    (package / "kernelblaster").symlink_to(checkout)
                out = package / f"{turn}.json"
                path = os.pathsep.join([str(package), *filter(None, sys.path)])
                subprocess.run(
                    [
                        sys.executable, __file__, "--device", given.device, "--inline", "0",
                        "--repeats", str(given.repeats), "--out", str(out),
                    ],
                    env=os.environ
                    | {"PYTHONPATH": path, "KERNELBLASTER_CACHE": str(package / "cache")},
                    stdout=subprocess.DEVNULL, check=True,
                )  # fmt: skip
                found[name].append(json.loads(out.read_text()))
                print(name, json.dumps(found[name][-1]), flush=True)
    document: dict[str, Any] = {"device": given.device, "turns": found}
    for what in ("median_verdict_and_time", "median_with_profile"):
        if what in found["here"][0]:
            here, beside = (
                statistics.median(each[what] for each in found[name]) for name in checkouts
            )
            document[what] = {"here": here, "beside": beside, "ratio": here / beside}
    print(json.dumps({key: value for key, value in document.items() if key != "turns"}))
    if given.out:
        given.out.write_text(json.dumps(document, indent=1) + "\n")


async def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--out", type=Path)
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--inline", type=int, default=2, help="tasks also built with load_inline")
    parser.add_argument("--device", choices=("cuda", "simulated"), default="cuda")
    parser.add_argument("--beside", type=Path, help="another checkout of this repository")
    parser.add_argument("--turns", type=int, default=2)
    given = parser.parse_args()
    if given.beside:
        side_by_side(given)
        return
    simulated = given.device == "simulated"
    plain = SimulatedDevice("H100") if simulated else CudaDevice(with_counters=False)
    full = None if simulated else CudaDevice(with_counters=True)
    rows: list[dict[str, Any]] = []
    with tempfile.TemporaryDirectory() as folder:
        for number, (name, (answer, source)) in enumerate(TASKS.items()):
            path = Path(folder, f"{name}.py")
            path.write_text(REFERENCE.format(answer=answer))
            task = await load_task(path)
            await evaluate(plain, task, source)  # Warms the worker up for the task.
            row: dict[str, Any] = {"task": name}
            row["verdict_and_time"] = [
                round(await evaluate(plain, task, source), 3) for _ in range(given.repeats)
            ]
            if full:
                row["with_profile"] = [
                    round(await evaluate(full, task, source), 3) for _ in range(given.repeats)
                ]
            if number < given.inline:
                row["load_inline"] = inline(task, source)
                row["verdict_and_time_again"] = round(await evaluate(plain, task, source), 3)
            rows.append(row)
            print(json.dumps(row), flush=True)
    if full:
        plain.close()
    here = [value for row in rows for value in row["verdict_and_time"]]
    theirs = [row["load_inline"]["seconds"] for row in rows if "load_inline" in row]
    document: dict[str, Any] = {
        "date": datetime.date.today().isoformat(),
        "device": plain.identity.model_dump(),
        "rows": rows,
        "median_verdict_and_time": statistics.median(here),
    }
    if full:
        document["median_with_profile"] = statistics.median(
            value for row in rows for value in row["with_profile"]
        )
    if theirs:
        document["median_load_inline"] = statistics.median(theirs)
        document["load_inline_over_verdict_and_time"] = statistics.median(theirs) / (
            statistics.median(here)
        )
    print(json.dumps({k: v for k, v in document.items() if k != "rows"}))
    if given.out:
        given.out.write_text(json.dumps(document, indent=1) + "\n")


if __name__ == "__main__":
    try:
        asyncio.run(main())
    except UserError as error:
        sys.exit(f"error: {error}")
