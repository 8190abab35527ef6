"""Built-in gap analysis: sort disagreements by kind and say what the measurements show."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

from ...memory.records.evidence import NO_GAIN, Step
from ...memory.records.states import PerformanceState
from ...tools.models.records import BUILTIN
from ...tools.wording.experience import measured_gain
from ..common.history.sequences import is_sequence
from ..records.gradient import Gap, GapAnalysis, PolicyEvaluation, TechniqueReview
from ..records.trajectories import Trajectory
from .movement import Movement, Pair, movement

AGREEMENT = 0.10
"""Expected and measured log gain this close are called confirmed (about 10 %); a loss where a gain
was expected never is."""

def analyze(
    evaluation: PolicyEvaluation,
    trajectories: Sequence[Trajectory],
    steps: Sequence[Step],
    profiles: Mapping[str, Pair] | None = None,
    states: Mapping[str, PerformanceState] | None = None,
) -> GapAnalysis:
    """Return the gaps: one for each reviewed technique, and one for each sequence that paid.

    A sequence needs two steps that gained, else it says no more than one of them alone.

    Args:
        evaluation: of the iteration.
        trajectories: of the iteration.
        steps: of the iteration.
        profiles: signatures before and after each step that passed, by id of its evidence.
        states: by id.
    """
    gaps = [
        _gap(
            review,
            evaluation.author,
            movement(
                review.technique,
                (states or {}).get(review.state_id),
                [pair for name in review.evidence if (pair := (profiles or {}).get(name))],
            ),
        )
        for review in evaluation.reviews
    ]
    names = {review.state_id: review.state_name for review in evaluation.reviews}
    for trajectory in trajectories:
        own = [step for step in steps if step.rollout == trajectory.rollout]
        leading = _leading(trajectory.best.source_sha256, own)
        if is_sequence(leading):
            gaps.append(sequence_gap(leading, names))
    return GapAnalysis(
        iteration=evaluation.iteration,
        gaps=tuple(sorted(gaps, key=lambda g: (g.kind, g.state_id, g.technique, g.techniques))),
        author="builtin",
    )


def _gap(review: TechniqueReview, remarked_by: str, counters: Movement) -> Gap:
    measured = review.measured_log_gain
    if measured is None:
        failures = ", ".join(f"{name} {count}x" for name, count in review.outcomes.items())
        kind, why = "fails", f"{failures}: {'; '.join(review.reasons) or 'no reason given'}"
    else:
        moved = ", ".join(dict.fromkeys(review.bottlenecks)) or "unknown"
        difference = measured - review.expected_log_gain
        lost = measured <= -NO_GAIN < NO_GAIN <= review.expected_log_gain
        kind = (
            "confirmed"
            if abs(difference) <= AGREEMENT and not lost
            else "underestimated"
            if difference > 0
            else "overestimated"
        )
        why = (
            f"expected {math.exp(review.expected_log_gain):.2f}x, came to "
            f"{measured_gain(measured)} over {review.successes} of {review.trials} "
            f"{'try' if review.trials == 1 else 'tries'}; "
            f"bottleneck {moved}"
        )
    if review.remark:
        why = f"{why}; {review.remark}"
    return Gap(
        kind=kind,
        state_id=review.state_id,
        state_name=review.state_name,
        technique=review.technique,
        explanation=why,
        evidence=review.evidence,
        log_gain=measured,
        moved=counters.moved,
        stayed=counters.stayed,
        against=counters.against,
        cause="" if kind == "confirmed" else counters.cause,
        author=remarked_by if review.remark else BUILTIN,
    )


def _leading(best: str, steps: Sequence[Step]) -> list[Step]:
    """Return the steps of a trajectory that led to its best."""
    made_by = {step.child_sha256: step for step in reversed(steps) if step.child_sha256}
    leading: list[Step] = []
    while best in made_by and len(leading) < len(steps):
        leading.insert(0, made_by[best])
        best = leading[0].parent_sha256
    return leading


def sequence_gap(leading: Sequence[Step], state_names: Mapping[str, str]) -> Gap:
    """Return what steps gained together, each on the kernel of the one before."""
    gain = math.fsum(step.log_gain or 0.0 for step in leading)
    names = tuple(step.technique for step in leading)
    return Gap(
        kind="sequence",
        state_id=leading[0].state_id,
        state_name=state_names.get(leading[0].state_id, leading[0].state_id),
        technique=names[0],
        explanation=(
            f"{' then '.join(names)} gained {math.exp(gain):.2f}x together "
            f"({', '.join(measured_gain(step.log_gain or 0.0) for step in leading)})"
        ),
        evidence=tuple(step.evidence_id for step in leading if step.evidence_id),
        techniques=names,
        log_gain=gain,
    )
