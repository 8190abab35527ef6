"""Does the knowledge base help? Runs on tasks it was not trained on, under arms of memory.

    python benchmarks/learning/learning.py --work DIR [--out FILE] [--evaluations 8] [--jobs 2]
        [--orders 3] [--gpus A100,L40S,RTX4090] [--tasks NAMES] [--only ARM,ARM]
    python benchmarks/learning/learning.py --work DIR --device cuda --trained BASE --jobs 8
        --only random,seed,trained-1 [--tasks NAMES]

Trained on the twelve tasks of recorded_tries/tasks, in several orders; asked on the tasks of
suites/kinds. Simulated H100, built-in reasoners, the same cap on evaluations for every arm. All of
it goes through `kernelblaster bench`, so a stopped benchmark goes on where it was. With --device
the asked tasks run there, and with --trained a base is taken for what the first training left:
`WORK/train-order-1/knowledge/*` of a run before, on another machine too. Arms:

    random          techniques with equal chances
    off             no memory: no state and no prior is known
    seed            the priors that come with the package
    trained-1..     the seed and what a training in one order left, frozen
    live            the first training, and the run's own and its neighbours' experience
    shuffled        as trained-1, each try's outcome being another's
    no_gradient     a training in which agents moved evidence and wrote nothing, frozen
    same            the base that `live` left: each task was seen before
    class_left_out  as trained-1, without what was learned on the task's class of operation
    GPU:seed, GPU:trained    another GPU: the seed, and the training on H100

Of each run: the log gain of the best kernel after each evaluation. Figures: the share of the best
log gain that any arm reached, after all evaluations and on average over them; evaluations to 90 %
of it (one more than the cap where it was not reached); tasks harmed (20 % or more of the best log
gain below the seed's). Of each forecast that was stored before its outcome: pairs of tries of one
kernel ordered right, and log loss. Intervals are of 95 %, by drawing tasks anew. Tasks on which
uniform random choice had 90 % of the best with its first candidate are left out and named.
"""

from __future__ import annotations

import argparse
import fnmatch
import functools
import itertools
import json
import math
import random
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from kernelblaster.bench.directory import read_suite, run_path
from kernelblaster.harness.cuda.present_gpus import find_gpus
from kernelblaster.harness.task.loading import load_task_now
from kernelblaster.memory.knowledge.journal import Entry, Journal
from kernelblaster.memory.records.evidence import NO_GAIN, Step
from kernelblaster.memory.run.run_store import RunStore

HERE = Path(__file__).resolve().parents[1]
TRAINING, ASKED = HERE / "recorded_tries" / "tasks", HERE / "suites" / "kinds"
GPU = "H100"
REACHED = 0.9
"""Share of the best log gain from which a task counts as solved."""
HARMED = 0.2
FAILURE_COST = 0.05
"""Log gain that a failed try is worth less than none, where tries are ordered."""
SHAKES = 2000


class Arm(NamedTuple):
    """One way to remember: a bench of the asked tasks."""

    name: str
    policy: str
    base: Path | None = None
    """What it begins with."""
    gpu: str = GPU
    tasks: str = ""


class Run(NamedTuple):
    """One task under one arm."""

    task: str
    best: tuple[float, ...]
    """Log gain of the best kernel after each try."""
    steps: tuple[Step, ...]


# Running -------------------------------------------------------------------------------------


