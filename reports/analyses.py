"""What many runs show together: techniques, states, transitions, learning, breadth and depth.

Each function takes accounts of runs, of one task or of many, and returns plain figures; gains are
natural logarithms and averaged as such. Nothing that failed is left out of a count.
"""

from __future__ import annotations

import math
import statistics
from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from ..harness.records.outcomes import Outcome
from ..memory.records.evidence import NO_GAIN, Step
from ..nodes.common.policies import reads_knowledge
from .reading import RunAccount


class TechniqueCount(NamedTuple):
    """How often a technique was tried, and what came of it."""

    technique: str
    gained: int
    """Correct and faster than its parent, by more than measurements move."""
    neutral: int
    """Correct, and as fast."""
    slower: int
    """Correct, and slower."""
    failed: int
    """Written, and refused by a gate."""
    not_written: int
    """It did not apply, or its writer gave nothing."""
    mean_log_gain: float | None
    """Over those that were correct; None where none was."""

    @property
    def attempted(self) -> int:
        """All tries."""
        return self.gained + self.neutral + self.slower + self.failed + self.not_written


class StateShare(NamedTuple):
    """How much of the search went on in one performance state."""

    state: str
    """Its id."""
    name: str
    steps: int
    share: float


class Transition(NamedTuple):
    """Kernels that went from one state to another (or stayed) by a step that passed."""

    before: str
    """Name of the parent's state."""
    after: str
    """Name of the child's."""
    steps: int
    mean_log_gain: float


class CurvePoint(NamedTuple):
    """One point of a curve over runs."""

    at: int
    """How many evaluations, trajectories or steps."""
    mean: float
    """Geometric mean of the gain."""
    low: float
    """First quartile of the runs."""
    high: float
    """Third quartile."""
    runs: int


class TokenPoint(NamedTuple):
    """How fast a run's best kernel was after so many tokens."""

    run: str
    tokens: int
    gain: float


def technique_counts(runs: Sequence[RunAccount]) -> list[TechniqueCount]:
    """Return what came of each technique, those tried most first."""
    tried: dict[str, list[Step]] = defaultdict(list)
    for run in runs:
        for step in run.steps:
            tried[step.technique].append(step)
    counts = [_count(technique, steps) for technique, steps in tried.items()]
    return sorted(counts, key=lambda each: (-each.attempted, each.technique))


def _count(technique: str, steps: Sequence[Step]) -> TechniqueCount:
    gains = [step.log_gain for step in steps if step.log_gain is not None]
    gained = sum(gain > NO_GAIN for gain in gains)
    slower = sum(gain < -NO_GAIN for gain in gains)
    unwritten = sum(not Outcome(step.outcome).has_candidate for step in steps)
    return TechniqueCount(
        technique,
        gained=gained,
        neutral=len(gains) - gained - slower,
        slower=slower,
        failed=len(steps) - len(gains) - unwritten,
        not_written=unwritten,
        mean_log_gain=statistics.fmean(gains) if gains else None,
    )


def state_shares(runs: Sequence[RunAccount]) -> list[StateShare]:
    """Return how many steps began in each state, the commonest first."""
    names = names_of_states(runs)
    counts = Counter(step.state_id for run in runs for step in run.steps)
    total = sum(counts.values())
    found = [
        StateShare(state, names.get(state, state), count, count / total)
        for state, count in counts.items()
    ]
    return sorted(found, key=lambda each: (-each.steps, each.state))


def states_by_step(runs: Sequence[RunAccount]) -> dict[int, Counter[str]]:
    """Return, by the step of a trajectory (from 0), in which states its kernels were."""
    found: dict[int, Counter[str]] = defaultdict(Counter)
    for run in runs:
        for step in run.steps:
            found[step.step][step.state_id] += 1
    return dict(sorted(found.items()))


def states_passed(run: RunAccount) -> list[tuple[str, list[str]]]:
    """Return the states that each trajectory of a run passed through, told once while they last."""
    ways: dict[tuple[int, int], list[str]] = defaultdict(list)
    for step in run.steps:
        way = ways[step.iteration, step.rollout]
        name = run.state_names.get(step.state_id, step.state_id)
        if not way or way[-1] != name:
            way.append(name)
    return [(f"{iteration + 1}.{rollout + 1}", way) for (iteration, rollout), way in ways.items()]


