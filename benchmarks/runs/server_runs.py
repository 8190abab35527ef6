"""Many small runs on one `langgraph dev`: do all end, and what do they leave behind?

    python benchmarks/runs/server_runs.py [--runs 50] [--at-once 4] [--forget] [--out FILE]

Each is a thread of its own on one of the examples, simulated, with one iteration of two rollouts of
one step. Printed are how many ended, seconds, the server's memory (its own and all it started) as
runs end, and whether directories, results and lessons are each run's own. The development server
keeps every thread's checkpoints in memory; with --forget each thread is deleted when its run has
ended, so that what is left is what a server with a database would hold.
"""

from __future__ import annotations

import argparse
import asyncio
import datetime
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
from kernelblaster.nodes.run.beginning.begin import stored_plan
from kernelblaster.nodes.run.ending.report import stored_result
from kernelblaster.tools.techniques.catalogue import knowledge_seed

ROOT = Path(__file__).resolve().parents[2]
TASKS = ("row_sum", "softmax", "rms_norm", "transpose")
CONTEXT = {"iterations": 1, "rollouts": 2, "steps": 1, "device": "simulated", "gpu": "H100"}


def memory(server: int) -> tuple[float, float]:
    """Return MiB of a process, and of it and all below it (shared pages counted in part)."""
    parents, shares = {}, {}
    for path in Path("/proc").glob("[0-9]*"):
        try:
            status = (path / "status").read_text()
            rollup = (path / "smaps_rollup").read_text()
        except OSError:
            continue  # It has ended, or is another user's.
        parents[int(path.name)] = int(status.partition("\nPPid:")[2].split()[0])
        shares[int(path.name)] = int(rollup.partition("\nPss:")[2].split()[0] or 0) / 1024
    below = {server}
    while more := {each for each, parent in parents.items() if parent in below} - below:
        below |= more
    return shares[server], sum(shares.get(each, 0.0) for each in below)


class Told:
    """Lines that are printed as they come, and kept."""

    def __init__(self) -> None:
        self.lines: list[str] = []

    def __call__(self, line: str) -> None:
        self.lines.append(line)
        print(line, flush=True)


async def drive(
    url: str, server: int, options: argparse.Namespace, tell: Told
) -> list[dict[str, Any]]:
    """Return the result, or the error, of each run; tells memory on the way."""
    client, ended = get_client(url=url, timeout=900), []
    slots = asyncio.Semaphore(options.at_once)

    async def tell_memory() -> None:
        own, whole = await asyncio.to_thread(memory, server)
        tell(f"{len(ended):4} ended   server {own:6.0f} MiB   with children {whole:6.0f}")

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
            if options.forget:
                await client.threads.delete(thread)
            if len(ended) % 10 == 0:
                await tell_memory()

    await tell_memory()
    await asyncio.gather(*map(one, range(options.runs)))
    return ended


def main() -> None:
    """Start a server, run, print."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--runs", type=int, default=50)
    parser.add_argument("--at-once", type=int, default=4)
    parser.add_argument("--forget", action="store_true", help="delete each thread when it ended")
    parser.add_argument("--out", type=Path)
    options = parser.parse_args()
    tell = Told()
    tell(f"{datetime.datetime.now(datetime.UTC):%Y-%m-%d %H:%M} UTC, {os.cpu_count()} cores, load "
         f"{os.getloadavg()[0]:.1f} at the start; {options.runs} runs, {options.at_once} at a time"
         f"{', threads deleted as their runs end' if options.forget else ''}")  # fmt: skip
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
            ended = asyncio.run(drive(url, server.pid, options, tell))
            report(ended, time.monotonic() - began, folder, tell)
        finally:
            os.killpg(server.pid, signal.SIGTERM)
            server.wait(timeout=30)
    if options.out:
        with options.out.open("a") as file:
            file.write("\n".join(tell.lines) + "\n")


def report(
    ended: list[dict[str, Any]], seconds: float, folder: Path, tell: Told
) -> None:
    """Tell how many ended, how long they took, and whether what they left is their own."""
    errors = [each["error"] for each in ended if "error" in each]
    results = [each for each in ended if "error" not in each]
    tell(f"{len(results)} of {len(ended)} ended in {seconds:.0f} s")
    for line in sorted(set(errors)):
        tell(f"  {errors.count(line)} x {line}")
    each = [result["seconds"] for result in results]
    tell(f"a run: median {statistics.median(each):.1f} s, longest {max(each):.1f} s")
    plans = {result["run"]: stored_plan(Path(result["run"])) for result in results}
    asked = sum(plans[result["run"]].seed == result["seed"] for result in results)
    held = sum(is_held(Path(run)) for run in plans)
    tell(f"{len(plans)} directories, {asked} with the seed that was asked for, {held} still held")
    with KnowledgeBase.open(folder / "kb", knowledge_seed()) as knowledge:
        written = {lesson.id: lesson.run for lesson in knowledge.written_lessons() if lesson.run}
    own = sum(
        {name for name, run in written.items() if run == plan.run_id}
        == set((stored_result(Path(plan.run)) or results[0]).lessons)
        for plan in plans.values()
    )
    strange = len(set(written.values()) - {plan.run_id for plan in plans.values()})
    tell(f"{len(written)} lessons, {strange} of no run of these; {own} runs report just their own")


if __name__ == "__main__":
    main()
