"""Runs one program of the census: its main() against the stand-in runtime, its launches simulated.

    python benchmarks/census_child.py REQUEST.json     (started by census_programs.py)
"""

from __future__ import annotations

import ctypes
import json
import sys
import time
from pathlib import Path

from kernelblaster.harness.gpus import find_gpu
from kernelblaster.harness.simt.ptx.parser import PtxError, parse
from kernelblaster.harness.simt.run import core
from kernelblaster.harness.simt.run.candidate import memory_of, place_variables
from kernelblaster.harness.simt.run.runtime import Runtime


def main() -> None:
    """Serve the request and leave a report beside it."""
    request = json.loads(Path(sys.argv[1]).read_text())
    report: dict[str, object] = {"launches": 0, "instructions": 0, "reports": [], "refused": ""}
    started = time.perf_counter()
    try:
        report["status"] = _run(request, report)
    except PtxError as error:
        report["refused"] = f"PTX: {error}"
    except OSError as error:
        # A runtime function that nobody offers; or the driver calls what init.cu does not define.
        report["refused" if "cuda" in str(error) else "unlinked"] = str(error)
    report["seconds"] = time.perf_counter() - started
    Path(request["report"]).write_text(json.dumps(report))
    sys.stdout.flush()


def _run(request, report):  # type: ignore[no-untyped-def]
    module = parse(Path(request["ptx"]).read_text())
    gpu = find_gpu(request["gpu"])

    def launched(kernel, grid, block, shared, read):  # type: ignore[no-untyped-def]
        parameters = read([p.size for p in module.functions[kernel].parameters])
        launch = core.Launch(module, kernel, grid, block, shared, parameters, addresses)
        report["launches"] += 1
        left = request["budget"] - report["instructions"]
        try:
            result = core.run(
                launch, memory_of(runtime), checks=request["checks"], max_instructions=max(1, left)
            )
        except core.UnsupportedInstruction as error:
            report["refused"] = str(error)
            return False
        report["instructions"] += int(result.counters["warps"].sum())
        for found in result.reports:
            report["reports"].append(
                {"kind": str(found.kind), "kernel": found.kernel, "line": found.line,
                 "detail": found.detail, "count": found.count, "text": found.instruction}
            )  # fmt: skip
        return not result.timed_out

    runtime = Runtime(Path(request["runtime"]), gpu, launched, stream=0)
    allocate = ctypes.CFUNCTYPE(ctypes.c_uint64, ctypes.c_uint64)(
        lambda size: runtime.allocate("buffer", size).address
    )
    runtime.library.kb_set_allocator(allocate)
    runtime.load(Path(request["library"]))
    for kernel in request["kernels"]:
        runtime.describe_kernel(kernel["kernel"], kernel["registers"],
                                kernel["static_shared_bytes"], 1024)  # fmt: skip
    addresses = place_variables(module, runtime)
    program = ctypes.CDLL(request["program"])
    status = program.census_run()
    if runtime.error is not None:
        raise runtime.error
    return status


if __name__ == "__main__":
    main()
