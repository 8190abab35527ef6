"""Why a kernel that passed lost: what was slower about it, for who tries the same or mends it."""

from __future__ import annotations

from collections.abc import Sequence

from ....harness.records.evaluations import Evaluation
from ....memory.knowledge.states.signature import signature_of
from ....memory.records.evidence import NO_GAIN, Step
from ....tools.wording.experience import measured_gain, parameters_text
from ..prompts.iteration import moved_text
from .steps import ways_through

MOST_LOSERS = 4
"""Of the kernels before the one at hand, told in a prompt: the newest."""


def why_lost(before: Evaluation, after: Evaluation, log_gain: float) -> str:
    """Return what moved in the profile of a kernel that passed and is slower; empty where it is
    none, or where nobody measured more than its time."""
    if log_gain > -NO_GAIN or before.profile is None or after.profile is None:
        return ""
    limits = before.profile.dominant.bottleneck, after.profile.dominant.bottleneck
    limit = f"limit {limits[0]} -> {limits[1]}" if limits[0] != limits[1] else ""
    signatures = signature_of(before.profile).values, signature_of(after.profile).values
    return "; ".join(part for part in (limit, moved_text(*signatures)) if part)


def lost_before(steps: Sequence[Step], source_sha256: str) -> str:
    """Return what lost on the kernels on the way to one, each technique and setting once.

    Args:
        steps: those that may be spoken of, from the run's first on.
        source_sha256: of the kernel at hand.
    """
    way = ways_through(steps).get(source_sha256, ())
    left_behind = {step.parent_sha256: step.technique for step in way}
    told: dict[tuple[str, str], str] = {}
    for step in steps:
        if step.parent_sha256 not in left_behind or (step.log_gain or 0.0) > -NO_GAIN:
            continue
        what = f"{step.technique}{parameters_text(step.parameters)}"
        told.pop((step.parent_sha256, what), None)  # The newest stand last.
        told[step.parent_sha256, what] = (
            f"- {what}, before {left_behind[step.parent_sha256]}: "
            f"{measured_gain(step.log_gain or 0.0)}" + (f" ({step.lost})" if step.lost else "")
        )
    return "\n".join([*told.values()][-MOST_LOSERS:])
