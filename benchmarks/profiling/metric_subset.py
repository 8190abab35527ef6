"""Choose the counters that the Judge reads, as CudaForge does (arXiv 2511.01884).

Over the candidates of a task, each counter's correlation with run time; of each task the top-k by
its absolute value; kept are those that most tasks agree on, with the same sign. Counters that are
run time in another unit, and those that a run does not collect, are left out.

    python benchmarks/profiling/metric_subset.py ncu_full_raw.csv \
        --out nodes/judge/metric_subset.json
    python benchmarks/profiling/metric_subset.py runs/*   # print what runs' profiles would give

Of a raw page each launch is a candidate, of the task that its kernel's name begins with
(softmax_block: softmax); of a run each evaluation that passed, by its longest launch.
"""

from __future__ import annotations

import argparse
import json
import re
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np

from kernelblaster.harness.nsight.command import DEFAULT_METRICS
from kernelblaster.harness.nsight.pages import read_raw_page
from kernelblaster.harness.nsight.profile import with_ratios
from kernelblaster.memory.run.run_store import RunStore

FEWEST = 3
"""Candidates of a task below which no correlation is worth its name."""
TOP = 40
"""Counters that a task votes for: of few candidates many are as good as each other."""
KEPT = 24
"""Counters of the subset; CudaForge has as many."""
IS_TIME = re.compile(
    r"time_duration|pcsamp|cycles_(elapsed|active|in_frame)[\w.]*\.(sum|avg|max|min)$"
)
"""Durations, cycles, and samples taken at a steady pace."""
TWICE = re.compile(r"per_second$|per_cycle_|occupancy_per_|\.peak_|(?<!warps_active)[\w.]*_active$")
"""Other forms of what stands there as a share of the peak over the elapsed cycles."""
COLLECTED = re.compile(
    r"throughput|occupancy|warps_active|maximum_warps|launch__(grid_size|block_size|registers|"
    r"shared_mem|waves)|^dram__bytes|inst_executed"
)
"""What the sections of a run's profiles hold beside the counters asked for by name."""


class Candidate(NamedTuple):
    """One kernel: its time in microseconds and its counters."""

    microseconds: float
    metrics: Mapping[str, float]


class Chosen(NamedTuple):
    """One counter of the subset."""

    metric: str
    tasks: int
    """That voted for it with this sign."""
    correlation: float
    """Mean over those tasks."""


def is_eligible(name: str) -> bool:
    """Say whether a counter may be chosen: a run collects it, and it is not the time itself."""
    if IS_TIME.search(name) or TWICE.search(name):
        return False
    collected = {*DEFAULT_METRICS, *with_ratios(dict.fromkeys(DEFAULT_METRICS, 1.0))}
    return name in collected or COLLECTED.search(name) is not None


def correlations(candidates: Sequence[Candidate]) -> dict[str, float]:
    """Return each counter's correlation (Pearson) with run time over a task's candidates.

    Of counters that all candidates have and that are not the same in all.
    """
    times = np.array([each.microseconds for each in candidates])
    shared = set.intersection(*(set(each.metrics) for each in candidates))
    found = {}
    for name in sorted(filter(is_eligible, shared)):
        values = np.array([each.metrics[name] for each in candidates])
        if np.ptp(values) > 1e-9 * np.abs(values).max() and np.ptp(times) > 0:
            found[name] = float(np.corrcoef(values, times)[0, 1])
    return found


def chosen_of(tasks: Mapping[str, Sequence[Candidate]], top: int, kept: int) -> list[Chosen]:
    """Return the counters that several tasks vote for, the most first, then those that go with
    time most."""
    votes: dict[str, list[float]] = defaultdict(list)
    for candidates in tasks.values():
        found = correlations(candidates)
        for name in sorted(found, key=lambda each: (-abs(found[each]), each))[:top]:
            votes[name].append(found[name])
    agreed = []
    for name, values in votes.items():
        sign = np.sign(sum(np.sign(values)) or np.sign(sum(values)))
        same = [value for value in values if np.sign(value) == sign]
        agreed.append(Chosen(name, len(same), float(np.mean(same))))
    shared = [each for each in agreed if each.tasks > 1]
    shared.sort(key=lambda each: (-each.tasks, -abs(each.correlation), each.metric))
    return shared[:kept]


