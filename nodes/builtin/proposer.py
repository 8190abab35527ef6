"""Built-in proposer: keep what a built-in rewrite can do to this source, drop the rest."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from ...memory.records import ExpectedGain, Optimization
from ..records import Proposal
from .rewrites import rewrites


def propose(
    known: Sequence[tuple[Optimization, ExpectedGain]],
    unlisted: Sequence[tuple[Optimization, ExpectedGain]],
    reasons: Mapping[str, str | None],
) -> tuple[tuple[Proposal, ...], int]:
    """Return the proposals, best expected score first, and how many techniques did not apply.

    `known` are the knowledge base's optimizations for the state and its neighbours, `unlisted`
    its beliefs about techniques it does not list there; `reasons` says for each technique with a
    built-in rewrite why it does not apply to the code, None where it does. A technique for which
    no rewrite exists needs a language model and counts as not applicable.
    """
    tunable = {rewrite.technique: rewrite.parameters for rewrite in rewrites()}
    proposals = []
    dropped = 0
    for origin, entries in (("knowledge base", known), ("proposer", unlisted)):
        for optimization, expected in entries:
            technique = optimization.technique
            if technique not in reasons or reasons[technique] is not None:
                dropped += 1
                continue
            proposals.append(
                Proposal(
                    technique=technique,
                    source=origin,
                    parameters=tunable.get(technique, {}),
                    expected=expected,
                    reason=optimization.applies_when,
                )
            )
    return tuple(sorted(proposals, key=lambda p: (-p.expected.score, p.technique))), dropped
