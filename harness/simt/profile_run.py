"""Runs a candidate at full dimensions, in the child: each launch on a sample of its blocks."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import numpy as np

from . import core
from .candidate import Candidate, KernelLaunch, WorkspaceTooLarge, load_candidate
from .occupancy import occupancy
from .ptx import PtxError
from .sampling import LaunchFailed, sample_launch
from .verify_run import describe_report, finding

TILE_BYTES = 4 << 20
MOST_LAUNCHES = 64
"""Launches sampled in one call: more would take minutes, so such a candidate is refused."""


def profile(request: dict[str, Any]) -> dict[str, Any]:
    """Call launch() once and return the counters of each launch. The report's body."""
    launches: list[dict[str, Any]] = []
    reports: list[dict[str, Any]] = []
    resources = {kernel["kernel"]: kernel for kernel in request["kernels"]}
    vector_lines = {
        kernel: {int(line): bits for line, bits in lines.items()}
        for kernel, lines in request.get("vector_loads", {}).items()
    }
    budget = int(request["max_instructions"])

    def on_launch(candidate: Candidate, asked: KernelLaunch) -> bool:
        if reports:
            return False
        if len(launches) >= MOST_LAUNCHES:
            reports.append(finding("timed_out", f"more than {MOST_LAUNCHES} launches in one call",
                                    asked.launch.kernel, None))  # fmt: skip
            return False
        kernel = resources.get(asked.launch.kernel, {})
        threads = int(np.prod(asked.launch.block))
        shared = int(kernel.get("static_shared_bytes", 0)) + asked.launch.dynamic_shared_bytes
        held = occupancy(candidate.gpu.limits, threads, int(kernel.get("registers", 32)), shared)
        try:
            counters = sample_launch(
                candidate.gpu, asked, held, shared, budget,
                vector_lines.get(asked.launch.kernel, {}),
            )  # fmt: skip
        except core.UnsupportedInstruction as error:
            reports.append(finding("unsupported", str(error), asked.launch.kernel, error.line))
            return False
        except LaunchFailed as error:
            reports.extend(describe_report(report, candidate) for report in error.reports)
            if not reports:
                message = f"a few blocks need more than {budget} warp instructions"
                reports.append(finding("timed_out", message, asked.launch.kernel, None))
            return False
        launches.append(counters.to_json())
        return True

    try:
        candidate = load_candidate(request, on_launch)
    except (PtxError, WorkspaceTooLarge) as error:
        kind = "unsupported" if isinstance(error, PtxError) else "invalid_launch"
        return {"launches": [], "faults": [], "reports": [finding(kind, str(error), None, None)]}
    _back_tensors(request, candidate)
    faults = candidate.call()
    return {"launches": launches, "faults": faults, "reports": reports}


def _back_tensors(request: dict[str, Any], candidate: Candidate) -> None:
    """Let inputs repeat the values of the first case, copied on write: no memory is filled."""
    case = Path(request["cases_directory"], request["cases"][0]["directory"])
    for tensor, allocation in candidate.tensors.items():
        if tensor.role == "output" or not tensor.nbytes:
            continue
        values = np.fromfile(case / f"{tensor.name}.bin", dtype=np.uint8)
        if values.size >= tensor.nbytes:
            candidate.runtime.view(allocation)[:] = values[: tensor.nbytes]
            continue
        pages = -(-tensor.nbytes // 4096) * 4096
        tile = np.resize(values, min(TILE_BYTES, pages))
        descriptor = os.memfd_create(tensor.name)
        try:
            os.write(descriptor, tile.tobytes())
            candidate.runtime.back_with_tile(allocation, descriptor, tile.size)
        finally:
            os.close(descriptor)
