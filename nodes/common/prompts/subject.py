"""What most templates speak of, by the names they use: the task, the device, the kernel at hand."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ....harness.records.evaluations import DeviceIdentity, Evaluation
from ....harness.records.tasks import Task
from ....tools.wording.bounds import bounds_text
from ....tools.wording.contract import launch_signature, program_text, reference_text, task_header
from ....tools.wording.device import device_text, tensor_text
from ....tools.wording.listing import excerpt, hot_lines, listing
from ....tools.wording.measurements import profile_text, summary_text
from ....tools.wording.rules import rules_context
from ...records.kernels import TechniqueStep
from .path import path_text


def task_context(task: Task, identity: DeviceIdentity) -> dict[str, Any]:
    """Return what `_contract.md`, `_rules.md`, `_task.md` and the device's section need."""
    return {
        "name": task.name,
        "op_class": task.op_class,
        **rules_context(task),
        "signature": launch_signature(task),
        "header": task_header(task),
        "reference": reference_text(task),
        "program": program_text(task),
        "arch": identity.arch,
        "device": device_text(identity.gpu, identity.arch, identity.kind),
        "tensor": tensor_text(identity.gpu, identity.arch, identity.kind, task.dtype),
    }


def bounds_context(task: Task, identity: DeviceIdentity) -> dict[str, Any]:
    """Return what bounds a task, for who writes its first kernel: there is no profile yet."""
    return {"bounds": bounds_text(task, identity.gpu)}


def kernel_context(
    task: Task, source: str, evaluation: Evaluation, path: Sequence[TechniqueStep]
) -> dict[str, Any]:
    """Return the sections about a kernel that passed: its listing, and where its time goes."""
    assert evaluation.profile is not None and evaluation.timing is not None
    hot = hot_lines(evaluation.profile)
    marked = [line for line, _ in hot]
    return {
        "listing": listing(source, marked),
        "excerpt": excerpt(source, marked),
        "hot": hot,
        "path": path_text(path),
        "summary": summary_text(task, evaluation.profile, evaluation.timing),
        "profile": profile_text(evaluation.profile),
    }
