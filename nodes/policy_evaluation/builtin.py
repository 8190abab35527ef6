"""Built-in policy evaluation: group the replay buffer by state and technique, and compare."""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence

from ...memory.knowledge.tries import BLAMELESS
from ...memory.records import Step
from ..records import PolicyEvaluation, TechniqueReview


def evaluate(
    iteration: int, steps: Sequence[Step], state_names: Mapping[str, str]
) -> PolicyEvaluation:
    """Return one review for each (state, technique) among the steps of an iteration.

    Steps whose outcome says nothing of the technique are left out.
    """
    steps = [step for step in steps if step.outcome not in BLAMELESS]
    groups: dict[tuple[str, str], list[Step]] = defaultdict(list)
    for step in steps:
        groups[step.state_id, step.technique].append(step)
    reviews = tuple(
        _review(state_id, state_names.get(state_id, state_id), technique, members)
        for (state_id, technique), members in sorted(groups.items())
    )
    errors = [abs(s.log_gain - s.expected_log_gain) for s in steps if s.log_gain is not None]
    return PolicyEvaluation(
        iteration=iteration,
        reviews=reviews,
        mean_absolute_error=math.fsum(errors) / len(errors) if errors else None,
        success_rate=len(errors) / len(steps) if steps else 0.0,
        author="builtin",
    )


def _review(state_id: str, name: str, technique: str, steps: Sequence[Step]) -> TechniqueReview:
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
        reasons=tuple(dict.fromkeys(step.reason for step in steps if step.reason)),
        bottlenecks=tuple(
            f"{step.bottleneck_before} -> {step.bottleneck_after}"
            for step in steps
            if step.bottleneck_after
        ),
    )
