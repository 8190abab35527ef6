"""How large a run's checkpoints are, and what they and a step cost beside the evaluation.

A run of 10 iterations of 10 rollouts of 10 steps on the tests' text device, with rewrites that can
be applied again and again: no trajectory ends early, and the path to the winner is as long as it
gets. A checkpoint is a row of its file; what the nodes after it write is kept beside it until the
next one, in which it stands too. With another checkout's interpreter the same is measured with that
code, in a process of its own.

    python benchmarks/runs/checkpoint_size.py [--python INTERPRETER] [--loops 10,10,10] [--out FILE]
"""

from __future__ import annotations

import argparse
import asyncio
import json
import re
import sqlite3
import statistics
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Coroutine
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from step_overhead import new_session, replace, text_support
from two_sides import beginning, measured

GRAPHS = ("optimize", "rollout", "lowering")
SQL = """
SELECT checkpoint_ns, LENGTH(CAST(checkpoint AS BLOB)) + LENGTH(CAST(metadata AS BLOB)), (
    SELECT COALESCE(SUM(LENGTH(CAST(value AS BLOB))), 0) FROM writes
    WHERE writes.thread_id = checkpoints.thread_id
    AND writes.checkpoint_ns = checkpoints.checkpoint_ns
    AND writes.checkpoint_id = checkpoints.checkpoint_id)
FROM checkpoints
"""
APART = """
SELECT checkpoint_ns, SUM(LENGTH(CAST(value AS BLOB))) FROM channel_values GROUP BY checkpoint_ns
"""
"""Values that stand apart, which are told in equal parts of the checkpoints of their graph."""


@dataclass(frozen=True)
class Repeatable:
    """A rewrite of the text device that applies however often it was applied."""

    technique: str
    factor: float
    outcome: str = "passed"
    parameters: dict[str, tuple[int, ...]] = field(default_factory=dict)

    def apply(self, source: str, task: Any, parameters: Any) -> Any:
        """Multiply the time, or make the kernel fail."""
        from kernelblaster.tools.rewriting.records import Rewritten

        scaled = re.sub(r"us: ([\d.]+)", lambda us: f"us: {float(us[1]) * self.factor}", source)
        fails = "" if self.outcome == "passed" else f"outcome: {self.outcome}\n"
        return Rewritten(source=f"{scaled}did: {self.technique}\n{fails}", note="as told")


def repeatable() -> tuple[Repeatable, ...]:
    """Return a rewrite for every technique that there is; one in six fails."""
    from kernelblaster.tools.techniques.catalogue import techniques

    failures = ("race", "wrong_answer", "compile_error")
    return tuple(
        Repeatable(name, 0.9, failures[number // 6 % 3])
        if number % 6 == 5
        else Repeatable(name, 0.95 + 0.01 * (number % 4))
        for number, name in enumerate(sorted(techniques()))
    )


def side(loops: tuple[int, int, int]) -> dict[str, Any]:
    """Return sizes and times of a run, with the package that is imported."""
    install = text_support().install
    from kernelblaster.graph import checkpoints

    saver = getattr(checkpoints, "Checkpoints", None) or checkpoints._Checkpoints

    install(replace, repeatable())
    saves: list[float] = []

    def timed(save: Callable[..., Coroutine[Any, Any, Any]]) -> Callable[..., Any]:
        async def save_timed(*given: Any, **options: Any) -> Any:
            began = time.perf_counter()
            try:
                return await save(*given, **options)
            finally:
                saves.append(1e3 * (time.perf_counter() - began))

        return save_timed

    saver.aput = timed(saver.aput)
    with tempfile.TemporaryDirectory(prefix="kernelblaster-") as folder:
        scratch = Path(folder)
        asked = dict(zip(("iterations", "rollouts", "steps"), loops, strict=True))
        session = new_session(scratch / "run", {**asked, "knowledge": str(scratch / "kb")})
        began = time.monotonic()
        result = asyncio.run(session.run())
        took = time.monotonic() - began
        session.close()
        with sqlite3.connect(scratch / "run" / "checkpoints.sqlite") as database:
            rows = database.execute(SQL).fetchall()
            tables = [name for (name,) in database.execute("SELECT name FROM sqlite_master")]
            apart = database.execute(APART).fetchall() if "channel_values" in tables else []
        total = (scratch / "run" / "checkpoints.sqlite").stat().st_size
    values, counts = dict(apart), Counter(namespace for namespace, *_ in rows)
    sizes: dict[str, list[tuple[float, float]]] = {name: [] for name in GRAPHS}
    for namespace, row, writes in rows:
        each = values.get(namespace, 0) / counts[namespace]
        sizes[GRAPHS[namespace.count("|") + 1 if namespace else 0]].append(
            (row + each, row + each + writes)
        )
    return {
        "steps": len(result.steps),
        "sizes": sizes,
        "file": total,
        "save": statistics.mean(saves),
        "saves": len(saves),
        "step": 1e3 * took / len(result.steps),
    }


def told(name: str, found: dict[str, Any]) -> list[str]:
    """Return what was measured of one side, in lines."""
    rows = []
    for graph, sizes in found["sizes"].items():
        alone, with_writes = zip(*sizes, strict=True)
        rows.append(
            f"{name:6s}  {graph:8s}  {len(sizes):11d}  {max(alone) / 1e3:10.1f}  "
            f"{statistics.mean(alone) / 1e3:7.1f}  {max(with_writes) / 1e3:10.1f}  "
            f"{statistics.mean(with_writes) / 1e3:7.1f}"
        )
    return [
        *rows,
        f"{name:6s}  {found['steps']} steps: {found['file'] / 1e6:.1f} MB in checkpoints.sqlite; "
        f"{found['step']:.1f} ms a step outside evaluation, in it "
        f"{found['saves'] / found['steps']:.1f} checkpoints of {found['save']:.2f} ms each",
    ]


def main() -> None:
    """Measure one side or two, each in a process of its own."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--python", help="interpreter of another checkout, measured first")
    parser.add_argument("--loops", default="10,10,10", help="iterations, rollouts, steps")
    parser.add_argument("--side", action="store_true", help=argparse.SUPPRESS)
    parser.add_argument("--out", type=Path)
    given = parser.parse_args()
    iterations, rollouts, steps = map(int, given.loops.split(","))
    if given.side:
        print(json.dumps(side((iterations, rollouts, steps))))
        return
    lines = [
        f"{beginning()}; {iterations} iterations of {rollouts} rollouts "
        f"of {steps} steps",
        "        graph     checkpoints  largest kB  mean kB  largest kB  mean kB, writes included",
    ]
    print("\n".join(lines), flush=True)
    for name, python in (("before", given.python), ("now", sys.executable)):
        if not python:
            continue
        lines += told(name, measured(name, python, __file__, "--loops", given.loops))
        print("\n".join(lines[-4:]), flush=True)
    if given.out:
        given.out.write_text("\n".join(lines) + "\n")


if __name__ == "__main__":
    main()
