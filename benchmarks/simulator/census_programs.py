"""Compiles and runs a folder of CUDA programs with C++ drivers (NAME/init.cu, NAME/driver.cpp).

A driver computes its reference with libtorch and prints `passed` or `failed`; here it runs on the
CPU, its tensors in the simulated GPU's memory, its sizes made smaller.
"""

from __future__ import annotations

import asyncio
import json
import re
import subprocess
import sys
import sysconfig
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from kernelblaster.harness.build.toolchain import Toolchain, build
from kernelblaster.harness.gpus import find_gpu
from kernelblaster.harness.records.builds import Build

HERE = Path(__file__).resolve().parent
SITE = Path(sysconfig.get_paths()["purelib"])
_LITERAL = re.compile(r"(?<![\w.\"])(\d{2,})(?![\w.\"])")
_BATCH = re.compile(r"(\bbatch(?:_size)?\s*=\s*)\d+")
_ROUNDS = ((64, 2), (256, 2))
"""Largest size and batch size of each attempt: a kernel may need whole tiles."""
INSTRUCTIONS = 100_000_000
"""Warp instructions of one attempt."""
SECONDS = 90


@dataclass
class Outcome:
    """What one program did."""

    name: str
    compiled: bool = False
    ran: bool = False
    right: bool = False
    attempt: int = 0
    note: str = ""
    """Of the first attempt that ran, unless a later one was right."""
    refused: str = ""
    reports: list[dict[str, Any]] = field(default_factory=list)
    launches: int = 0
    instructions: int = 0
    difference: str = ""
    """Largest difference from the reference, and the reference's largest value."""
    profile: str = ""


def programs(folder: Path) -> list[Path]:
    """Return the folders below that hold an init.cu and a driver.cpp."""
    return sorted(path.parent for path in folder.rglob("init.cu")
                  if (path.parent / "driver.cpp").exists())  # fmt: skip


def run_programs(
    folder: Path, gpu: str, toolchain: Toolchain, runtime: Path, only: str
) -> Iterator[Outcome]:
    """Compile and run each program in turn."""
    with tempfile.TemporaryDirectory(prefix="census-") as work:
        header = _precompiled(Path(work))
        for program in programs(folder):
            if only in f"{program.parent.name}/{program.name}":
                yield _one(program, gpu, toolchain, runtime, header, Path(work))


def _one(
    program: Path, gpu: str, toolchain: Toolchain, runtime: Path, header: Path, work: Path
) -> Outcome:
    outcome = Outcome(f"{program.parent.name}/{program.name}")
    source = (program / "init.cu").read_text()
    built = asyncio.run(build(toolchain, source, "", find_gpu(gpu).arch))
    if not built.succeeded:
        outcome.note = f"init.cu: {built.diagnostics[0].message}"
        return outcome
    driver = (program / "driver.cpp").read_text()
    if 'extern "C"' in source:  # the driver takes the linkage from a header of init.cu
        driver = re.sub(r"^(?=void launch_gpu)", 'extern "C" ', driver, flags=re.MULTILINE)
    tried: set[str] = set()
    for attempt, (largest, batch) in enumerate(_ROUNDS):
        text = shrunk(driver, largest, batch)
        if text in tried:
            continue
        tried.add(text)
        outcome.attempt = attempt
        library = _driver(text, built, header, work)
        if isinstance(library, str):
            outcome.note = f"driver.cpp: {library}"
            if outcome.compiled:
                continue
            return outcome
        outcome.compiled = True
        _run(outcome, library, built, gpu, runtime, work)
        if outcome.right or outcome.refused or not outcome.ran:
            break
    return outcome


def shrunk(driver: str, largest: int, batch: int) -> str:
    """Return the driver on the CPU, its integers halved until they are no more than `largest`."""
    head, body = driver.split("int main", 1)
    if largest:
        body = _BATCH.sub(lambda found: f"{found[1]}{batch}", body)
        body = "\n".join(_shrink_line(line, largest) for line in body.splitlines())
    text = f"{head}int main{body}\n"
    text = re.sub(r'#include\s*[<"]cuda_model.cuh[>"]', "", text)
    text = text.replace("kCUDA", "kCPU").replace("is_cuda()", "is_cpu()")
    return text.replace("torch::cuda::is_available()", "true")


