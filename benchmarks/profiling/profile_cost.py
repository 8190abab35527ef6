"""What a profile of slow and large launches costs, by what is counted and how it is replayed.

    python benchmarks/profiling/profile_cost.py [--out FILE.json] [--seconds 120] [--only NAME,NAME]
    python benchmarks/profiling/profile_cost.py --only elementwise_4MB --launches 200 \
        --ways timed,basic

Three kernels: plain matrix products of 4096 and 8192, one thread an element, and an elementwise
kernel over 7 GB. For each of the collections of `harness/nsight/command.py` and ncu's two ways to
repeat a launch (`kernel` saves and restores memory, `application` starts the program again): wall
seconds, seconds of these to read the report, passes, and the counters that a bottleneck is judged
by, so that what a cheaper way loses is seen. Beside them the kernel's own time, and that of the
program without a profiler. The basis of `Collection.runs` and `affordable`. The second form is what
a launch of many costs, by what is counted: the basis of harness/nsight/selection.py.
"""

from __future__ import annotations

import argparse
import datetime
import json
import os
import re
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from kernelblaster.harness.nsight.command import (
    BASIC,
    COUNTED,
    DEFAULT,
    TIMED,
    Collection,
    Replay,
    affordable,
)
from kernelblaster.harness.nsight.ncu import find_ncu, profile_program, read_report

