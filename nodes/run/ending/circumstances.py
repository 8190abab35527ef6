"""What a reader should know of how the winner was measured, besides its time."""

from __future__ import annotations

from ....harness.devices.protocol import Measurement
from ....harness.judge.findings import lost_precision
from ....harness.records.evaluations import StageResult
from ....memory.run.run_store import RunStore

BASELINES = ("eager_us", "compile_us", "speedup", "speedup_low", "speedup_high")
"""Facts of a measurement beside PyTorch; `speedup` is over the faster of the two."""

_TOLD = {
    "degenerate": "the task is degenerate, gone on with all the same: {}",
    "profiler_unavailable": "no hardware counters were read ({})",
    "sanitizer_missing": "Compute Sanitizer did not finish its check ({})",
    "isolation_missing": "this machine does not offer to candidates: {}",
    "relies_on": "the kernel relies on the values of {}, constants of the task",
    "not_varied": "the checks could not vary {}",
    "full_size_not_secret": "the inputs at full size were the usual ones ({})",
    "task_weak_to": "the checks of this task would not notice {}",
    "full_size_unchecked": "the answer at full size was not compared ({})",
    "without_double": "at full size not all answers are known in double precision ({})",
    "host_late": (
        "PyTorch's time may partly be the host's, which was late to launch it ({}): forward() "
        "waits for the GPU on its way, or the machine is busy"
    ),
    "host_bound": (
        "called by itself PyTorch takes the host longer to launch than the GPU to run ({}): only "
        "the GPU's time is compared"
    ),
    "compile_failure": "torch.compile was not measured ({})",
}
_NOT_WORTH_TELLING = (
    "not asked for",
    "an address space of its own (candidates share the worker's)",
)
"""What is so by design, on every machine."""

Facts = dict[str, float | int | str]


def facts_of(store: RunStore, evaluation_key: str) -> Facts:
    """Return the facts of a kernel: its evaluation's, and over them its confirmation's."""
    evaluation = store.get(evaluation_key)
    facts: Facts = dict(evaluation.facts) if evaluation else {}
    verified = store.get_stage(evaluation_key, "confirm_verify", StageResult)
    measured = store.get_stage(evaluation_key, "confirm_profile", Measurement)
    if verified is not None:
        facts |= verified.facts
    if measured is not None:
        facts |= measured.stage.facts
    return facts


def cycles_of(store: RunStore, evaluation_key: str) -> float | None:
    """Return the elapsed cycles that were counted beside a kernel's time; None where none were."""
    evaluation = store.get(evaluation_key)
    return evaluation.timing.elapsed_cycles if evaluation and evaluation.timing else None


def notes_of(facts: Facts) -> tuple[str, ...]:
    """Return what is to be told of them, one line each."""
    notes = [
        words.format(facts[name])
        for name, words in _TOLD.items()
        if facts.get(name) and facts[name] not in _NOT_WORTH_TELLING
    ]
    ratio = facts.get("precision_ratio")
    if isinstance(ratio, float | int) and (lost := lost_precision(ratio)):
        notes.append(f"precision: {lost.message}")
    return tuple(notes)


def baselines_of(facts: Facts) -> dict[str, float]:
    """Return PyTorch's times in the rounds of the winner's last measurement; often none."""
    return {name: float(facts[name]) for name in BASELINES if name in facts}
