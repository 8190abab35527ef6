"""Measured tries out of a bench's directory, written down as recorded ones are.

    python benchmarks/learning/tries_of_runs.py BENCH [--out DIR]

Each step of each run is a try: (kernel, technique, setting, launch) and what came of it. Runs that
are not over count with the steps that they made, and one without a first kernel has none. The
launch is the one that the source shows was changed: policies by rounds name none. Left out is what
says nothing of a technique (there was no candidate, or the task or the machine failed), and
the first kernel, which was made of none.

Runs of one task begin with the same kernel, so that many tries were measured by several of them.
These are one try, or the regression would take what is known twice for two samples: its log gain
is the median, so that it hangs on no order of policies, `measured` keeps the log gain of each run
(a run's second answer to the same question is a copy of its first), and a verdict against the
child in one run stands. A kernel's time is the median over runs, its profile the first run's.

What the lines of DIR/GPU-TASK.jsonl say is told in `try_lines.py`. A measured kernel also says
`device`; a try that passed the standard error (`error`) of one measurement of its log gain. Names
and numbers are kept, and no text of a task or a kernel.
"""

from __future__ import annotations

import argparse
import json
import statistics
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from try_lines import Applied, Line, as_text, kernel_line, name_of, try_line

from kernelblaster.bench.directory import read_suite, run_path
from kernelblaster.harness.bound.speed_of_light import speed_of_light
from kernelblaster.harness.gpus import known_gpu
from kernelblaster.harness.records.evaluations import Evaluation
from kernelblaster.harness.records.outcomes import Outcome
from kernelblaster.harness.records.tasks import Task
from kernelblaster.harness.records.timings import error_of_log_ratio
from kernelblaster.memory.knowledge.policy.actions import writer_of
from kernelblaster.memory.records.evidence import Step
from kernelblaster.memory.run.artifacts import ArtifactStore
from kernelblaster.memory.run.directory import ARTIFACTS
from kernelblaster.memory.run.journal import latest
from kernelblaster.memory.run.run_store import RunStore
from kernelblaster.nodes.common.history.steps import ways_through
from kernelblaster.tools.rewriting.records import Rewritten
from kernelblaster.tools.rewriting.target import target_of

OUT = Path(__file__).resolve().parents[1] / "recorded_tries" / "measured"

Key = tuple[str, str, str, str]
"""Kernel, technique, setting and launch."""


class Tried(NamedTuple):
    """A step of one run."""

    seed: int
    step: Step
    applied: Applied
    error: float
    """Standard error of the log gain; 0 where it is not known."""

    @property
    def key(self) -> Key:
        """What makes it the same try in another run."""
        technique, setting, launch = self.applied
        return self.step.parent_sha256, technique, json.dumps(setting, sort_keys=True), launch


class Told(NamedTuple):
    """What one run says."""

    task: Task
    device: str
    gpu: str
    """Our name of it."""
    kernels: Mapping[str, Evaluation]
    """Those that passed and were profiled, by the sha256 of their source."""
    lineages: Mapping[str, list[list[Any]]]
    """Of each of these, technique, setting, launch and log gain of the steps to it."""
    tries: Sequence[Tried]


def tries_of_bench(directory: Path) -> dict[str, list[Line]]:
    """Return the lines of each file, by its name.

    Raises:
        UserError: it is no bench, or something in it is damaged.
    """
    lock = read_suite(directory)
    by_file: dict[str, list[Told]] = {}
    for run in lock.runs:
        told = told_by(run_path(directory, run), run.seed)
        if told is not None and told.tries:
            by_file.setdefault(f"{told.gpu}-{told.task.name}.jsonl", []).append(told)
    return {name: list(_lines(runs)) for name, runs in sorted(by_file.items())}


def told_by(path: Path, seed: int) -> Told | None:
    """Return what a run says; None where it did not begin, or its GPU's figures are not known."""
    if not (path / "run.sqlite").is_file():
        return None
    with RunStore(path / "run.sqlite", copied=True) as store:
        summary = latest(store.journal.entries()).get("summary")
        evaluations = list(store.evaluations())
        steps = store.replay.steps()
    gpu = known_gpu(evaluations[0].device.gpu) if evaluations else None
    if summary is None or gpu is None:
        return None
    artifacts = ArtifactStore(path / ARTIFACTS)
    kernels = {
        each.source_sha256: each
        for each in evaluations
        if each.task_id == summary["id"] and each.timing and each.profile
    }
    tries = [
        _tried(seed, step, kernels, artifacts)
        for step in steps
        if step.parent_sha256 in kernels and _says_something(step)
    ]
    applied = {each.step.id: [*each.applied, _rounded(each.step.log_gain)] for each in tries}
    return Told(
        task=Task.model_validate_json(artifacts.get_text(summary["artifact"])),
        device=evaluations[0].device.kind,
        gpu=gpu.name,
        kernels=kernels,
        lineages={
            sha256: [applied[step.id] for step in way if step.id in applied]
            for sha256, way in ways_through(steps).items()
        },
        tries=tries,
    )


