"""Measures the ground truth of the simulated GPU on this machine's GPU.

    python benchmarks/ground_truth/measure.py OUT [--only PROGRAM ...] [--no-profiles]

Builds the programs beside this file, times their launches (NAME_times.csv), profiles them once
with Nsight Compute (NAME_raw.csv.gz and NAME_details.csv.gz; those in WHOLE with all counters,
`constants` and `constant_memory` with the counters that identify their constants), and writes
the outputs of `outputs` (outputs.txt.gz) and what the machine is (machine.json). Each step that
fails is told and left out.
Needs nvcc, ncu and the standard library only; about 6 minutes on an H200.
"""

from __future__ import annotations

import argparse
import gzip
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

HERE = Path(__file__).resolve().parent
WHOLE = ("held_out", "second_look")
"""Programs of which all counters are collected."""
PROGRAMS = (*WHOLE, "constants", "constant_memory", "serial", "transfers", "outputs")
COUNTERS = (
    "gpu__time_duration.sum", "gpc__cycles_elapsed.max", "gpc__cycles_elapsed.avg.per_second",
    "sm__cycles_active.avg", "launch__registers_per_thread", "launch__waves_per_multiprocessor",
    "smsp__inst_executed.sum", "smsp__thread_inst_executed_per_inst_executed.ratio",
    "sm__inst_executed_pipe_alu.sum", "sm__inst_executed_pipe_fma.sum",
    "sm__inst_executed_pipe_xu.sum", "sm__inst_executed_pipe_lsu.sum",
    "sm__inst_executed_pipe_fp64.sum", "sm__inst_executed_pipe_fp16.sum",
    "sm__inst_executed_pipe_uniform.sum", "sm__pipe_tensor_cycles_active.avg",
    "l1tex__data_pipe_lsu_wavefronts.sum", "l1tex__data_pipe_lsu_wavefronts_mem_shared.sum",
    "l1tex__t_requests_pipe_lsu_mem_global_op_ld.sum",
    "l1tex__t_sectors_pipe_lsu_mem_global_op_ld.sum",
    "l1tex__t_requests_pipe_lsu_mem_global_op_st.sum",
    "l1tex__t_sectors_pipe_lsu_mem_global_op_st.sum",
    "l1tex__t_sectors_pipe_lsu_mem_global_op_red.sum",
    "l1tex__t_sectors_pipe_lsu_mem_global_op_atom.sum",
    "l1tex__t_sector_hit_rate.pct", "lts__t_sectors.sum", "lts__t_requests.sum",
    "lts__t_sector_hit_rate.pct", "lts__t_sectors_op_red.sum", "lts__t_requests_op_red.sum",
    "dram__bytes_read.sum", "dram__bytes_write.sum",
)  # fmt: skip
"""What is collected of `constants`, beside Nsight Compute's section LaunchStats."""
OF_CONSTANT_MEMORY = (
    "sm__inst_executed_pipe_adu.sum", "idc__requests.sum", "idc__request_cycles_active.sum",
    "idc__request_hit_rate.pct", "smsp__imc_requests.sum", "smsp__imc_request_hit_rate.pct",
    "gcc__cache_requests_type_constant.sum",
)  # fmt: skip
"""What is collected of `constant_memory` beside these."""


def main() -> None:
    """Measure and say what was written."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("out", type=Path)
    parser.add_argument("--arch", default="sm_90")
    parser.add_argument("--only", nargs="+", choices=PROGRAMS, default=list(PROGRAMS))
    parser.add_argument("--no-profiles", action="store_true")
    arguments = parser.parse_args()
    arguments.out.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="ground-truth-") as scratch:
        folder = Path(scratch)
        with ThreadPoolExecutor() as pool:
            built = list(
                pool.map(lambda name: build(name, arguments.arch, folder), arguments.only)
            )
        programs = [name for name, done in zip(arguments.only, built, strict=True) if done]
        (arguments.out / "machine.json").write_text(json.dumps(machine(), indent=1) + "\n")
        if "outputs" in programs:
            text = step("outputs", [str(folder / "outputs"), str(folder / "outputs.txt")], 60)
            if text is not None:
                pack((folder / "outputs.txt").read_text(), arguments.out / "outputs.txt.gz")
        timed = [name for name in programs if name != "outputs"]
        for name in timed:
            text = step(f"{name}, times", [str(folder / name)], 120)
            if text is not None:
                (arguments.out / f"{name}_times.csv").write_text(text)
        if not arguments.no_profiles:
            for name in timed:
                profile(name, folder, arguments.out)


def step(what: str, command: Sequence[str], seconds: float, profiled: bool = False) -> str | None:
    """Run a command; print how it went; return its output, or None where it failed."""
    began = time.monotonic()
    environment = {**os.environ, **({"PROF": "1"} if profiled else {})}
    try:
        done = subprocess.run(command, capture_output=True, text=True, errors="replace",
                              timeout=seconds, env=environment)  # fmt: skip
    except (OSError, subprocess.TimeoutExpired) as error:
        print(f"{what}: {error}", flush=True)
        return None
    took = time.monotonic() - began
    if done.returncode:
        print(f"{what}: status {done.returncode} after {took:.1f} s\n{done.stdout[-1500:]}"
              f"{done.stderr[-1500:]}", flush=True)  # fmt: skip
        return None
    print(f"{what}: {took:.1f} s", flush=True)
    return done.stdout


def build(name: str, arch: str, folder: Path) -> bool:
    """Compile one program."""
    command = ["nvcc", "-O3", f"-arch={arch}", "-lineinfo", str(HERE / f"{name}.cu"), "-o",
               str(folder / name)]  # fmt: skip
    return step(f"{name}, build", command, 300) is not None


def profile(name: str, folder: Path, out: Path) -> None:
    """Profile every launch of a program once and write the two pages."""
    ncu = shutil.which("ncu") or "/usr/local/cuda/bin/ncu"
    report = folder / f"{name}.ncu-rep"
    counters = COUNTERS + OF_CONSTANT_MEMORY if name == "constant_memory" else COUNTERS
    collect = (
        ["--set", "full"]
        if name in WHOLE
        else ["--section", "LaunchStats", "--metrics", ",".join(counters)]
    )
    command = [ncu, "--clock-control", "none", *collect, "-f", "-o", str(report),
               str(folder / name)]  # fmt: skip
    if step(f"{name}, profile", command, 400, profiled=True) is None:
        return
    for page in ("raw", "details"):
        text = step(f"{name}, page {page}",
                    [ncu, "--import", str(report), "--csv", "--page", page], 120)  # fmt: skip
        if text is not None:
            pack(text, out / f"{name}_{page}.csv.gz")


def pack(text: str, path: Path) -> None:
    """Write a text compressed, the same bytes for the same text."""
    path.write_bytes(gzip.compress(text.encode(), mtime=0))


def machine() -> dict[str, str]:
    """Return the GPU, its clocks and driver, the tools, and the date."""
    query = "name,driver_version,clocks.max.sm,clocks.max.mem,clocks.sm,power.limit"
    gpu = step("nvidia-smi", ["nvidia-smi", f"--query-gpu={query}", "--format=csv,noheader"], 30)
    nvcc = step("nvcc", ["nvcc", "--version"], 30)
    return {
        "date": time.strftime("%Y-%m-%d", time.gmtime()),
        query: (gpu or "").strip(),
        "nvcc": (nvcc or "").strip().rpartition("\n")[2],
        "python": sys.version.split()[0],
    }


if __name__ == "__main__":
    main()
