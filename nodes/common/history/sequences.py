"""Sequences of steps: which steps follow one another, and when their order says something."""

from __future__ import annotations

import math
from collections.abc import Sequence

from ....memory.records.evidence import Step
from ..prompts.iteration import resolve

SEQUENCE_GAIN = math.log(1.05)
"""Log gain from which a step counts towards a sequence; two such steps make one."""


def is_sequence(steps: Sequence[Step]) -> bool:
    """Say whether two or more of the steps gained: with one alone, their order says nothing."""
    return sum((step.log_gain or 0.0) >= SEQUENCE_GAIN for step in steps) >= 2


def chain_of(ids: Sequence[str], steps: Sequence[Step]) -> list[Step]:
    """Return the steps of a sequence.

    Raises:
        ValueError: they are no sequence: one failed, one does not begin with the kernel that the
            one before made, together they gained nothing, or no more than one of them gained.
    """
    chain = resolve(ids, steps)
    if len(chain) < 2:
        raise ValueError("a sequence has two steps or more")
    for step in chain:
        if step.log_gain is None:
            raise ValueError(f"{step.technique} failed: no sequence that gained has it")
    for before, after in zip(chain, chain[1:], strict=False):
        if before.child_sha256 != after.parent_sha256:
            raise ValueError(
                f"{after.technique} was not applied to the kernel that {before.technique} made"
            )
    if sum(step.log_gain or 0.0 for step in chain) <= 0.0:
        raise ValueError(f"{' then '.join(s.technique for s in chain)} gained nothing together")
    if not is_sequence(chain):
        raise ValueError(
            "fewer than two of these steps gained 5 % or more: their order says nothing; leave "
            "the sequence out"
        )
    return chain
