"""Built-in policy evaluation: group the replay buffer by state and technique, and compare."""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence

from ...memory.records.evidence import Step
from ..records.gradient import PolicyEvaluation, TechniqueReview
from .scoring import score

OFF = 0.1
"""Log gain by which an outcome may be off what was expected (about 10 %)."""


def evaluate(
    iteration: int,
    steps: Sequence[Step],
    state_names: Mapping[str, str],
    earlier: Sequence[Step] = (),
) -> PolicyEvaluation:
    """Return one review for each (state, technique) among the steps of an iteration, and how good
    the forecasts were; `earlier` are the steps of the iterations before.

    Steps whose outcome says nothing of the technique are left out.
    """
    before = [step for step in earlier if step.outcome.is_verdict]
    steps = [step for step in steps if step.outcome.is_verdict]
    groups: dict[tuple[str, str], list[Step]] = defaultdict(list)
    for step in steps:
        groups[step.state_id, step.technique].append(step)
    reviews = tuple(
        _review(state_id, state_names.get(state_id, state_id), technique, members, before)
        for (state_id, technique), members in sorted(groups.items())
    )
    errors = [abs(s.log_gain - s.expected_log_gain) for s in steps if s.log_gain is not None]
    return PolicyEvaluation(
        iteration=iteration,
        reviews=reviews,
        mean_absolute_error=math.fsum(errors) / len(errors) if errors else None,
        success_rate=len(errors) / len(steps) if steps else 0.0,
        forecasts=score(steps),
        earlier=score(before) if before else None,
        author="builtin",
    )


def _off_since(technique: str, steps: Sequence[Step]) -> int | None:
    """Return the iteration since which a technique's outcomes lay on one side of its forecasts."""
    sides: dict[int, list[float]] = defaultdict(list)
    for step in steps:
        if step.technique == technique and step.log_gain is not None:
            sides[step.iteration].append(step.log_gain - step.expected_log_gain)
    since, side = None, 0
    for iteration, away in sorted(sides.items(), reverse=True):
        mean = math.fsum(away) / len(away)
        here = (mean > OFF) - (mean < -OFF)
        if not here or (side and here != side):
            break
        since, side = iteration, here
    return since


def _review(
    state_id: str,
    name: str,
    technique: str,
    steps: Sequence[Step],
    before: Sequence[Step],
) -> TechniqueReview:
    gains = [step.log_gain for step in steps if step.log_gain is not None]
    return TechniqueReview(
        state_id=state_id,
        state_name=name,
        technique=technique,
        trials=len(steps),
        successes=len(gains),
        expected_log_gain=math.fsum(s.expected_log_gain for s in steps) / len(steps),
        measured_log_gain=math.fsum(gains) / len(gains) if gains else None,
        evidence=tuple(step.evidence_id for step in steps if step.evidence_id),
        outcomes=dict(sorted(Counter(step.outcome for step in steps).items())),
        off_since=_off_since(technique, (*before, *steps)),
        reasons=tuple(dict.fromkeys(step.reason for step in steps if step.reason)),
        bottlenecks=tuple(
            f"{step.bottleneck_before} -> {step.bottleneck_after}"
            if step.bottleneck_after != step.bottleneck_before
            else f"{step.bottleneck_after} as before"
            for step in steps
            if step.bottleneck_after
        ),
    )
