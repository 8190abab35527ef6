"""How long do false rows cost anything? Runs with a trained base, and with lies in four states.

    python benchmarks/learning/poison.py --work DIR --base BASE [--out FILE] [--evaluations 8] \
        [--rows 6] [--tasks NAMES] [--seeds 2] [--lies praise|slander|both]

In the four states where most was tried, a technique that gained most is claimed to give wrong
answers (slander), or one that lost most to gain e to the third, twenty times (praise): as many rows
as `--rows`, each of a kernel of its own, on three tasks that never were, otherwise like a true row
of the same technique there. Then the asked tasks are run one after the other with either base,
live: what a task teaches, the next one knows. Simulated H100, built-in reasoners.

A step is an evaluation, counted through all tasks. It costs where the poisoned base's best of the
task until then is below the clean base's by more than 5 % of the best that either reached. A step
is misled where a praised technique, in whatever state, was tried with a forecast 10 % or more above
what came of it. Told are the last such step of each, and of each lie how the forecasts went.
"""

from __future__ import annotations

import argparse
import json
import math
import shutil
from collections import Counter
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from learning import ASKED, Arm, Benches, Run, runs_of

from kernelblaster.memory.knowledge.journal import Journal
from kernelblaster.memory.records.evidence import Evidence
from kernelblaster.tools.workspace import open_knowledge

CLAIMED = 3.0
"""Log gain that a praised technique is said to have."""
OF_THE_BEST, MISLED = 0.05, 0.1
TASKS = "row_mean,softmax_rows,product,layer_norm,swish_scale,transposed"
LIE = "lie"
"""Run that the false rows say they are of."""


class Lie(NamedTuple):
    """What is claimed falsely of a technique in a state."""

    state: str
    technique: str
    praise: bool
    truth: float
    """Mean log gain of its true rows there."""
    model: Evidence
    """A true row that the false ones are like."""


def lies(rows: Iterable[Evidence], kinds: str) -> list[Lie]:
    """Return a lie for each of four states, those where most was tried."""
    tried: dict[tuple[str, str], list[Evidence]] = {}
    counts: Counter[str] = Counter()
    for row in rows:
        counts[row.state_before] += 1
        if row.log_gain is not None:
            tried.setdefault((row.state_before, row.technique), []).append(row)
    told = []
    for (state, technique), found_there in sorted(tried.items()):
        truth = _mean(found_there)
        if truth < 0.0 and kinds != "slander":
            told.append(Lie(state, technique, True, truth, found_there[0]))
        if truth > 0.05 and kinds != "praise":
            told.append(Lie(state, technique, False, truth, found_there[0]))
    found: list[Lie] = []
    for state, _ in sorted(counts.items(), key=lambda each: (-each[1], each[0])):
        known = {lie.technique for lie in found}
        left = [lie for lie in told if lie.state == state and lie.technique not in known]
        if left and len(found) < 4:
            # In turn praise and slander where both are possible, the truth farthest off.
            turn = len(found) % 2 == 0
            found.append(max(left, key=lambda lie: (lie.praise is turn, abs(lie.truth))))
    return found


def planted(lie: Lie, count: int) -> list[Evidence]:
    """Return the false rows of a lie."""
    like = lie.model.model_dump()
    return [
        Evidence.model_validate(
            {
                **like,
                "run": LIE, "step": number, "task_id": f"{LIE} {number % 3}",
                "parent_sha256": f"{LIE} {lie.state} {number}",
                "child_sha256": f"{LIE} {lie.state} {lie.technique} {number}",
                "outcome": "passed" if lie.praise else "wrong_answer",
                "log_gain": CLAIMED if lie.praise else None,
                "standard_error": 0.0, "state_after": None,
            }
        )
        for number in range(count)
    ]  # fmt: skip


def poisoned(base: Path, made: Path, told: Sequence[Lie], count: int) -> Path:
    """Make a base that knows all that another does, and false rows."""
    if made.exists():
        return made
    beside = made.with_name(f".{made.name}")
    shutil.copytree(base, beside, dirs_exist_ok=True, ignore=shutil.ignore_patterns("chroma"))
    with open_knowledge(str(beside), create=False) as knowledge:
        rows = [row for lie in told for row in planted(lie, count)]
        assert knowledge.add_evidence(rows) == len(rows)
    beside.rename(made)
    return made


def _mean(rows: Sequence[Evidence]) -> float:
    return math.fsum(row.log_gain or 0.0 for row in rows) / len(rows)


