"""What a step costs beside its evaluation, on an empty and on a large knowledge base.

A run of 2 iterations of 2 rollouts of 4 steps on the tests' text device, whose evaluations take no
time: what is left is the graph, its checkpoints, its stores and the knowledge base. With another
checkout's interpreter the same is measured with that code, in a process of its own.

    python benchmarks/step_overhead.py [--python INTERPRETER] [--rows 0,10000]
"""

from __future__ import annotations

import argparse
import asyncio
import datetime
import importlib
import importlib.util
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
RUNS = 3
STEPS = 2 * 2 * 4


def side(rows: int) -> list[float]:
    """Return the milliseconds of a step in each of some runs, with the package that is imported."""
    install = text_support().install
    took = []
    with tempfile.TemporaryDirectory(prefix="kernelblaster-") as folder:
        scratch = Path(folder)
        if rows:
            spec = importlib.util.spec_from_file_location("filler", HERE / "knowledge_base.py")
            assert spec is not None and spec.loader is not None
            filler = importlib.util.module_from_spec(spec)
            spec.loader.exec_module(filler)
            filler.fill(scratch / "kb", rows)

        install(replace)
        asked = {"iterations": 2, "rollouts": 2, "steps": 4, "knowledge": str(scratch / "kb")}
        for number in range(RUNS):
            session = new_session(scratch / f"run-{number}", {**asked, "seed": number})
            began = time.monotonic()
            result = asyncio.run(session.run())
            took.append(1e3 * (time.monotonic() - began) / STEPS)
            session.close()
            assert result.evaluations > 1
    return took


def text_support() -> Any:
    """Return the tests' text device, of the package that is imported."""
    import kernelblaster

    root = Path(str(kernelblaster.__file__)).resolve().parent
    sys.path[:0] = [str(root / "tests"), str(root / "tests/support")]
    return importlib.import_module("graph_support")


def replace(name: str, value: Any) -> None:
    """Put a value in place of another for the rest of this process; `name` is dotted."""
    module, _, attribute = name.rpartition(".")
    setattr(importlib.import_module(module), attribute, value)


def new_session(directory: Path, asked: dict[str, Any]) -> Any:
    """Lay out a run of the text task in a directory."""
    from kernelblaster.graph.session import Session

    try:
        from asked import Asked
    except ImportError:  # Before request and context were two.
        from kernelblaster.nodes.records import OptimizeRequest

        return Session.create(directory, OptimizeRequest(task="text.py", **asked))
    return Asked.of(task="text.py", **asked).session(directory)


def main() -> None:
    """Measure both sides in turns, or be one of them."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--python", help="interpreter of another checkout")
    parser.add_argument("--rows", default="0,10000")
    parser.add_argument("--side", type=int)
    parser.add_argument("--out", type=Path)
    given = parser.parse_args()
    if given.side is not None:
        print(json.dumps(side(given.side)))
        return
    lines = [
        f"{datetime.datetime.now(datetime.UTC):%Y-%m-%d %H:%M} UTC, {os.cpu_count()} cores, load "
        f"{os.getloadavg()[0]:.1f} at the start; {RUNS} runs of {STEPS} steps each, ms of a step",
        f"{'rows':>8s}  {'before':>8s}  {'now':>8s}  ratio",
    ]
    print("\n".join(lines), flush=True)
    for rows in (int(text) for text in given.rows.split(",")):
        found = {}
        for name, python in (("before", given.python), ("now", sys.executable)):
            if python:
                command = [python, __file__, "--side", str(rows)]
                done = subprocess.run(command, capture_output=True, text=True, cwd="/")
                if done.returncode:
                    raise SystemExit(f"{name}: {done.stderr[-1500:]}")
                found[name] = statistics.median(json.loads(done.stdout.splitlines()[-1]))
        before = f"{found['before']:8.1f}" if "before" in found else f"{'-':>8s}"
        ratio = f"{found['before'] / found['now']:5.1f}" if "before" in found else "-"
        lines.append(f"{rows:8d}  {before}  {found['now']:8.1f}  {ratio}")
        print(lines[-1], flush=True)
    if given.out:
        given.out.write_text("\n".join(lines) + "\n")


if __name__ == "__main__":
    main()
