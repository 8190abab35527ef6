"""Compares the simulated GPU's times with times measured on the real one, launch by launch.

    python benchmarks/simulated_vs_measured.py PROGRAM.cu TIMES.csv [--gpu H200]

PROGRAM.cu is a whole CUDA program whose launches, in order, are the rows of TIMES.csv (`launch`,
`median_us`). Its own main() runs on the stand-in runtime with PROF=1 in the environment, at full
sizes; each launch is sampled and timed by the model as a candidate's would be.
"""

from __future__ import annotations

import argparse
import asyncio
import csv
import ctypes
import math
import os
import random
import time
import traceback
from collections.abc import Sequence
from pathlib import Path
from statistics import median

import numpy as np

from kernelblaster.harness.records import Build, KernelResources, LaunchProfile
from kernelblaster.harness.simt import core
from kernelblaster.harness.simt.candidate import KernelLaunch, memory_of, place_variables
from kernelblaster.harness.simt.gpus import Gpu, find_gpu
from kernelblaster.harness.simt.occupancy import occupancy
from kernelblaster.harness.simt.profile import describe_launch
from kernelblaster.harness.simt.ptx import parse
from kernelblaster.harness.simt.runtime import Runtime, build_runtime
from kernelblaster.harness.simt.sampling import sample_launch
from kernelblaster.harness.simt.shared_merging import vector_load_lines
from kernelblaster.harness.toolchain import Toolchain, build, find_toolchain


def main() -> None:
    """Run the comparison and print it."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("program", type=Path)
    parser.add_argument("times", type=Path)
    parser.add_argument("--gpu", default="H200")
    arguments = parser.parse_args()
    gpu = find_gpu(arguments.gpu)
    toolchain = find_toolchain()
    built = asyncio.run(build(toolchain, arguments.program.read_text(), "", gpu.arch))
    if not built.succeeded:
        raise SystemExit(f"{arguments.program} does not compile: {built.diagnostics[0].message}")
    started = time.perf_counter()
    profiles = _run(gpu, toolchain, built)
    seconds = time.perf_counter() - started
    with arguments.times.open() as file:
        measured = [(row["launch"], float(row["median_us"])) for row in csv.DictReader(file)]
    _print(gpu, measured, profiles, seconds)


def _run(gpu: Gpu, toolchain: Toolchain, built: Build) -> list[LaunchProfile]:
    """Run the program's main() and return the profile of each launch."""
    folder = Path(built.directory)
    resources: dict[str, KernelResources] = {kernel.kernel: kernel for kernel in built.kernels}
    library = build_runtime(
        toolchain.cuda_headers(), name="program-runtime",
        more=[Path(__file__).resolve().parent / "program_runtime.c"],
    )  # fmt: skip
    module = parse((folder / "candidate.ptx").read_text())
    vector_loads = _vector_loads(toolchain, folder)
    profiles: list[LaunchProfile] = []
    generator = random.Random(built.key)

    def launched(kernel, grid, block, shared, read):  # type: ignore[no-untyped-def]
        facts = resources[kernel]
        bytes_ = facts.static_shared_bytes + shared
        held = occupancy(gpu.limits, int(np.prod(block)), facts.registers, bytes_)
        parameters = read([p.size for p in module.functions[kernel].parameters])
        asked = KernelLaunch(
            core.Launch(module, kernel, grid, block, shared, parameters, addresses),
            memory_of(runtime),
        )
        try:
            counters = sample_launch(
                gpu, asked, held, bytes_, 1 << 40, vector_loads.get(kernel, {}), generator, {}
            )
        except Exception:
            # The program would end on the launch's error before this could be raised.
            traceback.print_exc()
            raise
        profiles.append(describe_launch(gpu, facts, counters)[0])
        return True

    runtime = Runtime(library, gpu, launched, stream=0)
    allocate = ctypes.CFUNCTYPE(ctypes.c_uint64, ctypes.c_uint64)(
        lambda size: runtime.allocate("buffer", size).address
    )
    runtime.library.kb_set_allocator(allocate)
    runtime.load(folder / "candidate.so")
    addresses = place_variables(module, runtime)
    os.environ["PROF"] = "1"
    program = ctypes.CDLL(str(folder / "candidate.so"))
    status = program.main()
    if runtime.error is not None:
        raise runtime.error
    if status:
        raise SystemExit(f"the program ended with status {status}")
    return profiles


def _vector_loads(toolchain: Toolchain, folder: Path) -> dict[str, dict[int, int]]:
    import subprocess

    nvdisasm = toolchain.tool("nvdisasm")
    if nvdisasm is None:
        return {}
    listing = subprocess.run(
        [str(nvdisasm), "-gi", str(folder / "candidate.cubin")],
        capture_output=True, text=True, check=True,
    )  # fmt: skip
    return vector_load_lines(listing.stdout)


def _print(
    gpu: Gpu,
    measured: Sequence[tuple[str, float]],
    profiles: Sequence[LaunchProfile],
    seconds: float,
) -> None:
    if len(measured) != len(profiles):
        raise SystemExit(f"{len(profiles)} launches were made, {len(measured)} were measured")
    print(f"{gpu.full_name}, simulated against measured; constants {gpu.constants.origin}")
    print(f"{'launch':20s} {'measured us':>12s} {'simulated us':>12s} {'ratio':>6s}  bottleneck")
    factors = []
    for (name, us), profile in zip(measured, profiles, strict=True):
        ratio = profile.microseconds / us
        factors.append(math.exp(abs(math.log(ratio))))
        ties = "".join(f"={tie}" for tie in profile.bottleneck_ties)
        terms = " ".join(
            f"{term}={value:.3g}"
            for term, value in sorted(profile.terms.items(), key=lambda item: -item[1])[:4]
        )
        print(f"{name:20s} {us:12.1f} {profile.microseconds:12.1f} {ratio:6.2f}  "
              f"{profile.bottleneck}{ties}  [{terms}]")  # fmt: skip
    times = [us for _, us in measured]
    simulated = [profile.microseconds for profile in profiles]
    right, pairs = _pairs(times, simulated)
    print(
        f"factor: median {median(factors):.3f}, 90 % {np.percentile(factors, 90):.2f}, worst "
        f"{max(factors):.2f} ({measured[int(np.argmax(factors))][0]}); Spearman "
        f"{_spearman(times, simulated):.3f}; pairs that differ by 1.3x or more in the right order "
        f"{right}/{pairs}; {seconds:.1f} s for {len(profiles)} launches"
    )


def _spearman(a: Sequence[float], b: Sequence[float]) -> float:
    ranks = [np.argsort(np.argsort(values)) for values in (a, b)]
    return float(np.corrcoef(ranks[0], ranks[1])[0, 1])


def _pairs(measured: Sequence[float], simulated: Sequence[float]) -> tuple[int, int]:
    right = total = 0
    for i in range(len(measured)):
        for j in range(i):
            low, high = sorted((measured[i], measured[j]))
            if high / low >= 1.3:
                total += 1
                right += (measured[i] > measured[j]) == (simulated[i] > simulated[j])
    return right, total


if __name__ == "__main__":
    main()
