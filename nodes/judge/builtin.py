"""Built-in Judge: the failure in words, or the technique that the seed expects most of.

Optimisation: the profile's bottleneck and signature name the nearest state of the knowledge base's
seed (nothing learned is read); of its techniques that have a rewrite for this very source one is
drawn by the run's seed, each half as likely as the one of which the seed expects more. Without
any, one of the others that apply is drawn. The method of the last round is left out.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from ...harness.records.evaluations import Evaluation
from ...harness.records.profiles import Profile
from ...harness.records.tasks import Task
from ...memory.knowledge.states.matching import States
from ...memory.knowledge.states.signature import bottlenecks_of, signature_of
from ...memory.records.optimizations import Optimization
from ...memory.records.states import PerformanceState
from ...tools.techniques.catalogue import applicable, knowledge_seed
from ...tools.wording.failures import MEANING
from ..common.randomness import generator


class Advice(NamedTuple):
    """What is said of one candidate."""

    finding: str
    method: str
    advice: str
    expected_log_gain: float = 0.0


def correct(evaluation: Evaluation) -> Advice:
    """Return the failure's meaning with its first finding, and the advice to take another way."""
    first = evaluation.diagnostics[0].message if evaluation.diagnostics else evaluation.reason
    meaning = MEANING.get(evaluation.outcome, f"It came to {evaluation.outcome}.")
    return Advice(
        f"{meaning} {first}".strip(),
        "correction",
        "Go back to the last kernel that passed and take the method's next setting.",
    )


def optimise(
    profile: Profile, source: str, task: Task, left_out: Sequence[str], seed: int, place: int
) -> Advice | None:
    """Return one bottleneck, one technique and its plan; None where no technique applies.

    Args:
        profile: of the candidate.
        source: of the candidate.
        task: what it computes.
        left_out: methods of the last round.
        seed: of the run.
        place: the round.
    """
    primary, _ = bottlenecks_of(profile)
    state = nearest_state(profile)
    reasons = applicable(source, task)
    usable = [name for name, reason in reasons.items() if reason is None and name not in left_out]
    known = knowledge_seed().optimizations[state.id]
    ranked = sorted(
        (known[name] for name in usable if name in known and known[name].prior_log_gain > 0),
        key=lambda each: (-each.prior_log_gain, each.technique),
    ) or [_card(name, known) for name in sorted(usable) if name not in known]
    if not ranked:
        return None
    weights = np.power(0.5, np.arange(len(ranked)))
    stream = generator(seed, "judge", place)
    chosen = ranked[int(stream.choice(len(ranked), p=weights / weights.sum()))]
    return Advice(
        f"{primary.replace('_', ' ')}: {state.name}",
        chosen.technique,
        f"{chosen.description} {chosen.notes}".strip(),
        chosen.prior_log_gain,
    )


def nearest_state(profile: Profile) -> PerformanceState:
    """Return the state of the seed that is nearest to a program's longest kernel."""
    near = States(knowledge_seed().states).near(signature_of(profile), *bottlenecks_of(profile))
    return near[0].state


def _card(name: str, known: dict[str, Optimization]) -> Optimization:
    return known.get(name) or knowledge_seed().techniques[name]
