"""How far apart two signatures lie, over what both know."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from .dimensions import AT_BOUND, EARLIER, NEUTRAL, WEIGHTS
from .signature import completed

SCALES = np.sqrt(WEIGHTS / (WEIGHTS[:EARLIER].sum() + WEIGHTS[AT_BOUND]))


def embed(values: Sequence[float]) -> list[float]:
    """Return a vector for regression: weighted, the unknown at neutral.

    Between signatures of the earlier layout its Euclidean distances are `distance`.
    """
    vector = np.array(completed(values))
    known: list[float] = (np.where(vector < 0.0, NEUTRAL, vector) * SCALES).tolist()
    return known


def distance(first: Sequence[float], second: Sequence[float]) -> float:
    """Return the weighted root mean square difference over what both know, in [0, 1]."""
    return float(distances(first, np.array([completed(second)]))[0])


def distances(values: Sequence[float], others: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return the distance to each of many signatures: a row each, in today's layout."""
    here = np.array(completed(values))
    weights = np.where((others >= 0.0) & (here >= 0.0), WEIGHTS, 0.0)
    total = weights.sum(axis=1)
    squares = (weights * (others - here) ** 2).sum(axis=1)
    away: NDArray[np.float64] = np.sqrt(squares / np.where(total > 0.0, total, 1.0))
    return away
