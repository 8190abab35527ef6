"""What a knowledge base costs as it grows: time of the processor and memory, to a million rows.

    python benchmarks/learning/knowledge_base.py [--rows 1000,10000,100000,1000000] [--out FILE]

The recorded tries are told again and again, each time as of other tasks: other sources, profiles
that lie a little elsewhere, gains a little off; every fourth time as measured on a GPU. So half the
rows of a kernel share their parent, failures are as frequent as they were, and what is told is as
large as what runs tell. With them go lessons, six for ten rows, which is what short runs leave.

The base is written in steps of runs (recorded), opened and read in a process of its own, and asked
as a step asks: match the state, then what to expect of the dozen techniques that rewrites can write
to a kernel, or of all that are offered, which a model chooses from, and the lessons, which models
read. Each again right after a row was added. Then all that people do with it: merged into an empty
base, and again; exported for reading; thinned; consolidated. Times are of the processor, so that
others on the machine do not count; Chroma is imported before. Memory is what the process holds.
"""

from __future__ import annotations

import argparse
import hashlib
import importlib
import json
import os
import random
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from recorded_tries import Try, recorded

from kernelblaster.harness.gpus import known_gpu
from kernelblaster.memory.knowledge.changes.consolidation import consolidation
from kernelblaster.memory.knowledge.exchange.document import export, thinned
from kernelblaster.memory.knowledge.knowledge_base import KnowledgeBase
from kernelblaster.memory.knowledge.states.matching import States, best, discover
from kernelblaster.memory.records.evidence import Evidence
from kernelblaster.memory.records.lessons import Lesson
from kernelblaster.memory.records.policy import PolicyContext
from kernelblaster.memory.records.states import PerformanceState, Signature
from kernelblaster.memory.records.update import KnowledgeUpdate
from kernelblaster.tools.techniques.catalogue import knowledge_seed

STEPS = 41
"""Steps measured; told are the median and the 95th percentile."""
LESSONS_OF_A_ROW = 0.6
"""About what short runs leave: a review a technique, state and iteration."""
ROWS_AT_ONCE = 400


def told_again(count: int) -> Iterator[Evidence]:
    """Give rows of evidence: the recorded tries, over and over, each time as of other tasks."""
    tries = recorded()
    seed = knowledge_seed()
    known = {state.id: state for state in seed.states}
    for each in tries:
        state = _state(each, known.values())
        known.setdefault(state.id, state)
    places = [_state(each, known.values()).id for each in tries]
    for number in range(count):
        turn, place = divmod(number, len(tries))
        yield _row(tries[place], places[place], turn, place)


def _state(each: Try, known: Iterable[PerformanceState]) -> PerformanceState:
    primary, secondary = (*each.bottlenecks, None)[:2]
    signature = Signature(values=each.dominant)
    found = best(States(known).near(signature, primary, secondary))  # type: ignore[arg-type]
    return found.state if found else discover(signature, primary, secondary)  # type: ignore[arg-type]


def _row(each: Try, state: str, turn: int, place: int) -> Evidence:
    """Return what a recorded try says, as of another task where `turn` is another."""
    own = random.Random(f"{place} {turn}")
    situation, action = each.situation, each.action
    gpu = known_gpu(each.gpu)
    assert gpu is not None

    def moved(values: Iterable[float]) -> tuple[float, ...]:
        by = random.Random(f"{each.kernel} {turn}")
        return tuple(
            value if value < 0.0 else round(min(1.0, max(0.0, value + by.gauss(0.0, 0.02))), 6)
            for value in values
        )

    longer = 2.0 ** random.Random(f"{each.kernel} {turn}").gauss(0.0, 1.0)
    gain, day = each.log_gain, f"{turn // 28 % 12 + 1:02}-{turn % 28 + 1:02}"
    return Evidence(
        task_id=f"{each.task}-{turn}", run=_sha256(f"run {each.task} {each.gpu} {turn}")[:12],
        iteration=place % 2, rollout=place // 2 % 2, step=place // 4 % 4, op_class=each.op_class,
        dtype=situation.dtype, parent_sha256=_sha256(f"{each.kernel} {turn}"),
        child_sha256=_sha256(f"{place} {turn}"), state_before=state,
        signature_before=moved(each.dominant),
        launch_signature=moved(situation.signature), launch_share=situation.share,
        microseconds=round(situation.microseconds * longer, 4),
        bound_us=situation.bound_us and round(situation.bound_us * longer, 4),
        technique=action.technique, launch=action.launch, parameters=dict(action.setting),
        earlier=None if action.earlier is None else dict(action.earlier),
        expected_log_gain=round(own.gauss(0.1, 0.1), 6), forecast_std=0.3, forecast_pass=0.9,
        outcome=each.outcome, log_gain=gain and round(gain + own.gauss(0.0, 0.03), 6),
        standard_error=0.0, device_kind="cuda" if turn % 4 == 3 else "simulated", gpu=each.gpu,
        arch=gpu.arch, family=situation.family, toolchain="nvcc 13.0", harness="24",
        author="builtin",
        created=f"2026-{day}T00:{place // 60:02}:{place % 60:02}",
    )  # fmt: skip


