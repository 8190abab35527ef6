"""The gain that an entry lists beside the one that is forecast from it, in words.

What was believed without evidence counts for a share (`PRIOR_SHARE`) of its logarithm, so that the
two differ: a figure of the one is never to be read as the other.
"""

from __future__ import annotations

import math

from .regression import PRIOR_SHARE


def listed_text(prior: float) -> str:
    """Return what an entry lists, and what is forecast from it where nothing near was tried.

    Args:
        prior: log gain that the entry lists.
    """
    forecast = math.exp(PRIOR_SHARE * prior)
    return f"listed at {math.exp(prior):.2f}x (before any try {forecast:.2f}x is forecast)"
