"""Built-in proposer: keep what a built-in rewrite can do to this source, drop the rest."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from ...harness.records import Task
from ...memory.records import ExpectedGain, Optimization, SettingGain
from ...tools.rewriting.records import Inapplicable
from ...tools.techniques.catalogue import rewrites
from ...tools.techniques.macros import macro_rewrite
from ..records import Proposal


def propose(
    known: Sequence[tuple[Optimization, ExpectedGain]],
    unlisted: Sequence[tuple[Optimization, ExpectedGain]],
    reasons: Mapping[str, str | None],
    measured: Mapping[str, Sequence[SettingGain]],
    *,
    cards: Mapping[str, Optimization | None] | None = None,
) -> tuple[tuple[Proposal, ...], int]:
    """Return the proposals, best expected score first, and how many techniques did not apply.

    `known` are the knowledge base's optimizations for the state and its neighbours, `unlisted`
    its beliefs about techniques it does not list there; `reasons` says for each technique with a
    built-in rewrite why it does not apply to the code, None where it does;
    `measured` is what parameter settings gained before. A technique for which no rewrite exists
    needs a language model: it counts as not applicable, unless lowering has one. `cards` then holds
    every technique, with what must be told of those that the seed does not describe.
    """
    cards = cards or {}
    proposals = []
    dropped = 0
    for origin, entries in (("knowledge base", known), ("proposer", unlisted)):
        for optimization, expected in entries:
            technique = optimization.technique
            by_model = technique not in reasons and technique in cards
            if not by_model and reasons.get(technique, "no rewrite") is not None:
                dropped += 1
                continue
            proposals.append(
                Proposal(
                    technique=technique,
                    source=origin,
                    settings=settings_of(optimization, measured.get(technique, ())),
                    expected=expected,
                    optimization=optimization if optimization.steps else cards.get(technique),
                    reason=optimization.applies_when,
                )
            )
    return tuple(sorted(proposals, key=lambda p: (-p.expected.score, p.technique))), dropped


def macro_reasons(
    cards: Iterable[Optimization], source: str, task: Task
) -> dict[str, str | None]:
    """Return for each macro that built-in rewrites can write None where it applies, else why
    not."""
    found: dict[str, str | None] = {}
    for card in cards:
        if whole := macro_rewrite(card, rewrites()):
            made = whole.apply(source, task)
            found[card.technique] = made.reason if isinstance(made, Inapplicable) else None
    return found


def settings_of(
    optimization: Optimization, measured: Sequence[SettingGain]
) -> tuple[dict[str, Any], ...]:
    """Return a technique's parameter settings in the order worth trying.

    Of the values that its built-in rewrite takes; where there is none, of those its card names.
    """
    tunable = {rewrite.technique: rewrite.parameters for rewrite in rewrites()}
    return ordered_settings(
        tunable.get(optimization.technique, optimization.parameters), measured
    )


def ordered_settings(
    values: Mapping[str, Sequence[Any]], measured: Sequence[SettingGain]
) -> tuple[dict[str, Any], ...]:
    """Return every combination of parameter values in the order worth trying.

    First what gained, best first; then what was not tried, the default first; last what lost.
    """
    names = sorted(values)
    combinations = [
        dict(zip(names, combination, strict=True))
        for combination in itertools.product(*(values[name] for name in names))
    ]
    gains = {str(sorted(item.parameters.items())): item.mean_log for item in measured}

    def rank(setting: dict[str, Any]) -> tuple[int, float]:
        gain = gains.get(str(sorted(setting.items())))
        if gain is None:
            return 1, 0.0
        return (0, -gain) if gain > 0 else (2, -gain)

    return tuple(sorted(combinations, key=rank))
