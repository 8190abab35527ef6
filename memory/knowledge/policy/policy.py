"""What could be tried on a kernel, and what to expect of it: forecasts under a state's listings.

An action is (technique, target launch, setting). States say which techniques are offered and what
the seed expects of a first use; gains come from the tries on like kernels (`expectation`).
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from ...records.optimizations import Optimization
from ...records.policy import ExpectedGain, LaunchAtHand, PolicyContext, setting_name
from ...records.states import PerformanceState
from ..states.distances import distances
from .actions import USUAL_US, Action, Forecast, Question, Situation
from .expectation import Expectations, Outlook
from .facts import Facts
from .failures import Reliability

NEIGHBOURS = 3
"""States whose optimizations are offered besides the state's own."""
NEIGHBOUR_DISCOUNT = 0.5
"""Factor on a neighbour's prior gain and strength."""
TARGETS, LEAST_SHARE = 3, 0.1
"""Kernels of a program that a technique without a rewrite may be aimed at, the costliest, and the
share of the time that each must take."""


class Prospect(NamedTuple):
    """A technique with what to expect of it here."""

    optimization: Optimization
    expected: ExpectedGain
    """Of the first setting."""
    launch: str
    """Kernel to aim it at: where it promises most. Empty where no kernel is at hand."""
    settings: tuple[dict[str, Any], ...]
    """The most promising first, without those that were refused; none where all were."""
    forecasts: tuple[Forecast, ...]
    """Of each setting."""


class Policy:
    """What could be tried as of one snapshot, on simulated or on measured devices."""

    def __init__(
        self,
        facts: Facts,
        expectations: Expectations,
        at: int,
        states: Iterable[PerformanceState],
        optimizations: Mapping[str, Mapping[str, Optimization]],
        contained: Mapping[str, tuple[str, ...]] | None = None,
    ) -> None:
        """Take evidence up to a sequence number, states, optimizations by state and name, and by
        state the ids of those that are it now."""
        self._facts = facts
        self._expectations = expectations
        self._at = at
        self._outlook = expectations.at(at)
        known = list(states)
        self._states = tuple(state.id for state in known)
        self._centroids = np.array([state.centroid for state in known])
        self._optimizations = optimizations
        self._known = {
            technique: optimization
            for under in optimizations.values()
            for technique, optimization in under.items()
        }
        self._contained = contained or {}
        self._listed: dict[tuple[object, ...], dict[str, Optimization]] = {}

    def offered(
        self,
        state: PerformanceState,
        context: PolicyContext,
        excluded: frozenset[str] = frozenset(),
    ) -> list[Optimization]:
        """Return the techniques that `candidates` asks about, as they are listed here.

        The state's own optimizations, those of its nearest neighbours at a discount, and
        techniques that only evidence knows; less `context.tried` and `excluded`.
        """
        left_out = excluded | set(context.tried)
        return [
            optimization
            for technique, optimization in self._offered(state, context).items()
            if technique not in left_out
        ]

    def candidates(
        self,
        state: PerformanceState,
        context: PolicyContext,
        excluded: frozenset[str] = frozenset(),
        only: Collection[str] | None = None,
    ) -> list[Prospect]:
        """Return what could be tried in a state, highest score first, ties by technique name.

        Of what is offered, or of that `only` what it names; less what was refused.
        """
        asked = [
            optimization
            for optimization in self.offered(state, context, excluded)
            if only is None or optimization.technique in only
        ]
        found = [each for each in self._prospects(state, asked, context) if each.settings]
        return sorted(found, key=lambda each: (-each.expected.score, each.optimization.technique))

    def beliefs(
        self,
        state: PerformanceState,
        techniques: Iterable[Optimization],
        context: PolicyContext,
    ) -> list[Prospect]:
        """Return what to expect of named techniques, in the order given.

        Each comes as `candidates` would offer it, and otherwise as given: with its own prior.
        """
        offered = self._offered(state, context)
        chosen = [offered.get(item.technique, item) for item in techniques]
        return self._prospects(state, chosen, context)

    def forecast(
        self,
        state: PerformanceState,
        optimization: Optimization,
        launch: str,
        setting: Mapping[str, Any],
        context: PolicyContext,
    ) -> tuple[Question, Forecast]:
        """Return what one action is asked as, and what to expect of it."""
        card = self._offered(state, context).get(optimization.technique, optimization)
        (target,) = [each for each in _launches(state, context) if each.kernel == launch] or [
            _launches(state, context)[0]
        ]
        where = _situation(target, context)
        (question,) = _questions(card, where, target, [setting], context)
        return question, self._as_known_to(context).forecasts([question])[0]

    def _prospects(
        self,
        state: PerformanceState,
        techniques: Sequence[Optimization],
        context: PolicyContext,
    ) -> list[Prospect]:
        outlook, refused = self._as_known_to(context), _refused(context)
        launches = _launches(state, context)
        situations = {launch.kernel: _situation(launch, context) for launch in launches}
        asked: list[Question] = []
        places: list[list[list[int]]] = []
        for optimization in techniques:
            at_launches = []
            for launch in _aims(optimization.technique, launches, context):
                first = len(asked)
                where = situations[launch.kernel]
                asked += _questions(optimization, where, launch, _settings(optimization), context)
                at_launches.append(list(range(first, len(asked))))
            places.append(at_launches)
        told = outlook.forecasts(asked)

        def is_out(place: int) -> bool:
            situation, action, _ = asked[place]
            named = action.technique, action.launch, setting_name(action.setting)
            return named in refused or outlook.refused(situation, action)

        def prospect(optimization: Optimization, at_launches: list[list[int]]) -> Prospect:
            ranked = [sorted(each, key=lambda place: -told[place].value) for each in at_launches]
            left = [[place for place in each if not is_out(place)] for each in ranked]
            # Where all is out, what to expect is said all the same.
            best, chosen = max(
                zip(ranked, left, strict=True),
                key=lambda pair: (bool(pair[1]), told[(pair[1] or pair[0])[0]].value),
            )
            return Prospect(
                optimization,
                told[(chosen or best)[0]].as_gain(),
                asked[best[0]].action.launch,
                tuple(dict(asked[place].action.setting) for place in chosen),
                tuple(told[place] for place in chosen),
            )

        return [prospect(*pair) for pair in zip(techniques, places, strict=True)]

    def _as_known_to(self, context: PolicyContext) -> Outlook:
        if not context.own:
            return self._outlook
        return self._expectations.at(self._at, context.own)

    def _offered(self, state: PerformanceState, context: PolicyContext) -> dict[str, Optimization]:
        """Return every technique that this state, its neighbours or its evidence knows."""
        asked = state.id, state.centroid, context.device_kind
        if asked not in self._listed:
            self._listed[asked] = {
                **self._unlisted(state, context),
                **self._of_neighbours(state),
                **self._optimizations.get(state.id, {}),
            }
        return self._listed[asked]

    def _of_neighbours(self, state: PerformanceState) -> dict[str, Optimization]:
        """Return the nearest states' optimizations at a discount.

        Of techniques that several of them know, the nearest state wins.
        """
        apart = distances(state.centroid, self._centroids) if self._states else ()
        away = dict(zip(self._states, map(float, apart), strict=True))
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
        return borrowed

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
            for each in (state.id, *self._contained.get(state.id, ()))
            for technique in self._facts.tried_in_state(each, simulated, self._at)
        }


