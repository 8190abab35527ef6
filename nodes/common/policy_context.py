"""Where a technique would be applied, as the policy asks it."""

from __future__ import annotations

from collections.abc import Sequence

from ...harness.gpus import architecture_family
from ...harness.records import DeviceIdentity
from ...memory.records import PolicyContext
from ..records import TaskSummary, TechniqueStep


def policy_context(
    identity: DeviceIdentity,
    summary: TaskSummary,
    path: Sequence[TechniqueStep] = (),
    tried: tuple[str, ...] = (),
) -> PolicyContext:
    """Return where a technique would be applied.

    Args:
        identity: who measures.
        summary: the task's class of operation and dtype.
        path: how the kernel at hand was reached.
        tried: techniques to leave out.
    """
    return PolicyContext(
        device_kind=identity.kind,
        gpu=identity.gpu,
        arch=identity.arch,
        family=architecture_family(identity.arch),
        op_class=summary.op_class,
        dtype=summary.dtype,
        harness=identity.harness,
        previous_technique=path[-1].technique if path else None,
        tried=tried,
    )