class Benches:
    """All benches, in one directory."""

    def __init__(
        self, work: Path, evaluations: int, jobs: int, tasks: str, seeds: int = 1,
        device: str = "simulated",
    ) -> None:  # fmt: skip
        self._work, self._jobs, self._seeds, self._device = work, jobs, seeds, device
        self.evaluations, self.tasks = evaluations, tasks

    def directory(self, name: str) -> Path:
        """Return where a bench of a name is."""
        return self._work / name.replace(":", "-")

    def run(self, name: str, suite: Path, arm: Arm) -> Path:
        """Run a bench, or go on with it; return its directory."""
        place = self.directory(name)
        begun = (place / "suite.json").is_file()
        if not begun:  # No bench evaluates what another of these has.
            (self._work / "stages").mkdir(exist_ok=True)
            place.mkdir(exist_ok=True)
            if not (place / "stages").is_symlink():
                (place / "stages").symlink_to(self._work / "stages")
        tasks = arm.tasks or self.tasks
        asked = suite == ASKED
        device = self._device if asked else "simulated"
        command = [sys.executable, "-m", "kernelblaster", "bench"]
        command += [str(place)] if begun else [
            str(suite), "--out", str(place), "--policy", arm.policy, "--device", device,
            *(("--gpu", arm.gpu) if device == "simulated" else ()),
            "--budget", f"evaluations={self.evaluations}",
            "--knowledge", str(arm.base or "shared"), *(("--tasks", tasks) if tasks else ()),
            "--seeds", str(self._seeds),
        ]  # fmt: skip
        jobs = self._jobs if asked else 1  # A training's order is what it is about.
        done = subprocess.run([*command, "--jobs", str(jobs), "--quiet"], check=False)
        if done.returncode not in (0, 1):
            raise SystemExit(f"{' '.join(command)} ended with {done.returncode}")
        return place

    def trained(self, name: str, order: int, policy: str) -> Path:
        """Return the base that a training left."""
        tasks = sorted(TRAINING.glob("*.py"))
        random.Random(order).shuffle(tasks)
        suite = self._work / "orders" / name
        suite.mkdir(parents=True, exist_ok=True)
        for number, task in enumerate(tasks):
            shutil.copyfile(task, suite / f"{number:02d}_{task.name}")
        arm = Arm(name, policy, tasks="*")
        return base_of(self.run(f"train-{name}", suite, arm))


def base_of(bench: Path) -> Path:
    """Return the knowledge base that the only variant of a bench shares among its tasks."""
    (run, *_) = read_suite(bench).runs
    return bench / "knowledge" / run.chain


def without_class(base: Path, made: Path, op_class: str) -> Path:
    """Make a base that knows all that another does but what came of one class of operation."""
    if made.exists():
        return made
    shutil.copytree(base, beside := made.with_name(f".{made.name}"), dirs_exist_ok=True)
    shutil.rmtree(beside / "chroma", ignore_errors=True)
    for file in beside.glob("evidence.sqlite*"):
        file.unlink()
    old, new = Journal(base / "evidence.sqlite"), Journal(beside / "evidence.sqlite")
    kept = []
    for entry in old.entries():
        if json.loads(entry.body).get("op_class") != op_class:
            kept.append(Entry(entry.kind, entry.id, entry.body))
    new.append(kept)
    old.close()
    new.close()
    beside.rename(made)
    return made


def op_classes(tasks: str) -> dict[str, list[str]]:
    """Return the asked tasks by class of operation."""
    found: dict[str, list[str]] = {}
    for path in sorted(ASKED.glob("*.py")):
        if any(fnmatch.fnmatch(path.stem, name) for name in (tasks or "*").split(",")):
            found.setdefault(load_task_now(path).op_class, []).append(path.stem)
    return found


# Reading -------------------------------------------------------------------------------------


def runs_of(bench: Path, evaluations: int) -> list[Run]:
    """Return what a bench's runs came to, as far as they are over."""
    found = []
    for planned in read_suite(bench).runs:
        path = run_path(bench, planned) / "run.sqlite"
        if not path.is_file():
            continue
        with RunStore(path) as store:
            steps = tuple(store.replay.steps())
        first = next((step.microseconds_before for step in steps), None)
        best, reached = [], 0.0
        for step in steps:
            if first is not None and step.microseconds_after is not None:
                reached = max(reached, math.log(first / step.microseconds_after))
            best.append(reached)
        best += [reached] * (evaluations - len(best))
        found.append(Run(planned.task, tuple(best[:evaluations]), steps))
    return found


def worth(step: Step) -> float:
    """Return what a try was worth."""
    return -FAILURE_COST if step.log_gain is None else step.log_gain


def forecast(step: Step) -> float:
    """Return what a try was ordered by before its outcome."""
    success = 1.0 if step.forecast_pass is None else step.forecast_pass
    return success * step.expected_log_gain - (1.0 - success) * FAILURE_COST


def pairs(run: Run) -> list[float]:
    """Return for each pair of tries of one kernel 1 where it was ordered right, a tie a half."""
    found = []
    for one, other in itertools.combinations(run.steps, 2):
        apart = worth(one) - worth(other)
        if one.parent_sha256 != other.parent_sha256 or abs(apart) <= NO_GAIN:
            continue
        said = forecast(one) - forecast(other)
        found.append(0.5 if said == 0.0 else float((said > 0.0) == (apart > 0.0)))
    return found


