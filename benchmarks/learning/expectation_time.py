"""What forecasts cost as evidence grows: milliseconds of the processor, and memory.

    python benchmarks/learning/expectation_time.py [--rows 1000,10000,100000] [--out FILE]

Plausible tries (signatures about a few dozen kernels, a task every 60 rows) are added; then
proposals are asked for in several situations, each right after a row was added: four settings of
every technique, and of a dozen, the most that apply to one kernel, on one launch. Told: the
median and the 95th percentile, the mean of adding a row, and the resident memory of the rows.
"""

from __future__ import annotations

import argparse
import random
import resource
import statistics
import time
from pathlib import Path

from kernelblaster.memory.knowledge.policy.actions import Action, Question, Situation, Tried
from kernelblaster.memory.knowledge.policy.expectation import Expectations
from kernelblaster.tools.techniques.catalogue import knowledge_seed

SETTINGS = (64, 128, 256, 512)
GPUS = (("H100", "hopper"), ("A100", "ampere"), ("L40S", "ada"))
CLASSES = ("elementwise", "softmax", "normalization", "matmul", "reduction", "mixed")
PROPOSALS = 60
APPLY = 12


def situation(source: random.Random, number: int, centroids: list[tuple[float, ...]]) -> Situation:
    """Return a plausible launch of the task that a row belongs to."""
    task = number // 60
    gpu, family = GPUS[task % 3]
    middle = centroids[source.randrange(len(centroids))]
    moved = tuple(min(1.0, max(0.0, value + source.gauss(0.0, 0.05))) for value in middle)
    return Situation(
        task=f"task{task}", op_class=CLASSES[task % len(CLASSES)], dtype="float32", gpu=gpu,
        family=family, simulated=task % 4 != 3, signature=moved, share=1.0,
        microseconds=10.0 * 1.1 ** source.randrange(40), bound_us=5.0, source=f"source{number}",
    )  # fmt: skip


def measured(rows: int) -> str:
    """Return a line of the table."""
    seed = knowledge_seed()
    techniques = sorted(seed.techniques)
    centroids = [state.centroid for state in seed.states]
    source = random.Random(rows)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    told = Expectations()
    adding: list[float] = []

    def add(number: int) -> None:
        # Most rows are of few techniques, as was seen.
        technique = techniques[min(int(source.expovariate(0.12)), len(techniques) - 1)]
        action = Action(technique, setting={"size": source.choice(SETTINGS)})
        gain = source.gauss(0.1, 0.3) if source.random() < 0.8 else None
        tried = Tried(situation(source, number, centroids), action, gain, "wrong_answer")
        began = time.process_time()
        told.add(tried)
        adding.append(1e3 * (time.process_time() - began))

    for number in range(rows):
        add(number)
    asking: dict[int, list[float]] = {APPLY: [], len(techniques): []}
    for number in range(PROPOSALS):
        add(rows + number)
        here = situation(source, source.randrange(rows), centroids)
        for many, took in asking.items():
            asked = [
                Question(here, Action(technique, setting={"size": size}))
                for technique in source.sample(techniques, many)
                for size in SETTINGS
            ]
            began = time.process_time()
            told.forecasts(asked)
            took.append(1e3 * (time.process_time() - began))
    grown = (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) / 1024
    parts = [
        f"{many} techniques {statistics.median(took):5.2f} ms, "
        f"p95 {statistics.quantiles(took, n=20)[-1]:5.2f} ms"
        for many, took in asking.items()
    ]
    return (
        f"{rows:8} rows   proposal of {'   of '.join(parts)}   add a row "
        f"{statistics.fmean(adding):.3f} ms   {grown:.0f} MB"
    )


def main() -> None:
    """Print a line a size."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--rows", default="1000,10000,100000")
    parser.add_argument("--out", type=Path)
    given = parser.parse_args()
    lines = []
    for rows in map(int, given.rows.split(",")):
        lines.append(measured(rows))
        print(lines[-1], flush=True)
    if given.out:
        given.out.write_text("\n".join(lines) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
