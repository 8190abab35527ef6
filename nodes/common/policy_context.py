"""Where a technique would be applied, as the policy asks it."""

from __future__ import annotations

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


def architecture_family(arch: str) -> str:
    """Return the family of an architecture such as sm_90: what gains carry over within."""
    digits = "".join(ch for ch in arch if ch.isdigit())
    names = {"80": "ampere", "86": "ampere", "87": "ampere", "89": "ada", "90": "hopper"}
    return names.get(digits, f"sm_{digits[:-1]}x" if digits else arch)
