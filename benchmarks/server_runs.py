"""Many small runs on one `langgraph dev`: do all end, and what do they leave behind?

    python benchmarks/server_runs.py [--runs 50] [--at-once 4]

Each is a thread of its own on one of the examples, simulated, with one iteration of two rollouts of
one step. Printed are how many ended, seconds, the server's memory (its own and all it started) as
runs end, and whether directories, results and lessons are each run's own.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import signal
import socket
import statistics
import subprocess
import sys
import tempfile
import time
import urllib.request
from pathlib import Path
from typing import Any

from langgraph_sdk import get_client

from kernelblaster.memory.knowledge.knowledge_base import KnowledgeBase
from kernelblaster.memory.run.directory import is_held
from kernelblaster.nodes.run.begin import stored_plan
from kernelblaster.tools.techniques.catalogue import knowledge_seed

ROOT = Path(__file__).resolve().parent.parent
TASKS = ("row_sum", "softmax", "rms_norm", "transpose")
CONTEXT = {"iterations": 1, "rollouts": 2, "steps": 1, "device": "simulated", "gpu": "H100"}


def memory(group: int) -> tuple[float, float]:
    """Return MiB of a process group's leader, and of all of it (shared pages counted in part)."""
    own = whole = 0.0
    for path in Path("/proc").glob("[0-9]*/smaps_rollup"):
        try:
            if os.getpgid(int(path.parent.name)) != group:
                continue
            share = next(line for line in path.read_text().splitlines() if line.startswith("Pss:"))
        except (OSError, StopIteration):
            continue
        mib = int(share.split()[1]) / 1024
        whole += mib
        own += mib if int(path.parent.name) == group else 0.0
    return own, whole


async def drive(url: str, group: int, runs: int, at_once: int) -> list[dict[str, Any]]:
    """Return the result, or the error, of each run; prints memory on the way."""
    client, slots, ended = get_client(url=url, timeout=900), asyncio.Semaphore(at_once), []

    async def one(number: int) -> None:
        async with slots:
            began = time.monotonic()
            thread = (await client.threads.create())["thread_id"]
            task = str(ROOT / "examples" / f"{TASKS[number % len(TASKS)]}.py")
            try:
                answer: Any = await client.runs.wait(
                    thread, "optimize", input={"task": task}, context=CONTEXT | {"seed": number}
                )
                found = dict(answer["result"])
            except Exception as error:
                found = {"error": f"{type(error).__name__}: {error}"}
            ended.append(found | {"seconds": time.monotonic() - began, "seed": number})
            if len(ended) % 10 == 0:
                own, whole = await asyncio.to_thread(memory, group)
                print(f"{len(ended):4} ended   server {own:6.0f} MiB   with children {whole:6.0f}")

    await asyncio.gather(*map(one, range(runs)))
    return ended


def main() -> None:
    """Start a server, run, print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--runs", type=int, default=50)
    parser.add_argument("--at-once", type=int, default=4)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as scratch, socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
        probe.close()
        folder = Path(scratch)
        places = {f"KERNELBLASTER_{name.upper()}": str(folder / name) for name in ("runs", "kb")}
        with (folder / "log").open("wb") as log:
            server = subprocess.Popen(
                [sys.executable, "-m", "langgraph_cli", "dev", "--no-browser", "--no-reload",
                 "--port", str(port), "--config", str(ROOT / "langgraph.json"),
                 "--n-jobs-per-worker", str(options.at_once)],
                cwd=ROOT, env=os.environ | places, stdout=log, stderr=log, start_new_session=True,
            )  # fmt: skip
        try:
            url = f"http://127.0.0.1:{port}"
            while True:
                try:
                    urllib.request.urlopen(f"{url}/ok", timeout=1)
                    break
                except OSError:
                    time.sleep(0.3)
            began = time.monotonic()
            ended = asyncio.run(drive(url, server.pid, options.runs, options.at_once))
            seconds = time.monotonic() - began
            _report(ended, seconds, options.at_once, folder)
        finally:
            os.killpg(server.pid, signal.SIGTERM)
            server.wait(timeout=30)


def _report(ended: list[dict[str, Any]], seconds: float, at_once: int, folder: Path) -> None:
    errors = [each["error"] for each in ended if "error" in each]
    results = [each for each in ended if "error" not in each]
    print(f"{len(results)} of {len(ended)} ended in {seconds:.0f} s, {at_once} at a time")
    for line in sorted(set(errors)):
        print(f"  {errors.count(line)} x {line}")
    each = [result["seconds"] for result in results]
    print(f"a run: median {statistics.median(each):.1f} s, longest {max(each):.1f} s")
    directories = {result["run"] for result in results}
    seeds = {result["run"]: result["seed"] for result in results}
    own = sum(stored_plan(Path(run)).seed == seed for run, seed in seeds.items())
    print(f"{len(directories)} directories, {own} with the seed that was asked for, "
          f"{sum(is_held(Path(run)) for run in directories)} still held")  # fmt: skip
    with KnowledgeBase.open(folder / "kb", knowledge_seed()) as knowledge:
        lessons = knowledge.lessons()
    ids = {stored_plan(Path(run)).run_id for run in directories}
    strange = sum(lesson.run not in ids for lesson in lessons if lesson.run)
    print(f"{len(lessons)} lessons, {strange} of no run of these")


if __name__ == "__main__":
    main()