def losses(run: Run) -> list[float]:
    """Return the log loss of each forecast: fails, gains nothing worth the name, gains more."""
    found = []
    for step in run.steps:
        passing, spread = step.forecast_pass, step.forecast_std
        if passing is None or not spread:
            continue
        more = 0.5 * math.erfc((NO_GAIN - step.expected_log_gain) / (spread * math.sqrt(2.0)))
        chances = 1.0 - passing, passing * (1.0 - more), passing * more
        came = 0 if step.log_gain is None else 2 if step.log_gain > NO_GAIN else 1
        found.append(-math.log(max(chances[came], 1e-6)))
    return found


# Figures -------------------------------------------------------------------------------------

Figure = Callable[[Sequence[str]], float | None]
"""Of tasks, drawn with repetition."""


def interval(tasks: Sequence[str], figure: Figure) -> dict[str, float | None]:
    """Return a figure with its 95 % interval over tasks."""
    stream = random.Random(0)
    shaken = sorted(
        found for _ in range(SHAKES)
        if (found := figure(stream.choices(tasks, k=len(tasks)))) is not None
    )  # fmt: skip
    if not shaken:
        return {"estimate": figure(tasks), "low": None, "high": None}
    low, high = shaken[int(0.025 * len(shaken))], shaken[int(0.975 * len(shaken)) - 1]
    return {"estimate": figure(tasks), "low": low, "high": high}


def mean_of(values: Mapping[str, Sequence[float]]) -> Figure:
    """Return the mean over all values of the tasks drawn."""

    def figure(tasks: Sequence[str]) -> float | None:
        found = [value for task in tasks for value in values[task]]
        return sum(found) / len(found) if found else None

    return figure


def figures(arms: Mapping[str, Sequence[Run]], evaluations: int) -> dict[str, object]:
    """Return all figures of arms that were asked the same tasks on one GPU."""
    tasks = sorted(set.intersection(*({run.task for run in runs} for runs in arms.values())))
    of = {name: {run.task: run for run in runs} for name, runs in arms.items()}
    top = {task: max(runs[task].best[-1] for runs in of.values()) for task in tasks}
    easy = [
        task for task in tasks if top[task] <= NO_GAIN or (
            "random" in of and of["random"][task].best[0] >= REACHED * top[task])
    ]  # fmt: skip
    hard = [task for task in tasks if task not in easy]
    told: dict[str, object] = {}
    for name, runs in of.items():
        share = {task: [max(0.0, runs[task].best[-1]) / top[task]] for task in hard}
        area = {task: [value / top[task] for value in runs[task].best] for task in hard}
        steps = {task: [float(_until(runs[task].best, REACHED * top[task]))] for task in hard}
        harmed = [
            task for task in hard
            if "seed" in of
            and runs[task].best[-1] < of["seed"][task].best[-1] - HARMED * top[task]
        ]  # fmt: skip
        told[name] = {
            "share": interval(hard, mean_of(share)),
            "share_on_the_way": interval(hard, mean_of(area)),
            "evaluations_to_90": interval(hard, mean_of(steps)),
            "harmed": harmed,
            "pairs": interval(tasks, mean_of({task: pairs(runs[task]) for task in tasks})),
            "pairs_counted": sum(len(pairs(runs[task])) for task in tasks),
            "log_loss": interval(tasks, mean_of({task: losses(runs[task]) for task in tasks})),
        }
    return {"evaluations": evaluations, "tasks": hard, "solved_at_once": easy, "arms": told}


def _until(best: Sequence[float], least: float) -> int:
    return next((number for number, value in enumerate(best, 1) if value >= least), len(best) + 1)


def as_table(told: Mapping[str, object]) -> str:
    """Return figures as Markdown."""
    arms = told["arms"]
    assert isinstance(arms, dict)
    tasks, easy = told["tasks"], told["solved_at_once"]
    assert isinstance(tasks, list) and isinstance(easy, list)
    left_out = ", ".join(easy) or "none"
    lines = [
        f"{len(tasks)} tasks; left out, solved at once or without gain: {left_out}.",
        "",
        "| arm | share of the best log gain | on the way | evaluations to 90 % | harmed "
        "| pairs ordered right | log loss |",
        "|---|---|---|---|---|---|---|",
    ]
    for name, row in arms.items():
        cells = [
            _told(row[figure])
            for figure in ("share", "share_on_the_way", "evaluations_to_90", "pairs", "log_loss")
        ]
        harmed = ", ".join(row["harmed"]) or "none"
        pairs_told = f"{cells[3]} of {row['pairs_counted']}"
        lines.append(
            f"| {name} | {cells[0]} | {cells[1]} | {cells[2]} | {harmed} | {pairs_told} "
            f"| {cells[4]} |"
        )
    return "\n".join(lines)


