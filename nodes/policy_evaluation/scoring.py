"""How good forecasts made before their outcomes were: off by how much, over which rows."""

from __future__ import annotations

import math
from collections.abc import Sequence

from ...memory.records.evidence import Step
from ..records.gradient import ForecastScore

COVERING = 1.645
"""Standard deviations within which nine of ten outcomes should lie."""
SURE = 0.01
"""A probability is taken to be this far from 0 and 1 at least, where it is scored."""
WORST = 3
"""Rows that are named, those that were off most."""


def score(steps: Sequence[Step]) -> ForecastScore:
    """Return how steps came out against what was forecast of them.

    Steps of which no such forecast is known are left out of the figures that need it.
    """
    off = [
        (step.log_gain - step.expected_log_gain, step)
        for step in steps
        if step.log_gain is not None
    ]
    spread = [
        abs(away) <= COVERING * step.forecast_std
        for away, step in off
        if step.forecast_std is not None
    ]
    losses = [
        -math.log(probability if step.log_gain is not None else 1.0 - probability)
        for step in steps
        if step.forecast_pass is not None
        for probability in [min(max(step.forecast_pass, SURE), 1.0 - SURE)]
    ]
    worst = sorted(off, key=lambda pair: -abs(pair[0]))[:WORST]
    return ForecastScore(
        rows=len(steps),
        off=_mean([abs(away) for away, _ in off]),
        bias=_mean([away for away, _ in off]),
        covered=_mean([float(each) for each in spread]),
        pass_log_loss=_mean(losses),
        worst={
            str(step.evidence_id): round(away, 4) for away, step in worst if step.evidence_id
        },
    )


def _mean(values: Sequence[float]) -> float | None:
    return math.fsum(values) / len(values) if values else None
