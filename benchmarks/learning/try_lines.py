"""Lines of recorded tries: how a kernel, and what was tried on it, are written down.

DIR/GPU-TASK.jsonl holds two kinds of lines. A kernel: the context of all tries made from it (task,
operator class, dtype, GPU, microseconds, speed of light in microseconds, bytes and operations of
the task, what its lineage applied; of each kernel launched the share of the time, bottlenecks and
signature in thousandths, in the order of `memory/knowledge/states/dimensions.py`). A try: its
kernel, technique, setting, launch that it changed, writer, outcome and log gain.

What was measured on a GPU says a little more: see `tries_of_runs.py`.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable
from typing import Any

from kernelblaster.harness.bound.speed_of_light import SpeedOfLight
from kernelblaster.harness.records.outcomes import Outcome
from kernelblaster.harness.records.profiles import Profile
from kernelblaster.harness.records.tasks import Task
from kernelblaster.memory.knowledge.states.signature import bottlenecks_of, signature_of

LAUNCHES = 3
"""Kernels of a program whose signatures are kept, the costliest."""

Line = dict[str, Any]
Applied = tuple[str, dict[str, Any], str]
"""Technique, setting and launch that it changed."""


def as_text(lines: Iterable[Line]) -> str:
    """Return lines as a file holds them."""
    return "".join(json.dumps(line, separators=(",", ":")) + "\n" for line in lines)


def name_of(sha256: str) -> str:
    """Return what a kernel is called, from the sha256 of its source."""
    return sha256[:10]


def kernel_line(
    kernel: str,
    task: Task,
    gpu: str,
    profile: Profile,
    bound: SpeedOfLight,
    applied: list[list[Any]],
    changed: Collection[str] = (),
) -> Line:
    """Return what was known of a kernel before anything was tried on it.

    Args:
        kernel: its name.
        task: that it solves.
        gpu: our name of the GPU.
        profile: of all its launches.
        bound: what no kernel of the task can be faster than.
        applied: technique, setting, launch and log gain of each step of its lineage.
        changed: launches whose signatures are kept however little they cost.
    """
    launches = []
    for place, share in enumerate(profile.by_kernel):
        if place >= LAUNCHES and share.kernel not in changed:
            continue
        alone = profile.model_copy(update={"launches": share.launches})
        launches.append({
            "kernel": share.kernel,
            "share": round(share.microseconds / profile.microseconds, 4),
            "bottlenecks": [each for each in bottlenecks_of(alone) if each],
            "signature": [
                round(1000 * value)
                for value in signature_of(profile, share.longest, bound.microseconds).values
            ],
        })  # fmt: skip
    return {
        "kernel": kernel, "task": task.name, "op_class": task.op_class, "dtype": task.dtype,
        "gpu": gpu, "us": round(profile.microseconds, 4),
        "bound_us": round(bound.microseconds, 4), "launched": len(profile.launches),
        "bytes": bound.bytes_read + bound.bytes_written,
        "operations": sum(bound.operations.values()),
        "applied": applied, "launches": launches,
    }  # fmt: skip


def try_line(
    kernel: str,
    seed: int,
    step: Applied,
    writer: str,
    outcome: Outcome,
    log_gain: float | None,
    child: str,
) -> Line:
    """Return what was tried on a kernel, and what came of it; both kernels by name."""
    technique, setting, launch = step
    return {
        "of": kernel, "seed": seed, "technique": technique, "setting": setting,
        "launch": launch, "writer": writer, "outcome": outcome, "log_gain": log_gain,
        "child": child,
    }  # fmt: skip
