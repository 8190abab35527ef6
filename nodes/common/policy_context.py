"""Where a technique would be applied, as the policy asks it."""

from __future__ import annotations

from ...harness.records import DeviceIdentity
from ...memory.records import PolicyContext
from ..records import TaskSummary


def policy_context(
    identity: DeviceIdentity, summary: TaskSummary, tried: tuple[str, ...] = ()
) -> PolicyContext:
    """Return the circumstances of a run, with the techniques that are not to be offered."""
    return PolicyContext.of(identity, summary.op_class, summary.dtype, tried)