def of_page(path: Path) -> dict[str, list[Candidate]]:
    """Return the candidates in a raw page of Nsight Compute, by task."""
    tasks: dict[str, list[Candidate]] = defaultdict(list)
    for launch in read_raw_page(path.read_text()).values():
        metrics = with_ratios(launch.metrics)
        task = re.split(r"[_<\d]", launch.kernel)[0]
        tasks[task].append(Candidate(metrics["gpu__time_duration.sum"] / 1e3, metrics))
    return tasks


def of_run(directory: Path) -> tuple[str, dict[str, list[Candidate]]]:
    """Return whose numbers a run's are, and its candidates by task."""
    tasks: dict[str, list[Candidate]] = defaultdict(list)
    whose = ""
    with RunStore(directory / "run.sqlite") as store:
        for evaluation in store.evaluations():
            if evaluation.profile is not None and evaluation.timing is not None:
                whose = str(evaluation.profile.provenance)
                tasks[evaluation.task_id].append(
                    Candidate(
                        evaluation.timing.microseconds, evaluation.profile.dominant.metrics
                    )
                )
    return whose, tasks


def gathered(paths: Iterable[Path]) -> tuple[str, dict[str, list[Candidate]]]:
    """Return whose numbers they are, and the candidates of all paths by task.

    Raises:
        SystemExit: a path is neither; simulated and measured numbers, which are never averaged,
            are both there; there are too few.
    """
    tasks: dict[str, list[Candidate]] = defaultdict(list)
    whose: set[str] = set()
    for path in paths:
        if not (path if path.suffix == ".csv" else path / "run.sqlite").is_file():
            raise SystemExit(f"{path} is neither a raw page (.csv) nor a run directory")
        said, found = ("ncu", of_page(path)) if path.suffix == ".csv" else of_run(path)
        whose |= {said} - {""}
        for task, candidates in found.items():
            tasks[task] += candidates
    if len(whose) != 1:
        raise SystemExit(f"profiles of one kind are wanted, and these are of: {sorted(whose)}")
    enough = {task: found for task, found in tasks.items() if len(found) >= FEWEST}
    if len(enough) < 2:
        raise SystemExit(f"two tasks with {FEWEST} candidates each are wanted, to agree")
    return whose.pop(), enough


def main() -> None:
    """Read the profiles, print the subset, and write it where that is asked for."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("paths", nargs="+", type=Path, help="raw pages (.csv), or run directories")
    parser.add_argument("--top", type=int, default=TOP, help="counters that a task votes for")
    parser.add_argument("--kept", type=int, default=KEPT, help="counters of the subset")
    parser.add_argument("--out", type=Path, help="JSON file to write")
    parser.add_argument("--device", default="", help="what was profiled, for the file to say")
    asked = parser.parse_args()
    whose, tasks = gathered(asked.paths)
    subset = chosen_of(tasks, asked.top, asked.kept)
    for each in subset:
        print(f"{each.tasks:3} tasks  {each.correlation:+.2f}  {each.metric}")
    if asked.out:
        document = {
            "made_by": "benchmarks/profiling/metric_subset.py",
            "profiles": [path.name for path in asked.paths],
            "device": asked.device,
            "provenance": whose,
            "tasks": {task: len(found) for task, found in sorted(tasks.items())},
            "top": asked.top,
            "metrics": [each._asdict() | {"correlation": round(each.correlation, 3)}
                        for each in subset],
        }  # fmt: skip
        asked.out.write_text(json.dumps(document, indent=2) + "\n")


if __name__ == "__main__":
    main()