def _sha256(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()


def record(directory: Path, count: int) -> dict[str, Any]:
    """Write a base of so many rows of evidence and what goes with them; return what it took."""
    base = KnowledgeBase.open(directory, knowledge_seed())
    source = random.Random(count)
    made: list[Evidence] = []
    began, took = time.process_time(), 0.0
    for number, row in enumerate(told_again(count)):
        made.append(row)
        if len(made) == ROWS_AT_ONCE or number == count - 1:
            lessons = tuple(_lesson(each) for each in made if source.random() < LESSONS_OF_A_ROW)
            began = time.process_time()
            base.add_evidence(made)
            base.apply_update(KnowledgeUpdate(run=row.run, iteration=number, lessons=lessons))
            took += time.process_time() - began
            made = []
    base.close()
    return {"record": 1e3 * took / count}


def _lesson(row: Evidence) -> Lesson:
    return Lesson(
        text=f"{row.technique} on {row.task_id}: came to {row.log_gain} in run {row.run}.",
        kind="condition" if row.log_gain is None else "correction", technique=row.technique,
        state=row.state_before, op_class=row.op_class, claimed_log_gain=row.log_gain,
        evidence=(row.id,), device_kind=row.device_kind, author="builtin", run=row.run,
        iteration=row.iteration,
    )  # fmt: skip


def read(directory: Path) -> dict[str, Any]:
    """Return milliseconds of what a step reads and adds, and the megabytes that reading takes."""
    took: dict[str, list[float]] = {}

    def timed(name: str, began: float) -> float:
        took.setdefault(name, []).append(1e3 * (time.process_time() - began))
        return time.process_time()

    importlib.import_module("chromadb")
    seed = knowledge_seed()
    before = resident()
    began = time.process_time()
    base = KnowledgeBase.open(directory, seed)
    at = base.sequence()
    states = base.states(at)
    timed("open and read", began)
    megabytes, peak = resident() - before, most_resident() - before
    context = PolicyContext(
        device_kind="simulated", gpu="H100", arch="sm_90", family="hopper", op_class="softmax",
        dtype="float32", harness="24",
    )  # fmt: skip
    names = sorted(seed.techniques)

    def step(number: int, at: int, name: str) -> None:
        near = states[number % 12]
        values = tuple(min(1.0, value + 0.01) for value in near.centroid)
        began = time.process_time()
        where, _, _ = base.match_state(Signature(values=values), near.primary, near.secondary, at)
        base.deprecated(where, context, at)
        base.candidates(where, context, at)
        began = timed(f"{name}, by a model", began)
        base.deprecated(where, context, at)
        base.offered(where, context, at)
        base.candidates(where, context, at, names[number % 6 :: 6])
        began = timed(f"{name}, by rewrites", began)
        base.lessons(at)
        timed(f"{name}, lessons", began)

    step(0, at, "the first")
    for number in range(1, STEPS):
        step(number, at, "the next")
    rows = told_again(STEPS)
    for number, row in enumerate(rows):
        new = row.model_copy(update={"run": "new", "step": number})
        began = time.process_time()
        base.add_evidence([new])
        timed("add a row", began)
        step(number, base.sequence(), "at a new number")
    base.close()
    return {
        "milliseconds": {name: statistics.median(values) for name, values in took.items()},
        "p95": {
            name: statistics.quantiles(values, n=20, method="inclusive")[-1]
            for name, values in took.items()
            if len(values) > 5
        },
        "megabytes": megabytes,
        "peak": peak,
        "with lessons": resident() - before,
    }


def care(directory: Path) -> dict[str, Any]:
    """Return seconds of what people do with a base, and the megabytes that it takes at most."""
    seconds: dict[str, float] = {}
    base = KnowledgeBase.open(directory, knowledge_seed())
    base.states()

    def timed(name: str, began: float) -> float:
        seconds[name] = time.process_time() - began
        return time.process_time()

    with tempfile.TemporaryDirectory() as folder:
        empty = KnowledgeBase.open(Path(folder) / "empty", knowledge_seed())
        began = time.process_time()
        empty.merge(base)
        began = timed("merge into an empty base", began)
        assert empty.merge(base) == 0
        timed("merge again", began)
        empty.close()
    began = time.process_time()
    base.stats()
    began = timed("kb stats", began)
    text = export(base, measured=False, whole=False).model_dump_json()
    began = timed("kb export, without evidence", began)
    kept = len(thinned(base, most=20, harness=None))
    began = timed("kb prune", began)
    found = consolidation(base)
    timed("kb consolidate", began)
    base.close()
    return {
        "seconds": seconds,
        "peak": most_resident(),
        "what": f"export {len(text) / 1e6:.1f} MB; prune keeps {kept} entries; consolidate says "
        f"{sum(len(each.several) for each in found.lessons)} lessons by {len(found.lessons)}",
    }


def resident() -> float:
    """Return the megabytes that this process has in memory."""
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE") / 1e6


def most_resident() -> float:
    """Return the most megabytes that this process ever had in memory."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024 / 1e6


def apart(task: str, directory: Path, count: int) -> dict[str, Any]:
    """Do one part in a process of its own."""
    command = [sys.executable, __file__, "--part", task, str(directory), str(count)]
    done = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True)
    return dict(json.loads(done.stdout))


def lines(count: int, parts: Iterable[str]) -> Iterator[str]:
    """Give what is told of one size."""
    with tempfile.TemporaryDirectory() as folder:
        base = Path(folder) / "base"
        recorded_in = apart("record", base, count)["record"]
        size = sum(each.stat().st_size for each in base.rglob("*.*")) / 1e6
        yield f"{count} rows of evidence, on disk {size:.0f} MB"
        yield f"  {'record, a row':<28} {recorded_in:10.2f} ms"
        if "read" in parts:
            found = apart("read", base, count)
            for name, now in found["milliseconds"].items():
                p95 = found["p95"].get(name)
                rest = f"   p95 {p95:10.2f} ms" if p95 else ""
                yield f"  {name:<28} {now:10.2f} ms{rest}"
            yield (
                f"  memory {found['megabytes']:.0f} MB ({1e3 * found['megabytes'] / count:.2f} kB "
                f"a row), at most {found['peak']:.0f} MB; with all lessons judged "
                f"{found['with lessons']:.0f} MB"
            )
        if "care" in parts:
            found = apart("care", base, count)
            for name, now in found["seconds"].items():
                yield f"  {name:<28} {now:10.2f} s"
            yield f"  {found['what']}; at most {found['peak']:.0f} MB"


def main() -> None:
    """Measure each size and print a table."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("--rows", default="1000,10000,100000,1000000")
    parser.add_argument("--parts", default="read,care", help="what is measured of each size")
    parser.add_argument("--out", type=Path)
    parser.add_argument("--part", nargs=3, help=argparse.SUPPRESS)
    chosen = parser.parse_args()
    if chosen.part:
        task, directory, count = chosen.part
        done = {"record": lambda: record(Path(directory), int(count))}
        done |= {"read": lambda: read(Path(directory)), "care": lambda: care(Path(directory))}
        json.dump(done[task](), sys.stdout)
        return
    told = []
    for count in map(int, chosen.rows.split(",")):
        for line in lines(count, chosen.parts.split(",")):
            told.append(line)
            print(line, flush=True)
    if chosen.out:
        chosen.out.write_text("\n".join(told) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
