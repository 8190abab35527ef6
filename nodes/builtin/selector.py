"""Built-in selector: draw from each posterior, then choose among the best draws by weight."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from ...memory.policy import thompson_sample
from ..randomness import generator
from ..records import Proposal, TechniqueChoice

TOP = 3
"""How many of the best draws stay in the lottery."""

TEMPERATURE = 0.08
"""In log gain: a draw better by this much is e times as likely to be chosen."""


def select(
    proposals: Sequence[Proposal],
    *,
    seed: int,
    iteration: int,
    rollout: int,
    step: int,
    source_sha256: str,
) -> TechniqueChoice | None:
    """Return the chosen technique, or None when nothing is proposed.

    Rollouts that start an iteration from the same code share one stream and take the first,
    second, ... name drawn from it without replacement, so that they do not all try the same.
    """
    if not proposals:
        return None
    first = step == 0
    place = (iteration, "first", source_sha256) if first else (iteration, rollout, step)
    stream = generator(seed, "select", *place)
    draws = np.array([thompson_sample(p.expected, stream) for p in proposals])
    order = _lottery(draws, stream)
    index = order[rollout % len(order)] if first else order[0]
    chosen = proposals[index]
    return TechniqueChoice(
        technique=chosen.technique,
        parameters=chosen.parameters,
        expected_log_gain=chosen.expected.mean_log,
        success_probability=chosen.expected.success_probability,
        sampled_score=float(draws[index]),
        reason=(
            f"drew {draws[index]:+.2f} from its posterior "
            f"({chosen.expected.mean_log:+.2f} ± {chosen.expected.std_log:.2f}, "
            f"{chosen.expected.trials:.0f} tries)"
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
