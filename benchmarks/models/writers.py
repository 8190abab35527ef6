"""Which way to write kernels is better on a model: a file a reply, or with tools?

    python benchmarks/models/writers.py openai:NAME --base-url URL [--tasks softmax,matmul] \
        [--seeds 3] [--out FILE.json] [flags of `kernelblaster optimize`: --device, --gpu, ...]

Each example is optimised with each seed in both ways (`--writer replies`, `--writer tools`) by a
model behind any endpoint that speaks OpenAI's chat completions. The model writes the kernels, all
other agents are built in, and every run starts with an empty knowledge base: runs of one example
and seed choose alike until a kernel makes the difference, and are compared in pairs. Told of each
way are techniques tried, how many of them passed, at the first attempt too, and what they took.
"""

from __future__ import annotations

import argparse
import datetime
import json
import math
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from kernelblaster.memory.knowledge.knowledge_base import KnowledgeBase
from kernelblaster.tools.techniques.catalogue import knowledge_seed

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"
WRITERS = ("replies", "tools")
LOOPS = ("--iterations", "1", "--rollouts", "2", "--steps", "3")
"""Six techniques a run; flags that are given count over these."""

CommandLine = Callable[[Sequence[str]], "tuple[int, str, str]"]
"""Runs `kernelblaster` with arguments; returns exit code, output and complaints."""


def command_line(arguments: Sequence[str]) -> tuple[int, str, str]:
    """Run the command line in a process of its own."""
    command = [sys.executable, "-m", "kernelblaster", *arguments]
    done = subprocess.run(command, capture_output=True, text=True)
    return done.returncode, done.stdout, done.stderr


def measured(
    task: Path, writer: str, seed: int, flags: Sequence[str], run: CommandLine
) -> dict[str, Any]:
    """Return what one run came to, or how it failed."""
    told = {"task": task.stem, "writer": writer, "seed": seed}
    began = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="kernelblaster-") as scratch:
        knowledge = Path(scratch, "kb")
        code, out, complaints = run([
            "optimize", str(task), "--writer", writer, "--seed", str(seed), *LOOPS, *flags,
            "--run", str(Path(scratch, "run")), "--kb", str(knowledge), "--json",
        ])  # fmt: skip
        result = json.loads(out.splitlines()[-1]) if code == 0 and out.strip() else {}
        if "gain" not in result:
            reason = result.get("reason") or complaints.strip()[-500:]
            return {**told, "failed": reason or f"exit code {code}"}
        with KnowledgeBase.open(knowledge, knowledge_seed(), create=False) as opened:
            tries = opened.snapshot().evidence()
    passed = [row for row in tries if row.log_gain is not None]
    kept = ("gain", "evaluations", "outcomes", "model_calls", "tokens", "money")
    return {
        **told,
        **{name: result[name] for name in kept},
        "techniques": len(tries),
        "passed": len(passed),
        "at_first": sum(row.repairs == 0 for row in passed),
        "seconds": round(time.monotonic() - began, 1),
    }


def compared(rows: Sequence[dict[str, Any]]) -> list[str]:
    """Return what each way came to, and both beside each other, in lines."""
    whole = [row for row in rows if "failed" not in row]
    lines = ["writer   runs  failed  gain  techniques  passed  at first  calls  tokens  dollars  s"]
    lines.append("         (gain: geometric mean; calls, tokens and dollars are a technique's)")
    for writer in WRITERS:
        own = [row for row in whole if row["writer"] == writer]
        failed = sum(row["writer"] == writer for row in rows) - len(own)
        tried = sum(row["techniques"] for row in own)
        if not tried:
            lines.append(f"{writer:8s} {len(own):4d}  {failed:6d}  nothing was tried")
            continue
        gain = math.exp(statistics.mean(math.log(row["gain"]) for row in own))
        money = [row["money"] for row in own]
        dollars = "-" if None in money else f"{sum(money) / tried:.4f}"
        lines.append(
            f"{writer:8s} {len(own):4d}  {failed:6d}  {gain:4.2f}  {tried:10d}  "
            f"{sum(row['passed'] for row in own) / tried:6.0%}  "
            f"{sum(row['at_first'] for row in own) / tried:8.0%}  "
            f"{sum(row['model_calls'] for row in own) / tried:5.1f}  "
            f"{sum(row['tokens'] for row in own) / tried:6.0f}  {dollars:>7s}  "
            f"{statistics.mean(row['seconds'] for row in own):.0f}"
        )
    gains = {(row["task"], row["seed"], row["writer"]): math.log(row["gain"]) for row in whole}
    places = sorted({(row["task"], row["seed"]) for row in whole})
    pairs = [
        gains[*place, "tools"] - gains[*place, "replies"]
        for place in places
        if all((*place, writer) in gains for writer in WRITERS)
    ]
    if len(pairs) > 1:
        mean = statistics.mean(pairs)
        error = statistics.stdev(pairs) / math.sqrt(len(pairs))
        lines.append(
            f"{len(pairs)} pairs: with tools the gain is {math.exp(mean):.3f} times the other's "
            f"({math.exp(mean - 2 * error):.3f} to {math.exp(mean + 2 * error):.3f}, two standard "
            f"errors); larger in {sum(pair > 0 for pair in pairs)}, smaller in "
            f"{sum(pair < 0 for pair in pairs)}"
        )
    return lines


def main(arguments: Sequence[str] | None = None, run: CommandLine = command_line) -> None:
    """Run all, print a line each and the comparison."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("model", help="openai:NAME")
    parser.add_argument("--tasks", help="example names or paths, with commas; all examples else")
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--out", type=Path)
    given, flags = parser.parse_known_args(arguments)
    flags = ["--model", f"kernel_writer={given.model}", *flags]
    named = given.tasks.split(",") if given.tasks else sorted(map(str, EXAMPLES.glob("*.py")))
    tasks = [Path(name) if "." in name else EXAMPLES / f"{name}.py" for name in named]
    rows = []
    for task in tasks:
        for seed in range(given.seeds):
            for writer in WRITERS:
                rows.append(measured(task, writer, seed, flags, run))
                print(json.dumps(rows[-1]), flush=True)
                if given.out:
                    document = {
                        "date": datetime.date.today().isoformat(), "model": given.model,
                        "rows": rows, "compared": compared(rows),
                    }  # fmt: skip
                    given.out.write_text(json.dumps(document, indent=1) + "\n")
    print("\n".join(compared(rows)))


if __name__ == "__main__":
    main()
