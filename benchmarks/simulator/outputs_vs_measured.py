"""Compares the outputs of small kernels of many kinds on the simulated GPU with a real one's.

    python benchmarks/simulator/outputs_vs_measured.py [--gpu H200] [--json]

Runs ground_truth/outputs.cu whole on the stand-in runtime and compares with the outputs of a real
GPU in ground_truth/outputs.txt.gz: how many elements agree bit for bit, and how many units in the
last place the others differ by. A kernel that cannot run is counted as refused, with the reason.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from program_run import run_program
from simulated_vs_measured import read_text

from kernelblaster.harness.build.toolchain import find_toolchain
from kernelblaster.harness.errors import UserError
from kernelblaster.harness.gpus import find_gpu

HERE = Path(__file__).resolve().parents[1] / "ground_truth"
_BITS = {"i32": 32, "f32": 32, "f64": 64, "f16": 16, "bf16": 16}


def main() -> None:
    """Run, compare and print."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--gpu", default="H200")
    parser.add_argument("--json", action="store_true")
    arguments = parser.parse_args()
    try:
        real = parse_outputs(read_text(HERE / "outputs.txt.gz"))
        with tempfile.TemporaryDirectory(prefix="outputs-") as folder:
            os.environ["OUTPUTS"] = str(Path(folder, "outputs.txt"))
            run = run_program(
                find_toolchain(), HERE / "outputs.cu", find_gpu(arguments.gpu), whole=True
            )
            simulated = parse_outputs(Path(folder, "outputs.txt").read_text())
    except (UserError, OSError) as error:
        print(f"error: {error}", file=sys.stderr)
        raise SystemExit(2) from None
    refusals = dict(zip(real, (launch.refusal for launch in run.launches), strict=True))
    rows = {name: compare(*real[name], simulated[name][1], refusals[name]) for name in real}
    if arguments.json:
        print(json.dumps(rows, indent=1))
        return
    print(f"{'output':22s} {'type':>5s} {'elements':>8s} {'equal':>7s} {'worst ulps':>10s}")
    for name, row in rows.items():
        told = row["refused"] or f"{row['equal']:7d} {row['worst_ulps']:10d}"
        print(f"{name:22s} {row['type']:>5s} {row['elements']:8d} {told}")
    exact = sum(not row["refused"] and row["worst_ulps"] == 0 for row in rows.values())
    near = sum(not row["refused"] and 0 < row["worst_ulps"] <= 4 for row in rows.values())
    print(f"{exact} of {len(rows)} bit for bit, {near} more within 4 ulps, "
          f"{sum(bool(row['refused']) for row in rows.values())} refused")  # fmt: skip


def parse_outputs(text: str) -> dict[str, tuple[str, npt.NDArray[np.int64]]]:
    """Return type and bits of each output; the program writes one a line."""
    found = {}
    for line in text.splitlines():
        name, kind, _, digits = line.split(" ")
        size = _BITS[kind] // 4
        bits = [int(digits[at : at + size], 16) for at in range(0, len(digits), size)]
        found[name] = (kind, np.array(bits, dtype=np.uint64).astype(np.int64))
    return found


def compare(
    kind: str, real: npt.NDArray[np.int64], simulated: npt.NDArray[np.int64], refusal: str
) -> dict[str, Any]:
    """Return how many elements agree, and the largest distance in representable numbers."""
    ordered = [_ordered(kind, each) for each in (real, simulated)]
    distance = np.abs(ordered[0] - ordered[1])
    return {
        "type": kind, "elements": len(real), "equal": int((distance == 0).sum()),
        "worst_ulps": int(distance.max()), "refused": refusal,
    }  # fmt: skip


def _ordered(kind: str, bits: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
    """Map floats to integers in their order, so that neighbours differ by one; both zeros to 0."""
    if kind == "i32":
        return bits
    sign = np.int64(1) << np.int64(_BITS[kind] - 1)
    magnitude = bits & np.int64(int(sign) - 1) if kind != "f64" else bits & np.int64(2**63 - 1)
    negative = bits < 0 if kind == "f64" else (bits & sign) != 0
    return np.where(negative, -magnitude, magnitude)


if __name__ == "__main__":
    main()