def _told(figure: Mapping[str, float | None]) -> str:
    if figure["estimate"] is None:
        return "none"
    if figure["low"] is None:
        return f"{figure['estimate']:.2f}"
    return f"{figure['estimate']:.2f} ({figure['low']:.2f} to {figure['high']:.2f})"


# All arms ------------------------------------------------------------------------------------


def all_arms(
    benches: Benches, orders: int, gpus: Sequence[str], wanted: frozenset[str],
    first: Path | None = None,
) -> dict[str, dict[str, list[Path]]]:  # fmt: skip
    """Run what is wanted (all, where nothing is named); return benches by GPU and arm.

    `first` is taken for what the first training left, where it is given.
    """
    done: dict[str, dict[str, list[Path]]] = {GPU: {}}

    def ask(arm: Arm, label: str = "") -> Path:
        name = label or arm.name
        place = benches.run(f"ask-{name}", ASKED, arm)
        done.setdefault(arm.gpu, {}).setdefault(arm.name.split(":")[-1], []).append(place)
        return place

    def want(name: str) -> bool:
        return not wanted or name in wanted

    frozen = "kernelblaster[memory=frozen]"
    for name, policy in (("random", "random"), ("off", "kernelblaster[memory=off]"),
                         ("seed", "kernelblaster[memory=seed]")):  # fmt: skip
        if want(name):
            ask(Arm(name, policy))

    @functools.cache
    def trained(order: int) -> Path:
        if first and order == 1:
            return first
        return benches.trained(f"order-{order}", order, "kernelblaster")

    for order in range(1, orders + 1):
        if want(f"trained-{order}"):
            ask(Arm(f"trained-{order}", frozen, trained(order)))
    if want("live") or want("same"):
        live = ask(Arm("live", "kernelblaster", trained(1)))
        if want("same"):
            ask(Arm("same", frozen, base_of(live)))
    if want("shuffled"):
        ask(Arm("shuffled", "kernelblaster[memory=shuffled]", trained(1)))
    if want("no_gradient"):
        base = benches.trained("no-gradient", 1, "kernelblaster[gradient=false]")
        ask(Arm("no_gradient", frozen, base))
    if want("class_left_out"):
        for op_class, tasks in op_classes(benches.tasks).items():
            made = benches.directory(f"base-without-{op_class}")
            base = without_class(trained(1), made, op_class)
            arm = Arm("class_left_out", frozen, base, tasks=",".join(tasks))
            ask(arm, f"class_left_out-{op_class}")
    for gpu in gpus:
        ask(Arm(f"{gpu}:seed", "kernelblaster[memory=seed]", gpu=gpu))
        ask(Arm(f"{gpu}:trained", frozen, trained(1), gpu=gpu))
    return done


def main() -> None:
    """Run the arms and tell the figures."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("--work", type=Path, required=True)
    parser.add_argument("--out", type=Path)
    parser.add_argument("--evaluations", type=int, default=8)
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--orders", type=int, default=3)
    parser.add_argument("--gpus", default="")
    parser.add_argument("--tasks", default="")
    parser.add_argument("--device", default="simulated")
    parser.add_argument("--trained", type=Path)
    parser.add_argument("--only", default="")
    given = parser.parse_args()
    given.work.mkdir(parents=True, exist_ok=True)
    benches = Benches(
        given.work.resolve(), given.evaluations, given.jobs, given.tasks, device=given.device
    )
    wanted = frozenset(filter(None, given.only.split(",")))
    gpus = [each for each in given.gpus.split(",") if each]
    first = given.trained and given.trained.resolve()
    found = all_arms(benches, given.orders, gpus, wanted, first)
    named = {} if given.device == "simulated" else {GPU: find_gpus()[0].name}
    told = {
        named.get(gpu, gpu): figures(_read(arms, given.evaluations), given.evaluations)
        for gpu, arms in found.items() if arms
    }  # fmt: skip
    text = "\n\n".join(f"## {gpu}\n\n{as_table(each)}" for gpu, each in told.items())
    print(text)
    if given.out:
        given.out.write_text(json.dumps(told, indent=1) + "\n", encoding="utf-8")


def _read(arms: Mapping[str, Iterable[Path]], evaluations: int) -> dict[str, list[Run]]:
    return {
        name: [run for place in places for run in runs_of(place, evaluations)]
        for name, places in arms.items()
    }


if __name__ == "__main__":
    main()
