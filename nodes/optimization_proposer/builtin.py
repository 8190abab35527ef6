"""Built-in proposer: keep what a built-in rewrite can do to this source, drop the rest."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from ...harness.records.tasks import Task
from ...memory.knowledge.policy.policy import Prospect
from ...memory.records.optimizations import Optimization
from ...tools.rewriting.records import Inapplicable, Kernels, Rewritten
from ...tools.techniques.catalogue import rewrites
from ...tools.techniques.macros import macro_rewrite
from ..records.choices import Proposal


def propose(
    known: Sequence[Prospect],
    unlisted: Sequence[Prospect],
    reasons: Mapping[str, str | None],
    *,
    cards: Mapping[str, Optimization | None] | None = None,
) -> tuple[Proposal, ...]:
    """Return the proposals, best expected score first.

    `known` are the knowledge base's optimizations for the state and its neighbours, `unlisted`
    its beliefs about techniques it does not list there; `reasons` says for each technique with a
    built-in rewrite why it does not apply to the code, None where it does. A technique for which no
    rewrite exists needs a language model: it is left out, unless lowering has one.
    `cards` then holds every technique, with what must be told of those that the seed does not
    describe. One of which every setting was refused is out.
    """
    cards = cards or {}
    proposals = []
    for origin, entries in (("knowledge base", known), ("proposer", unlisted)):
        for prospect in entries:
            technique = prospect.optimization.technique
            by_model = technique not in reasons and technique in cards
            if not by_model and reasons.get(technique, "no rewrite") is not None:
                continue
            if not prospect.settings:
                continue
            proposals.append(
                Proposal(
                    technique=technique,
                    source=origin,
                    settings=prospect.settings,
                    launch=prospect.launch,
                    expected=prospect.expected,
                    optimization=prospect.optimization
                    if prospect.optimization.steps
                    else cards.get(technique),
                    reason=prospect.optimization.applies_when,
                )
            )
    return tuple(sorted(proposals, key=lambda p: (-p.expected.score, p.technique)))


def macro_rewrites(
    cards: Iterable[Optimization], source: str, task: Task, kernels: Kernels
) -> dict[str, Rewritten | Inapplicable]:
    """Return what each macro that built-in rewrites can write makes of a source, or why nothing;
    `kernels` as for `Rewrite.apply`."""
    return {
        card.technique: whole.apply(source, task, kernels=kernels)
        for card in cards
        if (whole := macro_rewrite(card, rewrites()))
    }
