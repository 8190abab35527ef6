"""One random stream for each decision, so that a resumed run draws what it would have drawn."""

from __future__ import annotations

import hashlib

import numpy as np

from ..records.plan import RunPlan


def generator(seed: int, *place: int | str) -> np.random.Generator:
    """Return a generator for one place of a run, for example (iteration, rollout, step, role).

    Streams of different places are independent; the same place always gives the same stream,
    whatever ran before it.
    """
    digest = hashlib.sha256(repr((seed, place)).encode()).digest()
    return np.random.default_rng(int.from_bytes(digest[:16], "little"))


def explores(plan: RunPlan, rollout: int) -> bool:
    """Say whether a rollout explores: all but the first of an iteration do, unless all are greedy.

    The first follows what is believed best, so that a run never does worse than its knowledge;
    the others draw, so that no belief goes untested.
    """
    return rollout > 0 and plan.choice != "greedy"