def thompson_sample(expected: ExpectedGain, generator: np.random.Generator) -> float:
    """Draw one plausible value of trying a technique: its log gain, failures taken in.

    Two calls with generators in the same state return the same number.
    """
    cap = math.inf if expected.most_log is None else expected.most_log
    passes = Reliability(expected.passed, expected.failed)
    forecast = Forecast(expected.mean_log, expected.std_log, cap, passes, expected.trials)
    return forecast.sample(generator)


def _launches(state: PerformanceState, context: PolicyContext) -> tuple[LaunchAtHand, ...]:
    """Return the kernels of the program at hand; without one, a kernel as the state has them."""
    if context.kernel is None:
        return (LaunchAtHand(kernel="", share=1.0, signature=state.centroid),)
    return context.kernel.launches


def _aims(
    technique: str, launches: Sequence[LaunchAtHand], context: PolicyContext
) -> Sequence[LaunchAtHand]:
    """Return the kernels that a technique may be aimed at."""
    target = context.kernel.targets.get(technique) if context.kernel else None
    named = [each for each in launches if each.kernel == target]
    able = context.kernel.able.get(technique, ()) if context.kernel else ()
    fit = [each for each in launches if each.kernel in able]
    matter = [each for each in launches if each.share >= LEAST_SHARE][:TARGETS]
    return named or fit or matter or launches[:1]


def _settings(optimization: Optimization) -> Iterator[dict[str, Any]]:
    """Return every combination of parameter values, the defaults first."""
    names = sorted(optimization.parameters)
    for values in itertools.product(*(optimization.parameters[name] for name in names)):
        yield dict(zip(names, values, strict=True))


def _situation(launch: LaunchAtHand, context: PolicyContext) -> Situation:
    kernel = context.kernel
    return Situation(
        task=kernel.task_id if kernel else "",
        op_class=context.op_class,
        dtype=context.dtype,
        gpu=context.gpu,
        family=context.family,
        simulated=context.device_kind == "simulated",
        signature=launch.signature,
        share=launch.share,
        microseconds=kernel.microseconds if kernel else USUAL_US,
        bound_us=kernel.bound_us if kernel else None,
        source=kernel.source_sha256 if kernel else "",
        harness=context.harness,
    )


def _questions(
    optimization: Optimization,
    situation: Situation,
    launch: LaunchAtHand,
    settings: Iterable[Mapping[str, Any]],
    context: PolicyContext,
) -> list[Question]:
    """Return what to ask of settings of a technique on one launch."""
    technique, kernel = optimization.technique, context.kernel
    before = [
        values
        for applied, where, values in (kernel.applied if kernel else ())
        if applied == technique and (where == launch.kernel or _only_one(context))
    ]
    earlier = before[-1] if before else None
    # A prior is of a first use. One drawn from evidence would count that again; that of a macro is
    # drawn from its steps', which are no tries of the macro.
    told = not before and (not optimization.prior_evidence or optimization.steps)
    prior = optimization.prior_log_gain if told else 0.0
    return [
        Question(
            situation, Action(technique, launch.kernel, setting, earlier, context.writer), prior
        )
        for setting in settings
    ]


def _only_one(context: PolicyContext) -> bool:
    """Say whether the program has one kernel: it may have had another name."""
    return context.kernel is not None and len(context.kernel.launches) == 1


def _refused(context: PolicyContext) -> frozenset[tuple[str, str, str]]:
    """Return what failed in this run, under the names that kernels have now."""
    if context.kernel is None or not _only_one(context):
        return frozenset(context.refused)
    (only,) = context.kernel.launches
    return frozenset((technique, only.kernel, name) for technique, _, name in context.refused)


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
