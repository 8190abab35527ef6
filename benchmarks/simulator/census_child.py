"""Runs one program of the census: its main() against the stand-in runtime, its launches simulated.

    python benchmarks/simulator/census_child.py REQUEST.json     (started by census_programs.py)
"""

from __future__ import annotations

import ctypes
import json
import sys
import time
from pathlib import Path

from program_host import ProgramHost

from kernelblaster.harness.gpus import find_gpu
from kernelblaster.harness.host.entries import read_entries
from kernelblaster.harness.records.builds import KernelResources
from kernelblaster.harness.simt.ptx.parser import PtxError, parse
from kernelblaster.harness.simt.run import core
from kernelblaster.harness.simt.run.candidate import memory_of


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
    text = Path(request["ptx"]).read_text()
    module, entries = parse(text), read_entries(text)

    def launched(call):  # type: ignore[no-untyped-def]
        launch = core.Launch(module, call.kernel, call.grid, call.block, call.shared_bytes,
                             call.arguments, addresses)  # fmt: skip
        report["launches"] += 1
        left = request["budget"] - report["instructions"]
        try:
            result = core.run(launch, memory_of(runtime.arena), checks=request["checks"],
                              max_instructions=max(1, left))  # fmt: skip
        except core.UnsupportedInstruction as error:
            report["refused"] = str(error)
            return
        report["instructions"] += int(result.counters["warps"].sum())
        for found in result.reports:
            report["reports"].append(
                {"kind": str(found.kind), "kernel": found.kernel, "line": found.line,
                 "detail": found.detail, "count": found.count, "text": found.instruction}
            )  # fmt: skip

    runtime = ProgramHost(Path(request["runtime"]), find_gpu(request["gpu"]), launched)
    resources = {kernel["kernel"]: KernelResources(**kernel) for kernel in request["kernels"]}
    addresses = runtime.load(Path(request["library"]), module, resources, entries)
    program = ctypes.CDLL(request["program"])
    status = program.census_run()
    if runtime.error is not None:
        raise runtime.error
    return status


if __name__ == "__main__":
    main()
