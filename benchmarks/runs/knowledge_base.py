"""What reading a knowledge base costs a step, as the base grows; beside an older checkout.

A base of plausible evidence, states, listings and lessons is made from a seed, the same for both
sides: each writes it with its own code. Then each side, in a process of its own, opens it, makes
the reads of one step, of more steps in other states, and again after each of some rows was added,
as of the new number. The reads of a step: match the state, then what to expect of all techniques
that are offered, which a model chooses from, or of a dozen, about as many as rewrites can write
to a kernel; and the lessons, which models read.

The older checkout opened the base anew for each visit of a step; so is it measured. Times are of
the processor, so that others on the machine do not count; Chroma is imported before.

    python benchmarks/runs/knowledge_base.py [--python INTERPRETER] [--rows 1000,10000] [--out FILE]
"""

from __future__ import annotations

import argparse
import importlib
import importlib.util
import json
import os
import random
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

SIDE = Path(__file__).resolve()
STEPS, STEPS_BEFORE = 41, 2
"""Steps measured, by this checkout and by an older one; the median is told."""
MOST_ROWS_BEFORE = 10_000
"""The older checkout judged each lesson by every row: beyond this it takes hours."""
LESSONS_OF_A_ROW = 0.6
"""About what short runs leave: a review a technique, state and iteration."""
ROWS_OF_A_TASK = 60
GPUS = (("H100", "sm_90", "hopper"), ("A100", "sm_80", "ampere"), ("RTX4090", "sm_89", "ada"))
CLASSES = ("elementwise", "softmax", "layernorm", "matmul", "reduction", "pooling", "conv", "mixed")


