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
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from ..records import (
    Evidence,
    ExpectedGain,
    Optimization,
    PerformanceState,
    PolicyContext,
    SettingGain,
)
from .facts import Facts, Home, home
from .posterior import PRIOR_FAILURES, PRIOR_PASSES, prior, shrunk_mean, update, weaken
from .preparation import Preparation
from .signature import distance, embed
from .tries import Origin, Tries, tries_of

FAILURE_COST = 0.05
"""What a try that fails costs, in log speedup: about what a small step would have gained."""
LEVEL_CAPS = (math.inf, 3.0, 6.0)
"""Strength that a belief may carry into each level from the level before: evidence from other GPUs,
from the family, from the architecture."""
LEVEL_TRUST = (0.6, 0.8, 1.0)
"""How far a failure there speaks for one here: most failures are the code's, not the GPU's."""
NEIGHBOUR_WEIGHT, NEIGHBOUR_REACH = 0.3, 0.1
"""Weight of evidence from another state at distance 0, and the distance that divides it by e."""
OTHER_OP_CLASS, OTHER_DTYPE = 0.4, 0.7
"""Weight of evidence from another class of operation, and from another dtype."""
OTHER_HARNESS = 0.5
"""Weight of evidence that another version of the harness measured."""
NOT_APPLICABLE_WEIGHT = 0.5
"""A rewrite that found nothing to rewrite says little, and only about this class of operation."""
NEIGHBOURS = 3
"""States whose optimizations are offered besides the state's own."""
NEIGHBOUR_DISCOUNT = 0.5
"""Factor on a neighbour's prior gain and strength."""


class Bearing(NamedTuple):
    """What was tried of a technique, seen from one class of operation on one architecture."""

    tries: Tries
    levels: NDArray[np.int64]
    """Of each origin: which cap and trust it has."""
    same_class: NDArray[np.bool_]
    """Of each origin."""
    credits: list[float]
    """What those that passed in this class of operation prepared."""


class Neighbourhood(NamedTuple):
    """How a state lies among the others."""

    weights: dict[str, float]
    """What evidence from each state counts, by id."""
    borrowed: dict[str, Optimization]
    """The nearest states' optimizations, by technique."""


