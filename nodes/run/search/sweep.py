"""Sweep: other settings of what moved a kernel's time, as proposals that need no model.

Reads plan, summary, current, state_choice, knowledge_at, the place and proposals; writes proposals.
What a technique did with one setting was tried, not the technique: where it moved the time, its
neighbouring settings are proposed on the same kernel, also where the first one lost. A built-in
rewrite is asked for them; of a model's kernel the numbers that it names are changed. What a person
rejected, what broke in this run and what the policy keeps from the kernel is not proposed.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import Collection, Iterator, Mapping, Sequence
from functools import partial
from itertools import takewhile
from typing import Any, NamedTuple, NotRequired, TypedDict, cast

from ....harness.records.tasks import Task
from ....memory.records.evidence import Step
from ....memory.records.policy import PolicyContext, setting_name
from ....tools.models.records import BUILTIN
from ....tools.rewriting.records import Rewritten
from ....tools.rewriting.source.named_constants import (
    name_of,
    named_numbers,
    neighbours,
    with_numbers,
)
from ....tools.techniques.catalogue import rewrites
from ....tools.workspace import Workspace
from ...common.history.authors import is_built_in
from ...common.history.steps import visible_steps, ways_through
from ...common.outlook.policy_context import card_of, kernel_in_context, policy_context, refusals
from ...common.workspaces import workspace_of
from ...optimization_proposer.node import withheld_here
from ...records.choices import Proposal
from ...records.kernels import KernelPoint
from ...records.observations import StateChoice
from ...records.plan import RunPlan
from ...records.task import TaskSummary

MOVED = math.log(1.05)
"""Log gain, either way, from which a technique's settings are worth trying."""
Setting = dict[str, Any]


class Reads(TypedDict):
    """What this step reads."""

    plan: RunPlan
    summary: TaskSummary
    current: KernelPoint
    state_choice: StateChoice
    knowledge_at: int
    iteration: int
    rollout: int
    step: int
    proposals: tuple[Proposal, ...]
    rejected: NotRequired[tuple[str, ...]]


class Sweep(NamedTuple):
    """A technique on the kernel at hand, and settings of it that were not tried there."""

    tried: Step
    """The fastest try of it."""
    settings: tuple[Setting, ...]
    basis: str
    """As in `Proposal`."""


async def sweep(state: Reads) -> dict[str, Any]:
    """Add to the proposals what other settings there are; a model's own proposals stay."""
    found = await asyncio.to_thread(swept_on, state)
    asked_for = {each.technique for each in state["proposals"] if each.made_for}
    swept: dict[str, Proposal] = {}
    for each in found:
        best = swept.setdefault(each.technique, each)
        if each.technique in asked_for:
            del swept[each.technique]
        elif each.expected.score > best.expected.score:
            swept[each.technique] = each
    others = []
    for each in state["proposals"]:
        # On another kernel of the program the technique may promise more.
        sweeping = swept.get(each.technique)
        if (
            sweeping is not None and sweeping.launch != each.launch
            and each.expected.score > sweeping.expected.score
        ):  # fmt: skip
            del swept[each.technique]
        if each.technique not in swept:
            others.append(each)
    if not swept:  # A node that returns nothing is streamed as None, which readers do not expect.
        return {"proposals": state["proposals"]}
    ranked = (*others, *swept.values())
    if not asked_for:  # A model's order is its ranking.
        ranked = tuple(sorted(ranked, key=lambda each: (-each.expected.score, each.technique)))
    return {"proposals": ranked}


def swept_on(state: Reads) -> list[Proposal]:
    """Return the proposals of a sweep on the kernel at hand."""
    if not state["plan"].sweeps:
        return []
    place = state["iteration"], state["rollout"], state["step"]
    summary = state["summary"]
    with workspace_of(state["plan"]) as workspace:
        steps = visible_steps(workspace, place)
        found = list(_sweeps(workspace, state, steps))
        if not found:
            return []
        context = policy_context(workspace.measured_by, summary)
        where, at = state["state_choice"].state, state["knowledge_at"]
        out = {
            *state.get("rejected", ()),
            *workspace.knowledge.deprecated(where, context, at),
            *withheld_here(workspace, cast(Any, state), steps),
        }
        at_hand = kernel_in_context(workspace, state["plan"], summary, state["current"], place)
        return [
            _proposal(workspace, state, each, at_hand)
            for each in map(partial(_without, set(refusals(steps))), found)
            if each.settings and each.tried.technique not in out
        ]


def _without(broken: Collection[tuple[str, str, str]], sweep: Sweep) -> Sweep:
    """Return a sweep without the settings that broke a kernel in this run."""
    tried = sweep.tried
    left = tuple(
        setting
        for setting in sweep.settings
        if (tried.technique, tried.launch, setting_name(setting)) not in broken
    )
    return sweep._replace(settings=left)


