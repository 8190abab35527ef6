"""Many runs in figures: the analyses of the paper, each as a plot, by policy or any other group."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from ..nodes.common.policies import by_rounds
from . import analyses, words
from .plots import (
    Plot,
    curves_plot,
    present,
    states_plot,
    techniques_plot,
    tokens_plot,
    transitions_plot,
)
from .reading import RunAccount

Groups = Mapping[str, Sequence[RunAccount]]
"""Runs by what they have in common: their policy, in most reports."""


class GroupView(NamedTuple):
    """What the runs of one group did."""

    name: str
    runs: int
    plots: list[Plot]


def curves(groups: Groups) -> list[Plot]:
    """Return how the gain grows with evaluations, trajectories, techniques and tokens."""
    everything = [run for runs in groups.values() for run in runs]
    named = {
        f"{name} ({words.counted(len(runs), 'run')})": runs for name, runs in groups.items() if runs
    }
    return present(
        (
            curves_plot(
                "learning", "Gain over evaluations",
                "Geometric mean of the best gain after so many evaluations, with the quartiles of "
                "the runs. A run that ended earlier stays at what it had.", "evaluations",
                {name: analyses.learning_curve(runs) for name, runs in named.items()},
            ),
            _by_knowledge(everything),
            curves_plot(
                "breadth", "Breadth: gain over trajectories",
                "Geometric mean of the best gain among the first trajectories of a run, in the "
                "order of iterations and rollouts; of policies that have any.", "trajectories",
                {name: analyses.breadth_curve(runs) for name, runs in named.items()
                 if not all(by_rounds(run.plan.policy) for run in runs)},
            ),
            curves_plot(
                "depth", "Depth: gain over techniques",
                "Geometric mean of the best gain that so many techniques after each other, and "
                "no more, came to.", "techniques between the initial kernel and the best",
                {name: analyses.depth_curve(runs) for name, runs in named.items()},
            ),
            tokens_plot({name: analyses.gain_by_tokens(runs) for name, runs in named.items()}),
        )
    )  # fmt: skip


def _by_knowledge(runs: Sequence[RunAccount]) -> Plot | None:
    """Return the learning curves of runs that began with nothing known and with evidence.

    Of tasks that a policy did both ways, where there are any: else the two are of other tasks.
    """
    groups = analyses.by_knowledge(runs)
    if len(groups) < 2:
        return None
    done = [{(run.plan.policy, run.name) for run in each} for each in groups.values()]
    both = set.intersection(*done)
    kept = {
        name: [run for run in each if not both or (run.plan.policy, run.name) in both]
        for name, each in groups.items()
    }
    told = (f"on {words.counted(len(both), 'task')} done both ways" if both
            else "on other tasks each: none was done both ways")  # fmt: skip
    return curves_plot(
        "knowledge", "Learning with an empty and a trained knowledge base",
        f"Gain over evaluations of runs that began with each, {told}.", "evaluations",
        {f"{name} ({words.counted(len(each), 'run')})": analyses.learning_curve(each)
         for name, each in kept.items()},
    )  # fmt: skip


def group_views(groups: Groups) -> list[GroupView]:
    """Return techniques, states and transitions of each group."""
    return [
        GroupView(
            name,
            len(runs),
            present(
                (
                    techniques_plot(analyses.technique_counts(runs), f"techniques-{place}"),
                    states_plot(
                        analyses.state_shares(runs), analyses.states_by_step(runs),
                        f"states-{place}",
                    ),
                    transitions_plot(analyses.transitions(runs), f"transitions-{place}"),
                )
            ),
        )
        for place, (name, runs) in enumerate(groups.items())
    ]  # fmt: skip
