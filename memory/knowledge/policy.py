"""What to expect of each technique in each state: derived from evidence and the seed, never edited.

The log speedup of a technique in a state has a normal-inverse-gamma posterior. It is shrunk in
levels: the seed's prior is updated by evidence from other GPUs, the result (with its strength
capped) by evidence from the same family, and that by evidence from the same architecture, so that
near evidence outweighs any amount of far evidence. Whether a try compiles and verifies at all has
a Beta posterior. Simulated and measured evidence never meet.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence

import numpy as np

from ...harness.records import Outcome
from ..records import (
    NO_ANSWER,
    NOT_APPLICABLE,
    Evidence,
    ExpectedGain,
    Optimization,
    PerformanceState,
    PolicyContext,
    SettingGain,
)
from .facts import Fact, Rows, comparable, distinct
from .posterior import (
    PRIOR_FAILURES,
    PRIOR_PASSES,
    Observation,
    prior,
    shrunk_mean,
    update,
    weaken,
)
from .preparation import Preparation
from .signature import distance

FAILURE_COST = 0.05
"""What a try that fails costs, in log speedup: about what a small step would have gained."""
LEVEL_CAPS = {"others": math.inf, "family": 3.0, "architecture": 6.0}
"""Strength that a belief may carry into each level from the level before."""
LEVEL_TRUST = {"others": 0.6, "family": 0.8, "architecture": 1.0}
"""How far a failure there speaks for one here: most failures are the code's, not the GPU's."""
NEIGHBOUR_WEIGHT, NEIGHBOUR_REACH = 0.3, 0.1
"""Weight of evidence from another state at distance 0, and the distance that divides it by e."""
OTHER_OP_CLASS, OTHER_DTYPE = 0.4, 0.7
"""Weight of evidence from another class of operation, and from another dtype."""
OTHER_HARNESS = 0.5
"""Weight of evidence that another version of the harness measured."""
NOT_APPLICABLE_WEIGHT = 0.5
"""A rewrite that found nothing to rewrite says little, and only about this class of operation."""
NOISE_SCALE = 0.1
"""Standard error of a log speedup at which its weight is halved."""
NEIGHBOURS = 3
"""States whose optimizations are offered besides the state's own."""
NEIGHBOUR_DISCOUNT = 0.5
"""Factor on a neighbour's prior gain and strength."""
BLAMELESS = frozenset(
    {Outcome.DEGENERATE_TASK.value, Outcome.PROFILER_UNAVAILABLE.value, NO_ANSWER}
)
"""Outcomes that say nothing about the technique."""