def _sweeps(workspace: Workspace, state: Reads, steps: Sequence[Step]) -> Iterator[Sweep]:
    """Yield what could be swept on the kernel at hand, by technique and kernel of the program."""
    sha256 = state["current"].source_sha256
    models = state["plan"].models
    by_rewrite = models.model_of("kernel_writer") == BUILTIN or models.rewrites_first
    task = workspace.task(state["summary"].artifact)
    tries: dict[tuple[str, str], list[Step]] = {}
    for step in steps:
        if step.parent_sha256 == sha256:
            tries.setdefault((step.technique, step.launch), []).append(step)
    way = ways_through(steps).get(sha256, ())
    made = way[-1] if way else None
    for (technique, _), tried in sorted(tries.items()):
        passed = [step for step in tried if step.log_gain is not None]
        best = max(passed, key=lambda step: step.log_gain or 0.0, default=None)
        if best is None or abs(best.log_gain or 0.0) < MOVED:
            continue
        own = made is not None and made.technique == technique and not is_built_in(made.author)
        if own and (best.log_gain or 0.0) < 0.0:
            continue  # The number of the kernel at hand is the best so far: below, around that.
        known = {setting_name(step.parameters) for step in tried}
        known |= {setting_name(each) for step in tried for each in step.refused}
        if not is_built_in(best.author):
            yield from _of_numbers(workspace, best, str(best.child_sha256), known, sha256)
        elif by_rewrite:
            yield from _of_rewrite(workspace, task, best, known)
    if made is None or is_built_in(made.author):
        return  # A built-in rewrite is proposed once more by itself.
    again = tries.get((made.technique, made.launch), [])
    if any((step.log_gain or 0.0) >= 0.0 for step in again if step.log_gain is not None):
        return
    if abs(made.log_gain or 0.0) >= MOVED:
        same = [step for step in steps if step.technique == made.technique
                and step.parent_sha256 == made.parent_sha256]  # fmt: skip
        # Settings that led here are behind it.
        line = takewhile(lambda step: step.technique == made.technique, reversed(way))
        earlier = {setting_name(step.parameters) for step in (*same, *line, *again)}
        yield from _of_numbers(workspace, made, sha256, earlier, sha256)


def _of_rewrite(
    workspace: Workspace, task: Task, tried: Step, known: set[str]
) -> Iterator[Sweep]:
    rewrite = next((each for each in rewrites() if each.technique == tried.technique), None)
    if rewrite is None:
        return
    parent = workspace.artifacts.get_text(tried.parent_sha256)
    kernels = [tried.launch] if tried.launch else []
    settings = tuple(
        setting
        for setting in _around(tried.parameters, rewrite.parameters)
        if setting_name(setting) not in known
        and isinstance(rewrite.apply(parent, task, setting, kernels), Rewritten)
    )
    if settings:
        yield Sweep(tried, settings, "")


def _of_numbers(
    workspace: Workspace, tried: Step, basis: str, known: set[str], at_hand: str
) -> Iterator[Sweep]:
    text = workspace.artifacts.get_text(basis)
    numbers = named_numbers(text)
    names = {
        parameter: name
        for parameter in tried.parameters
        if (name := name_of(parameter, list(numbers))) is not None
    }
    named = {
        parameter: value
        for parameter, value in tried.parameters.items()
        if type(value) is int and parameter in names and numbers[names[parameter]] == value
    }
    listed = card_of(workspace, tried).parameters
    around = _around(tried.parameters, {name: listed.get(name, ()) for name in named})
    same = workspace.artifacts.get_text(at_hand)
    settings = tuple(
        each
        for each in around
        if setting_name(each) not in known
        # The number that the kernel at hand has makes nothing else of what came of it.
        and with_numbers(text, {names[key]: each[key] for key in named}) != same
    )
    if settings:
        yield Sweep(tried, settings, basis)


def _around(setting: Setting, listed: Mapping[str, Sequence[Any]]) -> Iterator[Setting]:
    """Yield the settings that differ in one of some parameters, to a neighbouring value."""
    for name, values in sorted(listed.items()):
        if name not in setting:
            continue
        for value in neighbours(setting[name], values):
            yield {**setting, name: value}


def _proposal(
    workspace: Workspace, state: Reads, sweep: Sweep, context: PolicyContext
) -> Proposal:
    tried, card = sweep.tried, card_of(workspace, sweep.tried)
    told = [
        workspace.knowledge.forecast(
            state["state_choice"].state, card, tried.launch, setting, context,
            state["knowledge_at"],
        )[1]
        for setting in sweep.settings
    ]  # fmt: skip
    ranked = sorted(range(len(told)), key=lambda at: -told[at].value)
    best = told[ranked[0]]
    gained = math.exp(tried.log_gain or 0.0)
    return Proposal(
        technique=tried.technique,
        source="sweep",
        settings=tuple(sweep.settings[at] for at in ranked),
        launch=tried.launch,
        basis=sweep.basis,
        expected=best.as_gain(),
        optimization=tried.optimization,
        reason=f"another setting: with {tried.parameters} it came to {gained:.2f}x",
    )
