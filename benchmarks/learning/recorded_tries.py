"""Recorded tries as records: what was known before each, and what came of it."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

from kernelblaster.harness.gpus import architecture_family, known_gpu
from kernelblaster.harness.records.outcomes import Outcome
from kernelblaster.memory.knowledge.policy.actions import Action, Situation
from kernelblaster.memory.knowledge.states.dimensions import UNKNOWN
from kernelblaster.memory.knowledge.states.signature import completed

RECORDED = Path(__file__).resolve().parents[1] / "recorded_tries"
MEASURED = RECORDED / "measured"


class Try(NamedTuple):
    """One technique on one kernel."""

    kernel: str
    """Name of its source."""
    task: str
    op_class: str
    gpu: str
    situation: Situation
    action: Action
    outcome: Outcome
    log_gain: float | None
    bottlenecks: tuple[str, ...]
    """Of the costliest kernel of the program, first and second."""
    dominant: tuple[float, ...]
    """Signature of the costliest kernel: what a state is told by."""
    standard_error: float = 0.0
    """Of the log gain; of a simulated one 0."""
    measured: tuple[float, ...] = ()
    """Log gain by each run, where several measured it."""


def recorded(files: Iterable[Path] | None = None) -> list[Try]:
    """Return tries in order of file and line: by default all that were simulated."""
    found = sorted(RECORDED.glob("*.jsonl")) if files is None else files
    return [each for file in found for each in _of_file(file)]


def measured() -> list[Try]:
    """Return all tries that were measured on a GPU, in order of file and line."""
    return recorded(sorted(MEASURED.glob("*.jsonl")))


def _of_file(file: Path) -> Iterator[Try]:
    kernels: dict[str, dict[str, Any]] = {}
    for line in file.read_text(encoding="utf-8").splitlines():
        row = json.loads(line)
        if "launches" in row:
            kernels[row["kernel"]] = row
        else:
            yield _try(kernels[row["of"]], row)


def _try(kernel: dict[str, Any], row: dict[str, Any]) -> Try:
    launches = kernel["launches"]
    target = next((each for each in launches if each["kernel"] == row["launch"]), launches[0])
    gpu = known_gpu(kernel["gpu"])
    assert gpu is not None
    before = [
        setting
        for technique, setting, launch, _ in kernel["applied"]
        if (technique, launch) == (row["technique"], row["launch"])
    ]
    situation = Situation(
        task=kernel["task"],
        op_class=kernel["op_class"],
        dtype=kernel["dtype"],
        gpu=kernel["gpu"],
        family=architecture_family(gpu.arch),
        simulated=kernel.get("device", "simulated") == "simulated",
        signature=_signature(target["signature"]),
        share=target["share"],
        microseconds=kernel["us"],
        bound_us=kernel["bound_us"],
        source=kernel["kernel"],
    )
    action = Action(
        technique=row["technique"],
        launch=row["launch"],
        setting=row["setting"],
        earlier=before[-1] if before else None,
        writer=row["writer"],
    )
    return Try(
        kernel=row["of"],
        task=kernel["task"],
        op_class=kernel["op_class"],
        gpu=kernel["gpu"],
        situation=situation,
        action=action,
        outcome=Outcome(row["outcome"]),
        log_gain=row["log_gain"],
        bottlenecks=tuple(launches[0]["bottlenecks"]),
        dominant=_signature(launches[0]["signature"]),
        standard_error=row.get("error", 0.0),
        measured=tuple(row.get("measured", ())),
    )


def _signature(thousandths: list[int]) -> tuple[float, ...]:
    """Return a signature in today's layout: below 0 stands what was not known."""
    return completed([value / 1000 if value >= 0 else UNKNOWN for value in thousandths])