# Figures -------------------------------------------------------------------------------------


def costs(clean: Sequence[Run], bad: Sequence[Run]) -> list[float]:
    """Return for each step the share of its task's best log gain that the lies have cost so far."""
    found = []
    for one, other in zip(clean, bad, strict=True):
        assert one.task == other.task
        top = max(one.best[-1], other.best[-1])
        for without, with_lies in zip(one.best, other.best, strict=True):
            found.append((without - with_lies) / top if top > 0.01 else 0.0)
    return found


def told_of(runs: Sequence[Run], evaluations: int, told: Sequence[Lie]) -> list[dict[str, Any]]:
    """Return every step on which a technique that lies speak of was tried."""
    about = {lie.technique: lie for lie in told}
    return [
        {
            "step": place * evaluations + number,
            "task": run.task,
            "state": step.state_id,
            "technique": step.technique,
            "lie": "praise" if about[step.technique].praise else "slander",
            "expected": round(step.expected_log_gain, 3),
            "passes": None if step.forecast_pass is None else round(step.forecast_pass, 2),
            "came_to": None if step.log_gain is None else round(step.log_gain, 3),
        }
        for place, run in enumerate(runs)
        for number, step in enumerate(run.steps, 1)
        if step.technique in about
    ]


def main() -> None:
    """Plant, run and tell."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("--work", type=Path, required=True)
    parser.add_argument("--base", type=Path, required=True)
    parser.add_argument("--out", type=Path)
    parser.add_argument("--evaluations", type=int, default=8)
    parser.add_argument("--rows", type=int, default=6)
    parser.add_argument("--tasks", default=TASKS)
    parser.add_argument("--seeds", type=int, default=1)
    parser.add_argument("--lies", choices=("both", "praise", "slander"), default="both")
    given = parser.parse_args()
    given.work.mkdir(parents=True, exist_ok=True)
    work = given.work.resolve()
    journal = Journal(given.base / "evidence.sqlite")
    rows = [
        journal.read(Evidence, each) for each in journal.entries() if each.kind == "evidence"
    ]
    journal.close()
    told = lies(rows, given.lies)
    bad = poisoned(given.base, work / "poisoned", told, given.rows)
    benches = Benches(work, given.evaluations, 1, given.tasks, given.seeds)
    policy = "kernelblaster"
    found = {
        name: _by_seed(
            runs_of(benches.run(name, ASKED, Arm(name, policy, base)), given.evaluations)
        )
        for name, base in (("clean", given.base.resolve()), ("with_lies", bad))
    }
    result: dict[str, Any] = {
        "evaluations": given.evaluations, "rows_of_a_lie": given.rows, "true_rows": len(rows),
        "lies": [
            {"state": lie.state, "technique": lie.technique, "true_log_gain": round(lie.truth, 3),
             "claimed": CLAIMED if lie.praise else "wrong answers"} for lie in told
        ],
        "seeds": [],
    }  # fmt: skip
    for clean, with_lies in zip(found["clean"], found["with_lies"], strict=True):
        cost = costs(clean, with_lies)
        tries = told_of(with_lies, given.evaluations, told)
        misled = [
            each["step"] for each in tries
            if each["lie"] == "praise" and each["expected"] - (each["came_to"] or 0.0) > MISLED
        ]  # fmt: skip
        costly = [number for number, value in enumerate(cost, 1) if value > OF_THE_BEST]
        result["seeds"].append(
            {
                "steps": len(cost),
                "last_step_that_costs": max(costly, default=0),
                "steps_that_cost": len(costly),
                "misled_steps": misled,
                "share_of_the_best_at_the_end": {
                    run.task: round(1.0 - cost[(place + 1) * given.evaluations - 1], 3)
                    for place, run in enumerate(with_lies)
                },
                "cost_of_each_step": [round(value, 3) for value in cost],
                "tries_of_what_lies_speak_of": tries,
            }
        )
    text = json.dumps(result, indent=1) + "\n"
    print(text)
    if given.out:
        given.out.write_text(text, encoding="utf-8")


def _by_seed(runs: Sequence[Run]) -> list[list[Run]]:
    """Return the runs of each seed, in order of the chain."""
    tasks = list(dict.fromkeys(run.task for run in runs))
    by_task = [[run for run in runs if run.task == task] for task in tasks]
    return [list(each) for each in zip(*by_task, strict=True)]


if __name__ == "__main__":
    main()
