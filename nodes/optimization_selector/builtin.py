"""Built-in selector: one rollout follows the forecasts, the others draw from them."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from ...memory.knowledge.policy.policy import thompson_sample
from ..common.randomness import explores, generator
from ..records.choices import Proposal, TechniqueChoice
from ..records.plan import RunPlan

TOP = 3
"""How many of the best draws stay in the lottery."""

TEMPERATURE = 0.08
"""In log gain: a draw better by this much is e times as likely to be chosen."""


def select(
    proposals: Sequence[Proposal],
    plan: RunPlan,
    *,
    iteration: int,
    rollout: int,
    step: int,
    source_sha256: str,
) -> TechniqueChoice | None:
    """Return the chosen technique, or None when nothing is proposed.

    Exploring rollouts that start an iteration from the same code share one stream and take the
    first, second, ... name drawn from it without replacement, so that they do not all try the
    same; nor do they begin with what the first rollout begins with, where there is a choice.

    Greedy rollouts all do as the first; random ones draw with equal chances, as do those that have
    no memory to expect anything by.
    """
    if not proposals:
        return None
    if plan.choice == "random" or plan.memory == "off":
        stream = generator(plan.seed, "any", iteration, rollout, step)
        drawn = proposals[int(stream.integers(len(proposals)))]
        return _choice(drawn, drawn.expected.score, "drawn with equal chances")
    best = min(proposals, key=lambda p: (-p.expected.score, p.technique))
    if not explores(plan, rollout):
        return _choice(best, best.expected.score, "highest expected gain")
    first = step == 0
    stream = generator(
        plan.seed,
        "select",
        *((iteration, "first", source_sha256) if first else (iteration, rollout, step)),
    )
    others = [p for p in proposals if p is not best] if first else list(proposals)
    others = others or [best]
    draws = np.array([thompson_sample(p.expected, stream) for p in others])
    order = _lottery(draws, stream)
    index = order[(rollout - 1) % len(order)] if first else order[0]
    return _choice(others[index], float(draws[index]), "Thompson sampling")


def _choice(chosen: Proposal, sampled: float, how: str) -> TechniqueChoice:
    expected = chosen.expected
    return TechniqueChoice.of(
        chosen,
        sampled_score=sampled,
        reason=(
            f"{how}: {sampled:+.2f} from {expected.mean_log:+.2f} ± {expected.std_log:.2f} "
            f"by {expected.trials:.0f} tries, passing {expected.success_probability:.0%}"
        ),
        author="builtin",
    )


def _lottery(draws: np.ndarray, stream: np.random.Generator) -> list[int]:
    """Return indices in the order drawn: the top ones by weight first, then the rest by draw."""
    ranked = [int(i) for i in np.argsort(-draws, kind="stable")]
    top, rest = ranked[:TOP], ranked[TOP:]
    # Gumbel keys: sorting by them draws without replacement with weights exp(draw / T).
    keys = draws[top] / TEMPERATURE + stream.gumbel(size=len(top))
    return [top[int(i)] for i in np.argsort(-keys, kind="stable")] + rest
