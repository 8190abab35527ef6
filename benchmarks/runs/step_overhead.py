"""What a step costs beside its evaluation, on an empty and on a large knowledge base.

Runs of rollouts of 4 steps on the tests' text device, whose evaluations take no time: what is left
is the graph, its checkpoints, its stores and the knowledge base. Two dozen techniques apply once to
every kernel, and each run has a copy of the base as it was filled: no rollout ends early, or what a
rollout costs would be told as a step's. Each run has a cache of its own, too: what one found would
be read by the next. A run of few rollouts and one of many tell what a further step costs from what
every run costs once, the reading of the knowledge base among it. Times are of the processor, which
others on the machine lengthen still: with another checkout's interpreter the same is measured with
that code, in a process of its own at the same time.

    python benchmarks/runs/step_overhead.py [--python INTERPRETER] [--rows 0,10000]
"""

from __future__ import annotations

import argparse
import asyncio
import importlib
import json
import os
import shutil
import statistics
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from two_sides import beginning, measured

HERE = Path(__file__).resolve().parent
TECHNIQUES = (
    "tune_block_size", "vectorize_memory_access", "fast_math", "unroll_loop", "block_row_reduction",
    "branch_free_selects", "cache_row_in_registers", "column_reduction", "double_buffering",
    "grid_stride_loop", "halo_tiling", "kernel_fission", "loop_interchange", "online_softmax",
    "pad_shared_memory", "predicated_tail", "prefetch_to_l2", "read_only_cache", "shrink_code",
    "split_k", "streaming_hints", "thread_coarsening", "throttle_occupancy", "warp_shuffle_scan",
)  # fmt: skip
STEPS = 4
PAIRS = 5
"""A short and a long run each; the median is told."""
ROLLOUTS = 2, 12


def side(rows: int) -> dict[str, float]:
    """Return the milliseconds of a further step, of what comes once, and of a step of a short run,
    all in all; with the package that is imported."""
    support = text_support()
    rewrites = tuple(support.TextRewrite(name, 0.98) for name in TECHNIQUES)
    found: dict[str, list[float]] = {"step": [], "once": [], "short": []}
    with tempfile.TemporaryDirectory(prefix="kernelblaster-") as folder:
        scratch = Path(folder)
        (scratch / "kb").mkdir()
        if rows:
            sys.path.insert(0, str(HERE.parent / "learning"))
            importlib.import_module("knowledge_base").record(scratch / "kb", rows)

        support.install(replace, rewrites)
        for number in range(PAIRS):
            (few, short), (many, long) = (
                timed(scratch, f"{number}-{rollouts}", number, rollouts)
                for rollouts in ROLLOUTS
            )
            step = (long - short) / (many - few)
            found["step"].append(step)
            found["once"].append(short - few * step)
            found["short"].append(short / few)
    return {name: statistics.median(values) for name, values in found.items()}


def timed(scratch: Path, name: str, seed: int, rollouts: int) -> tuple[int, float]:
    """Return how many steps a run took, and its milliseconds."""
    asked = {
        "iterations": 2, "rollouts": rollouts, "steps": STEPS, "seed": seed,
        "knowledge": str(shutil.copytree(scratch / "kb", scratch / f"kb-{name}")),
    }  # fmt: skip
    os.environ["KERNELBLASTER_CACHE"] = str(scratch / f"cache-{name}")
    session = new_session(scratch / f"run-{name}", asked)
    began = time.process_time()
    result = asyncio.run(session.run())
    took = 1e3 * (time.process_time() - began)
    session.close()
    if len(result.steps) != 2 * rollouts * STEPS:
        raise SystemExit(f"{len(result.steps)} steps of {2 * rollouts * STEPS} were taken")
    return len(result.steps), took


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
    """Measure both sides, or be one of them."""
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
        f"{beginning()}; medians of {PAIRS} pairs of runs, of "
        f"{ROLLOUTS[0]} and of {ROLLOUTS[1]} rollouts an iteration; ms",
        f"{'rows':>8s}  {'code':>6s}  {'a further step':>14s}  {'once a run':>10s}  "
        f"{'a step of the short run, all in all':>35s}",
    ]
    print("\n".join(lines), flush=True)
    for rows in (int(text) for text in given.rows.split(",")):
        sides = {"before": given.python, "now": sys.executable}
        with ThreadPoolExecutor() as pool:
            asked = {
                name: pool.submit(measured, name, python, __file__, str(rows))
                for name, python in sides.items()
                if python
            }
        for name, told in asked.items():
            found = told.result()
            lines.append(
                f"{rows:8d}  {name:>6s}  {found['step']:14.1f}  {found['once']:10.0f}  "
                f"{found['short']:35.1f}"
            )
            print(lines[-1], flush=True)
    if given.out:
        given.out.write_text("\n".join(lines) + "\n")


if __name__ == "__main__":
    main()