class Policy:
    """Expected gains over one snapshot of evidence, for simulated or for measured devices."""

    def __init__(
        self,
        facts: Facts,
        at: int,
        states: Iterable[PerformanceState],
        optimizations: Mapping[str, Mapping[str, Optimization]],
        before: Policy | None = None,
    ) -> None:
        """Take the evidence up to a sequence number, states, and optimizations by state and name.

        What an earlier policy over the same evidence computed is used again where no row came.
        """
        self._facts = facts
        self._at = at
        self._states = {state.id: state for state in states}
        self._embedded = {state.id: embed(state.centroid) for state in self._states.values()}
        self._optimizations = optimizations
        self._known = {
            technique: optimization
            for under in optimizations.values()
            for technique, optimization in under.items()
        }
        # With the number of rows they were made of: while it stays, they stay.
        self._tries: dict[tuple[str, bool], tuple[int, Tries]] = {}
        self._preparations: dict[Home, tuple[int, Preparation]] = {}
        # A later one may know states by name that nobody knows yet.
        if before is not None and before._at <= at:
            self._tries |= before._tries
            self._preparations |= before._preparations
        self._bearings: dict[tuple[object, ...], Bearing] = {}
        self._weighed: dict[tuple[object, ...], NDArray[np.float64]] = {}
        self._neighbourhoods: dict[tuple[object, ...], Neighbourhood] = {}
        self._gains: dict[tuple[object, ...], ExpectedGain] = {}
        self._settings: dict[tuple[object, ...], list[SettingGain]] = {}

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
        left_out = excluded | set(context.tried)
        scored = [
            (optimization, self.expected_gain(state, optimization, context))
            for technique, optimization in self._offered(state, context).items()
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
        asked = (technique, *_asked(state, context))
        if asked not in self._settings:
            self._settings[asked] = self._settings_of(state, technique, context)
        return list(self._settings[asked])

    def expected_gain(
        self, state: PerformanceState, optimization: Optimization, context: PolicyContext
    ) -> ExpectedGain:
        """Return the posterior of one technique in one state."""
        asked = (
            optimization.technique,
            optimization.prior_log_gain,
            optimization.prior_strength,
            optimization.prior_evidence,
            *_asked(state, context),
        )
        if asked not in self._gains:
            self._gains[asked] = self._expected_gain(state, optimization, context)
        return self._gains[asked]

    def _expected_gain(
        self, state: PerformanceState, optimization: Optimization, context: PolicyContext
    ) -> ExpectedGain:
        tries, levels, same_class, credits = self._bearing(optimization.technique, context)
        weights = self._weights(optimization.technique, state, context)
        trusted = weights * np.array(LEVEL_TRUST)[levels]
        failed = math.fsum(np.repeat(trusted, tries.failed).tolist())
        passed = math.fsum(trusted[tries.under].tolist())
        not_applicable = float(tries.not_applicable[same_class].sum())
        counted = weights[tries.under]
        precisions = tries.precisions
        if optimization.prior_evidence:
            precisions = precisions * self._kept(optimization, tries, counted)
        observed = counted * precisions
        belief = prior(optimization)
        for level, cap in enumerate(LEVEL_CAPS):
            here = levels[tries.under] == level
            belief = update(
                weaken(belief, cap), observed[here].tolist(), tries.log_gains[here].tolist()
            )
        belief = belief.model_copy(
            update={
                "passes": PRIOR_PASSES + passed,
                "failures": PRIOR_FAILURES + failed + NOT_APPLICABLE_WEIGHT * not_applicable,
            }
        )
        success = belief.passes / (belief.passes + belief.failures)
        here = same_class[tries.under]
        later_gain = shrunk_mean(counted[here].tolist(), credits)
        return ExpectedGain(
            mean_log=belief.mean,
            prepared_log=later_gain,
            std_log=math.sqrt(belief.scale / ((belief.shape - 1.0) * belief.strength)),
            success_probability=success,
            trials=passed + failed,
            failures=failed,
            slowdowns=math.fsum(np.repeat(weights, tries.slower).tolist()),
            not_applicable=not_applicable,
            score=_value(success, belief.mean + later_gain),
            posterior=belief,
        )

    def _settings_of(
        self, state: PerformanceState, technique: str, context: PolicyContext
    ) -> list[SettingGain]:
        tries, _, same_class, _ = self._bearing(technique, context)
        weights = self._weights(technique, state, context).tolist()
        found: dict[str, list[tuple[float, Evidence]]] = {}
        for under, setting, row in tries.tuned:
            if same_class[under]:
                found.setdefault(setting, []).append((weights[under], row))
        gains = {setting: _setting_gain(rows) for setting, rows in found.items()}
        return [gains[setting] for setting in sorted(gains, key=lambda s: (-gains[s].mean_log, s))]

    def _tries_of(self, technique: str, context: PolicyContext) -> Tries:
        simulated = context.device_kind == "simulated"
        count = self._facts.count(technique, simulated, self._at)
        known = self._tries.get((technique, simulated))
        if known is None or known[0] != count:
            facts = self._facts.of_technique(technique, simulated, self._at)
            known = count, tries_of(facts, self._at, self._states)
            self._tries[technique, simulated] = known
        return known[1]

    def _bearing(self, technique: str, context: PolicyContext) -> Bearing:
        """Return what was tried, as it bears on a context, whatever the state."""
        simulated = context.device_kind == "simulated"
        asked = technique, simulated, context.op_class, context.arch, context.family
        if asked not in self._bearings:
            tries = self._tries_of(technique, context)
            all_of = tries.origins
            same_class = np.array([like.op_class == context.op_class for like in all_of], np.bool_)
            self._bearings[asked] = Bearing(
                tries,
                np.array([_level(like, context) for like in all_of], np.int64),
                same_class,
                self._credits(tries, same_class[tries.under]),
            )
        return self._bearings[asked]

    def _credits(self, tries: Tries, which: NDArray[np.bool_]) -> list[float]:
        """Return what tries that passed prepared."""
        graphs: dict[Home, Preparation] = {}
        credits = []
        for index in np.flatnonzero(which).tolist():
            row = tries.passed[index]
            where = home(row)
            if where not in graphs:
                graphs[where] = self._preparation(where)
            credits.append(graphs[where].credit(row))
        return credits

    def _preparation(self, where: Home) -> Preparation:
        count = self._facts.count_at_home(where, self._at)
        known = self._preparations.get(where)
        if known is None or known[0] != count:
            facts = self._facts.at_home(where, self._at)
            known = count, Preparation(fact.row(self._at) for fact in facts)
            self._preparations[where] = known
        return known[1]

    def _kept(
        self, optimization: Optimization, tries: Tries, weights: NDArray[np.float64]
    ) -> NDArray[np.float64]:
        """Return the share of each gain's weight that a learned prior does not hold already.

        A prior of strength s at mean m, drawn from gains of mean g, holds s * m / g observations
        of those that it was drawn from.
        """
        ids = frozenset(optimization.prior_evidence)
        drawn = np.array([fact.is_among(ids, self._at) for fact in tries.facts], dtype=np.bool_)
        total = math.fsum(weights[drawn].tolist())
        gained = math.fsum((weights[drawn] * tries.log_gains[drawn]).tolist())
        if gained <= 0.0:
            return np.ones(len(drawn))
        held = optimization.prior_strength * optimization.prior_log_gain * total / gained
        return np.where(drawn, min(1.0, max(0.0, 1.0 - held / total)), 1.0)

    def _weights(
        self, technique: str, state: PerformanceState, context: PolicyContext
    ) -> NDArray[np.float64]:
        """Return what evidence of each of a technique's origins counts here."""
        asked = (technique, *_asked(state, context))
        if asked not in self._weighed:
            tries = self._tries_of(technique, context)
            near = self._neighbourhood(state).weights
            self._weighed[asked] = np.array(
                [_weight(like, near, state, context) for like in tries.origins], np.float64
            )
        return self._weighed[asked]

    def _offered(self, state: PerformanceState, context: PolicyContext) -> dict[str, Optimization]:
        """Return every technique that this state, its neighbours or its evidence knows."""
        return {
            **self._unlisted(state, context),
            **self._neighbourhood(state).borrowed,
            **self._optimizations.get(state.id, {}),
        }

    def _neighbourhood(self, state: PerformanceState) -> Neighbourhood:
        """Return what the other states count, and the nearest ones' optimizations at a discount.

        Of techniques that several of them know, the nearest state wins.
        """
        asked = state.id, state.centroid
        if asked in self._neighbourhoods:
            return self._neighbourhoods[asked]
        here = embed(state.centroid)
        away = {other: math.dist(where, here) for other, where in self._embedded.items()}
        nearest = sorted(away.keys() - {state.id}, key=lambda other: (away[other], other))
        borrowed: dict[str, Optimization] = {}
        for other in reversed(nearest[:NEIGHBOURS]):
            for technique, optimization in self._optimizations.get(other, {}).items():
                borrowed[technique] = optimization.model_copy(
                    update={
                        "prior_log_gain": optimization.prior_log_gain * NEIGHBOUR_DISCOUNT,
                        "prior_strength": optimization.prior_strength * NEIGHBOUR_DISCOUNT,
                    }
                )
        weights = {other: _neighbour_weight(far) for other, far in away.items()} | {state.id: 1.0}
        found = self._neighbourhoods[asked] = Neighbourhood(weights, borrowed)
        return found

    def _unlisted(self, state: PerformanceState, context: PolicyContext) -> dict[str, Optimization]:
        """Return techniques that were applied in this state but stand under no state nearby."""
        simulated = context.device_kind == "simulated"
        return {
            technique: (self._known.get(technique) or unknown_technique(technique)).model_copy(
                update={
                    "prior_log_gain": 0.0,
                    "prior_strength": NEIGHBOUR_DISCOUNT,
                    "prior_evidence": (),
                }
            )
            for technique in self._facts.tried_in_state(state.id, simulated, self._at)
        }


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


def _weight(
    like: Origin,
    near: Mapping[str, float],
    state: PerformanceState,
    context: PolicyContext,
) -> float:
    weight = near.get(like.state)
    if weight is None:
        weight = _neighbour_weight(distance(like.signature, state.centroid))
    if like.op_class != context.op_class:
        weight *= OTHER_OP_CLASS
    if like.dtype != context.dtype:
        weight *= OTHER_DTYPE
    if context.harness and like.harness != context.harness:
        weight *= OTHER_HARNESS
    return weight


def _neighbour_weight(away: float) -> float:
    return NEIGHBOUR_WEIGHT * math.exp(-away / NEIGHBOUR_REACH)


def _setting_gain(rows: Sequence[tuple[float, Evidence]]) -> SettingGain:
    """Return what one parameter setting gained by weighted rows."""
    # Names in the order of one of the rows, the same whichever came first.
    _, named = min(rows, key=lambda each: list(each[1].parameters))
    gained = math.fsum(
        weight * (-FAILURE_COST if row.log_gain is None else row.log_gain) for weight, row in rows
    )
    return SettingGain(
        parameters=dict(named.parameters),
        mean_log=gained / math.fsum(weight for weight, _ in rows),
        tries=len(rows),
        failures=sum(row.log_gain is None for _, row in rows),
    )


def _level(like: Origin, context: PolicyContext) -> int:
    """Return which of the levels evidence is on: other GPUs, the family, the architecture."""
    if like.arch == context.arch:
        return 2
    return 1 if like.family == context.family else 0


def _asked(state: PerformanceState, context: PolicyContext) -> tuple[object, ...]:
    """Return all of a question that its answer depends on, but for the technique."""
    return (
        state.id,
        state.centroid,
        context.device_kind == "simulated",
        context.op_class,
        context.dtype,
        context.harness,
        context.arch,
        context.family,
    )


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
