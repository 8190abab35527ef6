"""Winners as installed operators on this machine's GPU: right, compiled whole, captured.

    python benchmarks/runs/operator_on_gpu.py RUN... [--out FILE.json]

Each winner is exported with --format operator and imported from a folder; the reference's answers
to its own inputs are compared with the operator's, called as it is, in torch.compile with
fullgraph=True, and in a CUDA graph; calls that must be refused are tried. Times are of calls with a
warm cache: what Python adds shows beside the graph's. Needs the GPU that the runs were measured on.
"""

from __future__ import annotations

import argparse
import importlib
import json
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

CALLS = 50


def main() -> int:
    """Check all runs, each in a process of its own; with --one, here."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("runs", type=Path, nargs="+")
    parser.add_argument("--out", type=Path)
    parser.add_argument("--one", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.one:
        with tempfile.TemporaryDirectory() as folder:
            print(json.dumps(checked(options.runs[0].resolve(), folder)))
        return 0
    rows = []
    for run in options.runs:
        command = [sys.executable, str(Path(__file__).resolve()), str(run), "--one"]
        done = subprocess.run(command, capture_output=True, text=True)
        last = (done.stdout if done.returncode == 0 else done.stderr).strip().rpartition("\n")[2]
        rows.append(json.loads(last) if done.returncode == 0 else {"run": str(run), "failed": last})
        print(rows[-1], flush=True)
    if options.out:
        options.out.write_text(json.dumps(rows, indent=1) + "\n")
    return int(any("failed" in row or not row["right"] for row in rows))


def checked(run: Path, folder: str) -> dict[str, Any]:
    """Return what one winner's operator comes to, built in a folder."""
    import torch

    from kernelblaster.harness.build.toolchain import find_toolchain
    from kernelblaster.harness.reference.loading.model import Reference
    from kernelblaster.nodes.run.reading.winner import winner_of
    from kernelblaster.tools.exporting.operator_package import operator_package

    winner = winner_of(run)
    for name, data in operator_package(winner, find_toolchain()).items():
        path = Path(folder, name)
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data)
    sys.path.insert(0, folder)
    operator = getattr(importlib.import_module(f"{winner.name}_op"), winner.name)
    task = winner.task
    reference = Reference(task.source, task.path, {}, "cuda", task.reading)
    instance = reference.instance(seed=1)
    held = instance.inputs | instance.parameters | instance.buffers
    given = [held[spec.name].detach() for spec in task.full.tensors if spec.role != "output"]
    expected = reference.outputs(instance.model, instance.arguments)

    def right(found: Any) -> bool:
        outputs = found if isinstance(found, tuple) else (found,)
        near = task.tolerance
        return all(
            torch.allclose(one, other, rtol=near.relative, atol=near.absolute)
            for one, other in zip(outputs, expected, strict=True)
        )

    whole = torch.compile(lambda *tensors: operator(*tensors), fullgraph=True)
    verdicts = {"eager": right(operator(*given)), "compiled": right(whole(*given))}
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        captured = operator(*given)
    graph.replay()
    torch.cuda.synchronize()
    verdicts["graph"] = right(captured)
    verdicts["refuses"] = all(
        refused(operator, each) for each in (
            [given[0].cpu(), *given[1:]], [given[0].to(torch.float64), *given[1:]],
            [given[0][:1].clone(), *given[1:]] if given[0].shape[:1] != (1,) else [given[0].cpu()],
        )
    )  # fmt: skip
    return {
        "run": str(run), "task": task.name, "shapes": 1 + len(winner.others),
        "right": all(verdicts.values()), **verdicts,
        "call_us": timed(lambda: operator(*given)), "graph_us": timed(graph.replay),
        "torch": torch.__version__,
    }  # fmt: skip


def refused(operator: Callable[..., Any], given: list[Any]) -> bool:
    """Say whether a call is refused with a ValueError."""
    try:
        operator(*given)
    except ValueError:
        return True
    return False


def timed(call: Callable[[], Any]) -> float:
    """Return microseconds of one of many calls."""
    import torch

    for _ in range(3):
        call()
    first, last = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    first.record()
    for _ in range(CALLS):
        call()
    last.record()
    last.synchronize()
    return 1000 * first.elapsed_time(last) / CALLS


if __name__ == "__main__":
    sys.exit(main())