def _shrink_line(line: str, largest: int) -> str:
    if line.lstrip().startswith("//"):
        return line

    def smaller(found: re.Match[str]) -> str:
        value = int(found[1])
        while value > largest and value % 2 == 0:
            value //= 2
        # An odd size stays odd; numbers that are no sizes (seeds) may change, too.
        return str(value if value <= 4 * largest else largest + value % 16)

    return _LITERAL.sub(smaller, line)


def _flags() -> list[str]:
    include = SITE / "torch" / "include"
    cuda = next(iter(sorted(SITE.glob("nvidia/cu*/include"), reverse=True)))
    return ["g++", "-std=c++17", "-O0", "-w", "-fPIC", f"-I{include}",
            f"-I{include}/torch/csrc/api/include", f"-I{cuda}"]  # fmt: skip


def _precompiled(work: Path) -> Path:
    """Compile the support header once: PyTorch's headers take half a minute."""
    header = work / "census_support.h"
    header.write_text((HERE / "census_support.h").read_text())
    command = [*_flags(), "-x", "c++-header", str(header), "-o", f"{header}.gch"]
    subprocess.run(command, check=True)
    return header


def _driver(text: str, built: Build, header: Path, work: Path) -> Path | str:
    source, library = work / "driver.cpp", work / "driver.so"
    source.write_text(text)
    torch = SITE / "torch" / "lib"
    command = [*_flags(), "-shared", "-include", str(header), str(source), "-o", str(library),
               str(Path(built.directory, "candidate.so")), f"-L{torch}", f"-Wl,-rpath,{torch}",
               "-ltorch", "-ltorch_cpu", "-lc10"]  # fmt: skip
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode:
        lines = [line for line in done.stderr.splitlines() if "error" in line]
        return (lines or [done.stderr[-200:]])[0]
    return library


def _run(
    outcome: Outcome, library: Path, built: Build, gpu: str, runtime: Path, work: Path
) -> None:
    folder, report = Path(built.directory), work / "report.json"
    report.unlink(missing_ok=True)
    request = {
        "gpu": gpu, "library": str(folder / "candidate.so"), "ptx": str(folder / "candidate.ptx"),
        "program": str(library), "runtime": str(runtime), "report": str(report),
        "kernels": [kernel.model_dump() for kernel in built.kernels],
        "budget": INSTRUCTIONS, "checks": outcome.attempt < 2,
    }  # fmt: skip
    (work / "request.json").write_text(json.dumps(request))
    try:
        done = subprocess.run(
            [sys.executable, str(HERE / "census_child.py"), str(work / "request.json")],
            capture_output=True, text=True, timeout=SECONDS,
        )  # fmt: skip
    except subprocess.TimeoutExpired:
        outcome.note = f"ran for more than {SECONDS} s"
        return
    told = json.loads(report.read_text()) if report.exists() else {}
    outcome.ran = bool(told) and not told["refused"] and "unlinked" not in told
    outcome.refused = told.get("refused", "")
    outcome.reports = told.get("reports", [])
    outcome.launches, outcome.instructions = told.get("launches", 0), told.get("instructions", 0)
    lines = done.stdout.splitlines()
    ended = any(found["kind"] == "timed_out" for found in outcome.reports)
    outcome.right = "passed" in lines and not ended
    outcome.ran = outcome.ran and not ended
    differences = [line for line in lines if line.startswith("census-difference")]
    outcome.difference = differences[-1].removeprefix("census-difference ") if differences else ""
    errors = [line for line in lines if line.startswith("census-exception")]
    if "unlinked" in told:
        outcome.note = "the driver calls what init.cu does not define"
        return
    outcome.note = "" if outcome.right else " ".join([*errors, *lines[-1:]] or [
        *done.stderr.splitlines()[-1:], f"status {done.returncode}"])  # fmt: skip