def _says_something(step: Step) -> bool:
    child = step.child_sha256
    judged = step.outcome.is_verdict and step.outcome.has_candidate
    return judged and child is not None and child != step.parent_sha256


def _tried(
    seed: int, step: Step, kernels: Mapping[str, Evaluation], artifacts: ArtifactStore
) -> Tried:
    parent, child = kernels[step.parent_sha256], kernels.get(step.child_sha256 or "")
    assert parent.profile is not None and parent.timing is not None
    launch = target_of(
        Rewritten(source=artifacts.get_text(step.child_sha256 or ""), note=step.reason),
        artifacts.get_text(step.parent_sha256),
        [share.kernel for share in parent.profile.by_kernel],
    )
    error = 0.0
    if child is not None and child.timing is not None:
        before, after = parent.timing, child.timing
        error = error_of_log_ratio(before.provenance, before.interval, after.interval)
    return Tried(seed, step, (step.technique, step.parameters, launch), error)


def _lines(runs: Sequence[Told]) -> Iterator[Line]:
    """Yield the lines of a task: each kernel, in the order in which it was met, then its tries."""
    tries: dict[str, dict[Key, list[tuple[int, Tried]]]] = {}
    for number, told in enumerate(runs):
        for each in told.tries:
            of_kernel = tries.setdefault(each.step.parent_sha256, {})
            of_kernel.setdefault(each.key, []).append((number, each))
    for sha256, by_key in tries.items():
        yield _kernel(sha256, runs, {launch for *_, launch in by_key})
        for made in by_key.values():
            yield _try([each for _, each in made], _once(made))


def _kernel(sha256: str, runs: Sequence[Told], changed: set[str]) -> Line:
    seen = [told for told in runs if sha256 in told.kernels]
    first, gpu = seen[0], known_gpu(seen[0].gpu)
    times = [each.timing.microseconds for told in seen if (each := told.kernels[sha256]).timing]
    profile = first.kernels[sha256].profile
    assert gpu is not None and profile is not None
    bound = speed_of_light(first.task, gpu)
    applied = first.lineages[sha256]
    line = kernel_line(name_of(sha256), first.task, gpu.name, profile, bound, applied, changed)
    return line | {"device": first.device, "us": round(statistics.median(times), 4)}


def _once(made: Iterable[tuple[int, Tried]]) -> list[Tried]:
    """Return the first of each run: the others are what it knew already."""
    return list({number: each for number, each in reversed(list(made))}.values())[::-1]


def _try(made: Sequence[Tried], once: Sequence[Tried]) -> Line:
    first = next((each for each in made if each.step.outcome is not Outcome.PASSED), made[0])
    told = [each.step.log_gain for each in once]
    gains = [round(gain, 5) for gain in told if gain is not None]
    passed = first.step.outcome is Outcome.PASSED
    line = try_line(
        name_of(first.step.parent_sha256), first.seed, first.applied,
        writer_of(first.step.author), first.step.outcome,
        round(statistics.median(gains), 5) if passed else None,
        name_of(first.step.child_sha256 or ""),
    )  # fmt: skip
    if passed:
        line["error"] = round(statistics.median(each.error for each in once), 5)
    if passed and len(gains) > 1:
        line["measured"] = gains
    return line


def _rounded(value: float | None) -> float | None:
    return None if value is None else round(value, 5)


def main() -> None:
    """Write the files, in place of those that are there."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("bench", type=Path)
    parser.add_argument("--out", type=Path, default=OUT)
    given = parser.parse_args()
    files = tries_of_bench(given.bench)
    given.out.mkdir(parents=True, exist_ok=True)
    for name, lines in files.items():
        (given.out / name).write_text(as_text(lines), encoding="utf-8")
    lines = [line for each in files.values() for line in each]
    kernels = sum("launches" in line for line in lines)
    print(f"{len(lines) - kernels} tries on {kernels} kernels of {len(files)} tasks")


if __name__ == "__main__":
    main()