class Policy:
    """Expected gains over one snapshot of evidence, for simulated or for measured devices."""

    def __init__(
        self,
        rows: Rows,
        states: Iterable[PerformanceState],
        optimizations: Mapping[str, Mapping[str, Optimization]],
    ) -> None:
        """Take evidence in any order, the states, and optimizations by state and technique."""
        self._states = {state.id: state for state in states}
        self._optimizations = optimizations
        facts = distinct(rows)
        self._facts: dict[str, list[Fact]] = {}
        for fact in facts:
            self._facts.setdefault(fact.row.technique, []).append(fact)
        self._preparation = Preparation(fact.row for fact in facts)

    def candidates(
        self,
        state: PerformanceState,
        context: PolicyContext,
        excluded: frozenset[str] = frozenset(),
    ) -> list[tuple[Optimization, ExpectedGain]]:
        """Return what could be tried in a state, highest score first, ties by technique name.

        The state's own optimizations, those of its nearest neighbours at a discount, and
        techniques that only evidence knows; less `context.tried` and `excluded`.
        """
        offered = self._offered(state, context)
        left_out = excluded | set(context.tried)
        scored = [
            (optimization, self.expected_gain(state, optimization, context))
            for technique, optimization in offered.items()
            if technique not in left_out
        ]
        return sorted(scored, key=lambda pair: (-pair[1].score, pair[0].technique))

    def beliefs(
        self,
        state: PerformanceState,
        techniques: Iterable[Optimization],
        context: PolicyContext,
    ) -> list[tuple[Optimization, ExpectedGain]]:
        """Return what to expect of named techniques, in the order given.

        Each comes as `candidates` would offer it, and otherwise as given: with its own prior.
        """
        offered = self._offered(state, context)
        chosen = [offered.get(item.technique, item) for item in techniques]
        return [(item, self.expected_gain(state, item, context)) for item in chosen]

    def settings(
        self, state: PerformanceState, technique: str, context: PolicyContext
    ) -> list[SettingGain]:
        """Return what each parameter setting tried here gained, the best first.

        Only evidence of the same class of operation counts: a tile size that suits a matrix
        product says nothing about a row reduction. A failure counts as its cost.
        """
        found: dict[str, tuple[dict[str, object], list[tuple[float, float]], int]] = {}
        for row in self._rows(technique):
            if row.outcome in BLAMELESS or row.outcome == NOT_APPLICABLE or not row.parameters:
                continue
            if row.op_class != context.op_class or not comparable(
                row.device_kind, context.device_kind
            ):
                continue
            gain = -FAILURE_COST if row.log_gain is None else row.log_gain
            key = str(sorted(row.parameters.items()))
            _, gains, failures = found.setdefault(key, (dict(row.parameters), [], 0))
            gains.append((self._weight(row, state, context), gain))
            found[key] = (dict(row.parameters), gains, failures + int(row.log_gain is None))
        ranked = [
            SettingGain(
                parameters=parameters,
                mean_log=math.fsum(weight * gain for weight, gain in gains)
                / math.fsum(weight for weight, _ in gains),
                tries=len(gains),
                failures=failures,
            )
            for parameters, gains, failures in found.values()
        ]
        return sorted(
            ranked, key=lambda item: (-item.mean_log, str(sorted(item.parameters.items())))
        )

    def expected_gain(
        self, state: PerformanceState, optimization: Optimization, context: PolicyContext
    ) -> ExpectedGain:
        """Return the posterior of one technique in one state."""
        belief = prior(optimization)
        facts = [
            fact
            for fact in self._facts.get(optimization.technique, ())
            if comparable(fact.row.device_kind, context.device_kind)
            and fact.row.outcome not in BLAMELESS
        ]
        kept = self._kept(optimization, facts, state, context)
        passes = failures = slowdowns = not_applicable = 0.0
        prepared: list[Observation] = []
        for level in LEVEL_CAPS:
            observations: list[Observation] = []
            for fact in (fact for fact in facts if _level(fact.row, context) == level):
                row = fact.row
                weight = self._weight(row, state, context)
                if row.outcome == NOT_APPLICABLE:
                    not_applicable += float(row.op_class == context.op_class)
                elif row.log_gain is None:
                    failures += weight * LEVEL_TRUST[level]
                else:
                    passes += weight * LEVEL_TRUST[level]
                    slowdowns += weight * float(row.log_gain < 0.0)
                    precision = 1.0 / (1.0 + (row.standard_error / NOISE_SCALE) ** 2)
                    if not fact.ids.isdisjoint(optimization.prior_evidence):
                        precision *= kept
                    observations.append(Observation(weight * precision, row.log_gain))
                    if row.op_class == context.op_class:
                        prepared.append(Observation(weight, self._preparation.credit(row)))
            belief = update(weaken(belief, LEVEL_CAPS[level]), observations)
        belief = belief.model_copy(
            update={
                "passes": PRIOR_PASSES + passes,
                "failures": PRIOR_FAILURES + failures + NOT_APPLICABLE_WEIGHT * not_applicable,
            }
        )
        success = belief.passes / (belief.passes + belief.failures)
        later_gain = shrunk_mean(prepared)
        return ExpectedGain(
            mean_log=belief.mean,
            prepared_log=later_gain,
            std_log=math.sqrt(belief.scale / ((belief.shape - 1.0) * belief.strength)),
            success_probability=success,
            trials=passes + failures,
            failures=failures,
            slowdowns=slowdowns,
            not_applicable=not_applicable,
            score=_value(success, belief.mean + later_gain),
            posterior=belief,
        )

    def _rows(self, technique: str) -> list[Evidence]:
        return [fact.row for fact in self._facts.get(technique, ())]

    def _kept(
        self,
        optimization: Optimization,
        facts: Sequence[Fact],
        state: PerformanceState,
        context: PolicyContext,
    ) -> float:
        """Return the share of its evidence's weight that a learned prior does not hold already.

        A prior of strength s at mean m, drawn from gains of mean g, holds s * m / g observations.
        """
        drawn = [
            Observation(self._weight(fact.row, state, context), fact.row.log_gain)
            for fact in facts
            if fact.row.log_gain is not None
            and not fact.ids.isdisjoint(optimization.prior_evidence)
        ]
        total = math.fsum(item.weight for item in drawn)
        gained = math.fsum(item.weight * item.log_gain for item in drawn)
        if gained <= 0.0:
            return 1.0
        held = optimization.prior_strength * optimization.prior_log_gain * total / gained
        return min(1.0, max(0.0, 1.0 - held / total))

    def _weight(self, row: Evidence, state: PerformanceState, context: PolicyContext) -> float:
        weight = 1.0
        if row.state_before != state.id:
            origin = self._states.get(row.state_before)
            where = origin.centroid if origin else row.signature_before
            away = distance(where, state.centroid)
            weight *= NEIGHBOUR_WEIGHT * math.exp(-away / NEIGHBOUR_REACH)
        if row.op_class != context.op_class:
            weight *= OTHER_OP_CLASS
        if row.dtype != context.dtype:
            weight *= OTHER_DTYPE
        if context.harness and row.harness != context.harness:
            weight *= OTHER_HARNESS
        return weight

    def _offered(self, state: PerformanceState, context: PolicyContext) -> dict[str, Optimization]:
        """Return every technique that this state, its neighbours or its evidence knows."""
        return {
            **self._unlisted(state, context),
            **self._borrowed(state),
            **self._optimizations.get(state.id, {}),
        }

    def _borrowed(self, state: PerformanceState) -> dict[str, Optimization]:
        """Return the nearest states' optimizations at a discount; the nearest state wins."""
        nearest = sorted(
            (other for other in self._states.values() if other.id != state.id),
            key=lambda other: (distance(other.centroid, state.centroid), other.id),
        )[:NEIGHBOURS]
        borrowed: dict[str, Optimization] = {}
        for other in reversed(nearest):
            for technique, optimization in self._optimizations.get(other.id, {}).items():
                borrowed[technique] = optimization.model_copy(
                    update={
                        "prior_log_gain": optimization.prior_log_gain * NEIGHBOUR_DISCOUNT,
                        "prior_strength": optimization.prior_strength * NEIGHBOUR_DISCOUNT,
                    }
                )
        return borrowed

    def _unlisted(self, state: PerformanceState, context: PolicyContext) -> dict[str, Optimization]:
        """Return techniques that were applied in this state but stand under no state nearby."""
        known = {
            technique: optimization
            for optimizations in self._optimizations.values()
            for technique, optimization in optimizations.items()
        }
        found: dict[str, Optimization] = {}
        for technique in self._facts:
            if any(
                row.state_before == state.id and comparable(row.device_kind, context.device_kind)
                for row in self._rows(technique)
            ):
                base = known.get(technique) or unknown_technique(technique)
                found[technique] = base.model_copy(
                    update={
                        "prior_log_gain": 0.0,
                        "prior_strength": NEIGHBOUR_DISCOUNT,
                        "prior_evidence": (),
                    }
                )
        return found


def thompson_sample(expected: ExpectedGain, generator: np.random.Generator) -> float:
    """Draw one plausible value of trying a technique: its log gain, failures taken in.

    Two calls with generators in the same state return the same number.
    """
    belief = expected.posterior
    success = float(generator.beta(belief.passes, belief.failures))
    variance = belief.scale / float(generator.gamma(belief.shape))
    mean = float(generator.normal(belief.mean, math.sqrt(variance / belief.strength)))
    return _value(success, mean + expected.prepared_log)


def _value(success: float, mean: float) -> float:
    return success * mean - (1.0 - success) * FAILURE_COST


def _level(row: Evidence, context: PolicyContext) -> str:
    if row.arch == context.arch:
        return "architecture"
    return "family" if row.family == context.family else "others"


def unknown_technique(technique: str) -> Optimization:
    """Return a description, and a neutral prior, of a technique that nothing describes."""
    return Optimization(
        technique=technique,
        description=f"{technique.replace('_', ' ')}: known from evidence alone",
        applies_when="see the evidence",
        avoid_when="see the evidence",
        side_effects="unknown",
        notes="proposed during a run; the seed does not describe it",
        prior_log_gain=0.0,
        prior_strength=NEIGHBOUR_DISCOUNT,
    )