def transitions(runs: Sequence[RunAccount]) -> list[Transition]:
    """Return from which state to which steps led, the commonest first.

    A child's state is the one that it was found in when a later step began from it; of a child
    that nothing was tried on, nobody said one.
    """
    names = names_of_states(runs)
    gains: dict[tuple[str, str], list[float]] = defaultdict(list)
    for run in runs:
        state_of = {step.parent_sha256: step.state_id for step in reversed(run.steps)}
        for step in run.steps:
            after = state_of.get(step.child_sha256 or "")
            if step.log_gain is not None and after is not None:
                gains[step.state_id, after].append(step.log_gain)
    found = [
        Transition(names.get(before, before), names.get(after, after), len(logs),
                   statistics.fmean(logs))
        for (before, after), logs in gains.items()
    ]  # fmt: skip
    return sorted(found, key=lambda each: (-each.steps, each.before, each.after))


def learning_curve(runs: Sequence[RunAccount]) -> list[CurvePoint]:
    """Return the gain of the best kernel over the number of evaluations.

    A run that ended earlier stays at what it had; one whose first kernel failed is at 1.
    """
    return _curve([best_after_each(run) for run in runs])


def by_knowledge(runs: Sequence[RunAccount]) -> dict[str, list[RunAccount]]:
    """Return runs by what the knowledge base held when they began: nothing, or evidence.

    Runs whose policy reads none are left out.
    """
    found: dict[str, list[RunAccount]] = {}
    for run in runs:
        if run.knowledge_at is not None and reads_knowledge(run.plan):
            name = "trained knowledge base" if run.knowledge_at else "empty knowledge base"
            found.setdefault(name, []).append(run)
    return dict(sorted(found.items()))


def best_after_each(run: RunAccount) -> list[float]:
    """Return the best log gain after each evaluation of a run; 0 before anything was gained."""
    if run.initial is None:
        return [0.0]
    best, reached = run.initial.microseconds, []
    for verdict in run.verdicts:
        best = min(best, verdict.microseconds or best)
        reached.append(math.log(run.initial.microseconds / best))
    return reached or [0.0]


def breadth_curve(runs: Sequence[RunAccount]) -> list[CurvePoint]:
    """Return the gain over the number of trajectories, in the order of iterations and rollouts."""
    return _curve([_best_by_trajectory(run) for run in runs])


def _best_by_trajectory(run: RunAccount) -> list[float]:
    best = 0.0
    reached: dict[tuple[int, int], float] = {}
    for step in run.steps:
        best = max(best, _log_gain_so_far(run, step))
        reached[step.iteration, step.rollout] = best
    return list(reached.values()) or [0.0]


def depth_curve(runs: Sequence[RunAccount]) -> list[CurvePoint]:
    """Return the gain over the number of techniques between the initial kernel and the best."""
    return _curve([_best_by_depth(run) for run in runs])


def _best_by_depth(run: RunAccount) -> list[float]:
    best: dict[int, float] = defaultdict(float)
    for way in run.ways.values():
        if way:
            best[len(way)] = max(best[len(way)], _log_gain_so_far(run, way[-1]))
    reached = [0.0]
    for depth in range(1, max(best, default=0) + 1):
        reached.append(max(reached[-1], best[depth]))
    return reached[1:] or reached


def _log_gain_so_far(run: RunAccount, step: Step) -> float:
    """Return the log gain of a step's child over the initial kernel; 0 where it did not pass."""
    if run.initial is None or step.microseconds_after is None:
        return 0.0
    return math.log(run.initial.microseconds / step.microseconds_after)


def gain_by_tokens(runs: Sequence[RunAccount]) -> list[TokenPoint]:
    """Return the best gain of each run after the tokens that it had used, node by node."""
    points: list[TokenPoint] = []
    for run in runs:
        reached = best_after_each(run)
        for moment in run.moments:
            if moment.evaluations:
                gain = math.exp(reached[min(moment.evaluations, len(reached)) - 1])
                point = TokenPoint(str(run.directory), moment.tokens, gain)
                if not points or points[-1] != point:
                    points.append(point)
    return points


def names_of_states(runs: Iterable[RunAccount]) -> dict[str, str]:
    """Return what states are called, by id."""
    return {state: name for run in runs for state, name in run.state_names.items()}


def _curve(reached: Sequence[Sequence[float]]) -> list[CurvePoint]:
    """Return the mean of best log gains at each place of the longest run."""
    length = max(map(len, reached), default=0)
    points = []
    for place in range(length):
        at = [run[min(place, len(run) - 1)] for run in reached]
        low, high = _quartiles(at)
        points.append(
            CurvePoint(
                place + 1, math.exp(statistics.fmean(at)), math.exp(low), math.exp(high), len(at)
            )
        )
    return points


def _quartiles(values: Sequence[float]) -> tuple[float, float]:
    if len(values) < 2:
        return values[0], values[0]
    low, _, high = statistics.quantiles(values, n=4, method="inclusive")
    return low, high
