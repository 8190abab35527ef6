"""Belief about one technique: the normal-inverse-gamma posterior of its log speedup."""

from __future__ import annotations

import math
import operator
from collections.abc import Sequence

from ..records import Optimization, Posterior

PRIOR_VARIANCE = 0.25**2
"""Variance of log speedups of one technique over kernels, before any evidence."""
PRIOR_PASSES, PRIOR_FAILURES = 2.4, 0.6
"""Four tries in five compile and verify, worth three tries."""


def prior(optimization: Optimization) -> Posterior:
    """Return the belief before any evidence."""
    return Posterior(
        mean=optimization.prior_log_gain,
        strength=optimization.prior_strength,
        shape=2.0,
        scale=PRIOR_VARIANCE,
        passes=PRIOR_PASSES,
        failures=PRIOR_FAILURES,
    )


def weaken(belief: Posterior, cap: float) -> Posterior:
    """Cap a belief's strength, keeping its mean and its expected variance."""
    if belief.strength <= cap:
        return belief
    shape = min(belief.shape, 2.0 + cap / 2.0)
    variance = belief.scale / (belief.shape - 1.0)
    return belief.model_copy(
        update={"strength": cap, "shape": shape, "scale": variance * (shape - 1.0)}
    )


def update(
    belief: Posterior, weights: Sequence[float], log_gains: Sequence[float]
) -> Posterior:
    """Return the normal-inverse-gamma posterior after log gains, each worth its weight.

    Murphy, "Conjugate Bayesian analysis of the Gaussian distribution" (2007), section 3, with
    weights as fractional counts. The order of the gains changes no bit of it.
    """
    count = math.fsum(weights)
    if count <= 0.0:
        return belief
    average = _weighted_sum(weights, log_gains) / count
    squares = _weighted_sum(weights, [(gain - average) ** 2 for gain in log_gains])
    strength = belief.strength + count
    surprise = belief.strength * count * (average - belief.mean) ** 2 / strength
    return belief.model_copy(
        update={
            "mean": (belief.strength * belief.mean + count * average) / strength,
            "strength": strength,
            "shape": belief.shape + count / 2.0,
            "scale": belief.scale + (squares + surprise) / 2.0,
        }
    )


def shrunk_mean(weights: Sequence[float], log_gains: Sequence[float]) -> float:
    """Return the weighted mean, shrunk towards 0 as one more observation of 0 would."""
    return _weighted_sum(weights, log_gains) / (math.fsum(weights) + 1.0)


def _weighted_sum(weights: Sequence[float], values: Sequence[float]) -> float:
    return math.fsum(map(operator.mul, weights, values))
