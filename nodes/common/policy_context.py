"""Where a technique would be applied, as the policy asks it."""

from __future__ import annotations

from ...harness.gpus import architecture_family
from ...harness.records import DeviceIdentity
from ...memory.records import PolicyContext
from ..records import TaskSummary


def policy_context(
    identity: DeviceIdentity, summary: TaskSummary, tried: tuple[str, ...] = ()
) -> PolicyContext:
    """Return the circumstances of a run, with the techniques that are not to be offered."""
    return PolicyContext(
        device_kind=identity.kind,
        gpu=identity.gpu,
        arch=identity.arch,
        family=architecture_family(identity.arch),
        op_class=summary.op_class,
        dtype=summary.dtype,
        harness=identity.harness,
        tried=tried,
    )