SOURCE = r"""
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <cuda_runtime.h>

__global__ void product(float* out, const float* a, const float* b, int n) {
    int column = blockIdx.x * blockDim.x + threadIdx.x, row = blockIdx.y * blockDim.y + threadIdx.y;
    if (row >= n || column >= n) return;
    float sum = 0.0f;
    for (int k = 0; k < n; k++) sum += a[size_t(row) * n + k] * b[size_t(k) * n + column];
    out[size_t(row) * n + column] = sum;
}

__global__ void relu(float* out, const float* x, size_t count) {
    size_t i = size_t(blockIdx.x) * blockDim.x + threadIdx.x;
    if (i < count) out[i] = x[i] > 0.0f ? x[i] : 0.0f;
}

int main(int, char** given) {
    bool is_product = !std::strcmp(given[1], "product");
    size_t n = std::strtoull(given[2], nullptr, 10), count = is_product ? n * n : n;
    float *out, *a, *b = nullptr;
    cudaMalloc(&out, count * 4);
    cudaMalloc(&a, count * 4);
    cudaMemset(a, 0x3c, count * 4);
    if (is_product) { cudaMalloc(&b, count * 4); cudaMemset(b, 0x3c, count * 4); }
    cudaEvent_t begin, end;
    cudaEventCreate(&begin);
    cudaEventCreate(&end);
    int calls = std::atoi(given[3]);
    for (int call = 0; call < calls; call++) {
        cudaEventRecord(begin);
        if (is_product) {
            dim3 block(32, 8), grid((n + 31) / 32, (n + 7) / 8);
            product<<<grid, block>>>(out, a, b, int(n));
        } else {
            relu<<<(n + 255) / 256, 256>>>(out, a, n);
        }
        cudaEventRecord(end);
    }
    cudaError_t error = cudaDeviceSynchronize();
    float milliseconds = 0.0f;
    cudaEventElapsedTime(&milliseconds, begin, end);
    std::printf("%s %.6f\n", cudaGetErrorString(error), milliseconds);
    return error != cudaSuccess;
}
"""
PROGRAMS = {
    "product_4096": ("product", "4096"),
    "product_8192": ("product", "8192"),
    "elementwise_7GB": ("relu", str(7 * 1024**3 // 4)),
    "elementwise_4MB": ("relu", str(1 << 20)),
}
WAYS: tuple[tuple[Collection, Replay], ...] = (
    (DEFAULT, "kernel"), (COUNTED, "kernel"), (BASIC, "kernel"), (TIMED, "kernel"),
    (COUNTED, "application"), (BASIC, "application"), (DEFAULT, "application"),
)  # fmt: skip
COUNTERS = (
    "gpc__cycles_elapsed.max", "gpu__time_duration.sum", "dram__bytes_read.sum",
    "sm__throughput.avg.pct_of_peak_sustained_elapsed",
    "gpu__dram_throughput.avg.pct_of_peak_sustained_elapsed",
    "l1tex__throughput.avg.pct_of_peak_sustained_elapsed",
    "l1tex__average_t_sectors_per_request_pipe_lsu_mem_global_op_ld.ratio",
    "smsp__thread_inst_executed_per_inst_executed.ratio",
)  # fmt: skip


def alone(program: list[str]) -> tuple[float, float]:
    """Return milliseconds of the second of two launches, and seconds of the program with one."""
    said = subprocess.run([*program, "2"], capture_output=True, text=True, check=True).stdout
    began = time.monotonic()
    subprocess.run([*program, "1"], stdout=subprocess.DEVNULL, check=True)
    return float(said.split()[-1]), time.monotonic() - began


def profiled(
    ncu: Path, program: list[str], collection: Collection, replay: Replay, seconds: float,
    launches: int,
) -> dict[str, Any]:
    """Return the cost of one profile of so many launches, and what it says of the first."""
    with tempfile.TemporaryDirectory(prefix="profile-cost-") as folder:
        directory = Path(folder)
        began = time.monotonic()
        result = profile_program(
            [*program, str(launches)], directory=directory, seconds=seconds, ncu=ncu,
            collection=collection, replay=replay, environment=os.environ,
        )  # fmt: skip
        whole = time.monotonic() - began
        found: dict[str, Any] = {
            "collection": collection.name, "replay": replay, "launches": launches,
            "seconds": whole,
            "failure": result.reason,
        }  # fmt: skip
        if result.profile is None:
            return found
        log = (directory / "ncu.log").read_text(errors="replace")
        began = time.monotonic()
        read_report(directory / "profile.ncu-rep", ncu, directory=directory)
        launch = result.profile.launches[0]
        return found | {
            "got": result.collection,
            "read_seconds": time.monotonic() - began,
            "reader": result.reader,
            "passes": sorted({int(count) for count in re.findall(r"- (\d+) pass", log)}),
            "warnings": re.findall(r"==WARNING== (.*)", log)[:5],
            "bottleneck": launch.bottleneck,
            "lines": len(launch.lines),
            "stalls": sum("pcsamp" in name for name in launch.metrics),
            "metrics": len(launch.metrics),
            "counters": {name: launch.metrics.get(name) for name in COUNTERS},
        }


def main() -> None:
    """Measure every way on every program; print a table as it grows."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--out", type=Path)
    parser.add_argument("--seconds", type=float, default=120.0, help="limit of one profile")
    parser.add_argument("--only", default=",".join(PROGRAMS), help="programs, with commas between")
    parser.add_argument("--launches", type=int, default=1, help="of each program")
    parser.add_argument("--ways", default="", help="collections, with commas; by default all")
    arguments = parser.parse_args()
    ncu = find_ncu()
    if ncu is None:
        raise SystemExit("ncu is not on PATH")
    rows: dict[str, Any] = {}
    with tempfile.TemporaryDirectory(prefix="profile-cost-") as folder:
        source, binary = Path(folder, "kernels.cu"), Path(folder, "kernels")
        source.write_text(SOURCE)
        command = ["nvcc", "-O3", "-arch=native", "-lineinfo", str(source), "-o", str(binary)]
        subprocess.run(command, check=True)
        for name in arguments.only.split(","):
            program = [str(binary), *PROGRAMS[name]]
            milliseconds, seconds = alone(program)
            chosen = affordable(1e3 * milliseconds).name
            rows[name] = {"milliseconds": milliseconds, "program_seconds": seconds,
                          "chosen": chosen, "ways": []}  # fmt: skip
            print(f"{name}: {milliseconds:.2f} ms; program {seconds:.2f} s; chosen: {chosen}")
            for collection, replay in WAYS:
                if arguments.ways and collection.name not in arguments.ways.split(","):
                    continue
                found = profiled(
                    ncu, program, collection, replay, arguments.seconds, arguments.launches
                )
                rows[name]["ways"].append(found)
                print(
                    f"  {collection.name:8} {replay:12} {found['seconds']:7.2f} s  read "
                    f"{found.get('read_seconds', 0):5.2f} s  passes {found.get('passes')}  "
                    f"got {found.get('got')}  {found.get('bottleneck')}  lines "
                    f"{found.get('lines')}  stalls {found.get('stalls')}  {found['failure']} "
                    f"{found.get('warnings', [])}",
                    flush=True,
                )
                if arguments.out:
                    document = {"date": datetime.date.today().isoformat(), "programs": rows}
                    arguments.out.write_text(json.dumps(document, indent=2) + "\n")


if __name__ == "__main__":
    sys.exit(main())