def fill(directory: Path, rows: int) -> None:
    """Write a base of so many rows of evidence, and what goes with them."""
    from kernelblaster.memory.records import (
        Evidence,
        KnowledgeUpdate,
        Lesson,
        Signature,
        StateOptimization,
    )

    base, discover = opened(directory)
    source = random.Random(rows)
    seed = base.seed()
    techniques = sorted(seed.techniques)
    bottlenecks = sorted({state.primary for state in seed.states})
    dimensions = len(seed.states[0].centroid)
    found = [
        discover(
            Signature(values=tuple(source.choice((0.0, 0.2, 0.4, 1.0)) for _ in range(dimensions))),
            source.choice(bottlenecks),
            None,
        )
        for _ in range(min(200, rows // 50))
    ]
    for state in found:
        base.add_state(state)
    states = [state for state in base.states() if state.origin == "seed"] + found
    made: list[Evidence] = []
    lessons: list[Lesson] = []
    for number in range(rows):
        task = number // ROWS_OF_A_TASK
        # Most rows fall into few states, as was seen.
        state = states[min(int(source.expovariate(0.35)), len(states) - 1)]
        technique = techniques[min(int(source.expovariate(0.12)), len(techniques) - 1)]
        passed = source.random() < 0.75
        gpu, arch, family = GPUS[task % 7 % 3]
        outcome = "passed" if passed else source.choice(
            ("wrong_answer", "not_applicable", "compile_error", "race")
        )  # fmt: skip
        # A task is run again now and then: what is simulated comes out the same.
        again = number % ROWS_OF_A_TASK // 4
        place = random.Random(f"{task} {again} {technique}")
        gain = round(place.gauss(0.08, 0.3), 9) if passed else None
        row = Evidence(
            task_id=f"task{task:05d}", run=f"run{number // 16}", iteration=number % 2,
            rollout=number // 2 % 2, step=number // 4 % 4, op_class=CLASSES[task % len(CLASSES)],
            dtype="float32" if task % 5 else "float16",
            parent_sha256=f"{task:032x}{again:032x}",
            child_sha256=None if outcome == "not_applicable"
            else f"{task:032x}{(again + 1 if place.random() < 0.5 else number):032x}",
            state_before=state.id, signature_before=state.centroid, technique=technique,
            parameters={"factor": place.choice((2, 4, 8))} if place.random() < 0.5 else {},
            previous_technique=source.choice((None, *techniques[:5])),
            expected_log_gain=0.1, outcome=outcome, log_gain=gain,
            standard_error=0.01 * place.random() if passed else 0.0,
            device_kind="cuda" if task % 4 == 3 else "simulated", gpu=gpu, arch=arch,
            family=family, toolchain="nvcc 13.0", harness="2" if task % 9 else "1",
            author="builtin",
        )  # fmt: skip
        made.append(row)
        if source.random() < LESSONS_OF_A_ROW:
            lessons.append(
                Lesson(
                    text=f"{technique} in {state.name}: measured in run {row.run}.",
                    kind="correction" if passed else "condition", technique=technique,
                    state=state.id, op_class=row.op_class, claimed_log_gain=gain,
                    evidence=(row.id,), device_kind=row.device_kind, author="builtin",
                    run=row.run, iteration=row.iteration,
                )
            )  # fmt: skip
        if len(made) == 400 or number == rows - 1:
            base.add_evidence(made)
            listed = seed.techniques[technique].model_copy(
                update={"prior_log_gain": 0.1, "prior_strength": 1.0, "prior_evidence": (row.id,)}
            )
            change = StateOptimization(
                state_id=state.id, optimization=listed, device_kind="simulated", revision=1,
                author="builtin",
            )  # fmt: skip
            update = KnowledgeUpdate(
                run=row.run, iteration=number, optimizations=(change,), lessons=tuple(lessons)
            )
            base.apply_update(update)
            made, lessons = [], []
    base.close()


def measure(directory: Path, anew: bool) -> dict[str, Any]:
    """Return milliseconds of each thing, and what was answered; `anew`: opened for each visit."""
    from kernelblaster.memory.records import Evidence, PolicyContext, Signature

    took: dict[str, list[float]] = {}
    steps = STEPS_BEFORE if anew else STEPS

    def timed(name: str, began: float) -> None:
        took.setdefault(name, []).append(1e3 * (time.process_time() - began))

    context = PolicyContext(
        device_kind="simulated", gpu="H100", arch="sm_90", family="hopper", op_class="softmax",
        dtype="float32", harness="2",
    )  # fmt: skip
    answers: list[Any] = []
    importlib.import_module("chromadb")
    before = resident()
    began = time.process_time()
    held, _ = opened(directory)
    at = held.sequence()
    states = held.states(at)
    timed("open and read", began)
    megabytes = resident() - before
    if anew:
        held.close()

    def step(number: int, at: int, name: str) -> None:
        nonlocal held
        near = states[number % 12]
        values = tuple(min(1.0, value + 0.01) for value in near.centroid)
        names = sorted(held.seed().techniques)
        began = time.process_time()
        if anew:
            held, _ = opened(directory)
        where, _, _ = held.match_state(Signature(values=values), near.primary, near.secondary, at)
        if anew:
            held.close()
            held, _ = opened(directory)
        deprecated = held.deprecated(where, context, at)
        known = held.candidates(where, context, at)
        if hasattr(held, "settings"):  # Of versions whose beliefs did not hold them.
            held.settings(where, sorted({card.technique for card, *_ in known}), context, at)
        timed(f"{name}, by a model", began)
        if hasattr(held, "offered"):
            began = time.process_time()
            held.deprecated(where, context, at)
            held.offered(where, context, at)
            held.candidates(where, context, at, names[number % 6 :: 6])
            timed(f"{name}, by rewrites", began)
        began = time.process_time()
        lessons = held.lessons(at)
        if anew:
            held.close()
            held, _ = opened(directory)
        timed(f"{name}, lessons", began)
        beliefs = held.beliefs(where, names, context, at)
        if anew:
            held.close()
        answers.append(
            [
                [[card.technique for card, *_ in each] for each in (known, beliefs)],
                sorted(deprecated),
                sum(lesson.contested for lesson in lessons),
                len(lessons),
            ]
        )  # fmt: skip

    step(0, at, "the first")
    for number in range(1, steps):
        step(number, at, "the next")
    for number in range(steps - 1):
        row = Evidence(
            task_id="task00001", run="new", iteration=0, rollout=0, step=number,
            op_class="softmax", dtype="float32", parent_sha256=f"p{number}",
            child_sha256=f"p{number + 1}", state_before=states[number % 12].id,
            signature_before=states[0].centroid, technique="vectorize_memory_access",
            expected_log_gain=0.1, outcome="passed", log_gain=0.3, device_kind="simulated",
            gpu="H100", arch="sm_90", family="hopper", toolchain="nvcc 13.0", harness="2",
            author="builtin",
        )  # fmt: skip
        began = time.process_time()
        if anew:
            held, _ = opened(directory)
        held.add_evidence([row])
        if anew:
            held.close()
        timed("add a row", began)
        began = time.process_time()
        if anew:
            held, _ = opened(directory)
        now = held.sequence()
        if anew:
            held.close()
        step(number, now, "at a new number")
    if not anew:
        held.close()
    return {
        "milliseconds": {name: statistics.median(values) for name, values in took.items()},
        "p95": {
            name: statistics.quantiles(values, n=20, method="inclusive")[-1]
            for name, values in took.items()
            if len(values) > 5
        },
        "megabytes": megabytes,
        # Of the steps that both sides take: before and after the first row is added.
        "answers": [*answers[:STEPS_BEFORE], answers[steps]],
    }


def resident() -> float:
    """Return the megabytes that this process has in memory."""
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE") / 1e6


def opened(directory: Path) -> tuple[Any, Any]:
    """Return the base and the function that makes states, wherever this checkout has them."""
    room = "kernelblaster.memory"
    if importlib.util.find_spec(f"{room}.knowledge"):
        room = f"{room}.knowledge"
    base = importlib.import_module(f"{room}.knowledge_base")
    if importlib.util.find_spec(f"{room}.states"):
        makes = importlib.import_module(f"{room}.states.matching")
    else:
        makes = importlib.import_module(f"{room}.snapshot")
        if not hasattr(makes, "discover"):
            makes = importlib.import_module(f"{room}.matching")
    discover = makes.discover
    try:
        from kernelblaster.tools.techniques.catalogue import knowledge_seed
    except ImportError:  # When the techniques' texts stood in the seed.
        return base.KnowledgeBase.open(directory), discover
    return base.KnowledgeBase.open(directory, knowledge_seed()), discover


def on_a_side(python: str, *arguments: str) -> dict[str, Any]:
    """Run this file with another interpreter; its package is that checkout's."""
    done = subprocess.run(
        [python, str(SIDE), *arguments], check=True, stdout=subprocess.PIPE, text=True
    )
    return dict(json.loads(done.stdout)) if done.stdout else {}


def differences(left: Any, right: Any) -> tuple[float, int]:
    """Return the largest relative difference of numbers, and how many other things differ."""
    if isinstance(left, bool) or isinstance(left, str) or left is None:
        return 0.0, int(left != right)
    if isinstance(left, int | float):
        scale = max(abs(left), abs(right), 1e-9)
        return abs(left - right) / scale, 0
    if isinstance(left, dict):
        left, right = sorted(left.items()), sorted(right.items())
    if len(left) != len(right):
        return 0.0, 1
    found = [differences(*pair) for pair in zip(left, right, strict=True)]
    return max((each[0] for each in found), default=0.0), sum(each[1] for each in found)


def main() -> None:
    """Measure each size and print a table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--python", help="interpreter whose kernelblaster is the older checkout")
    parser.add_argument("--rows", default="1000,10000,100000")
    parser.add_argument("--out", type=Path)
    parser.add_argument("--side", nargs=3, help=argparse.SUPPRESS)
    chosen = parser.parse_args()
    if chosen.side:
        task, directory, argument = chosen.side
        if task == "fill":
            fill(Path(directory), int(argument))
        else:
            json.dump(measure(Path(directory), argument == "anew"), sys.stdout)
        return
    lines: list[str] = []

    def tell(line: str) -> None:
        lines.append(line)
        print(line, flush=True)

    for rows in map(int, chosen.rows.split(",")):
        with tempfile.TemporaryDirectory() as folder:
            sides = {"now": (sys.executable, "held")}
            if chosen.python and rows <= MOST_ROWS_BEFORE:
                sides = {"before": (chosen.python, "anew")} | sides
            found = {}
            for side, (python, how) in sides.items():
                place = str(Path(folder) / side)
                on_a_side(python, "--side", "fill", place, str(rows))
                found[side] = on_a_side(python, "--side", "measure", place, how)
            tell(
                f"{rows} rows of evidence: {found['now']['megabytes']:.0f} MB in memory, on disk "
                f"{sum(each.stat().st_size for each in Path(place).rglob('*.*')) / 1e6:.0f} MB"
            )
            for name, now in found["now"]["milliseconds"].items():
                line = f"  {name:<28} {now:10.2f} ms"
                if name in found["now"]["p95"]:
                    line += f"   p95 {found['now']['p95'][name]:10.2f} ms"
                if name in found.get("before", {}).get("milliseconds", {}):
                    before = found["before"]["milliseconds"][name]
                    line += f"   before {before:10.2f} ms   {before / now:8.1f} times"
                tell(line)
            if "before" in found:
                apart, others = differences(found["before"]["answers"], found["now"]["answers"])
                tell(f"  answers: numbers differ by {apart:.1e} at most, {others} others differ")
    if chosen.out:
        chosen.out.write_text("\n".join(lines) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
