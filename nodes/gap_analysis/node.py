"""Performance-gap analysis: why measurement and policy disagree.

Reads plan, summary, evaluated, trajectories (their steps come from the replay buffer); writes
analysis, and takes out of state the reviews that it has read. Second part of the textual gradient
(KernelBlaster: performance-gap analysis). Which gaps there are is computed; a model says why, from
the code and the profiles before and after.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any, NotRequired, TypedDict

from ...memory.knowledge.states.signature import signature_of
from ...memory.records.evidence import Step
from ...memory.records.states import PerformanceState
from ...tools.models.records import BUILTIN, Answer, Message
from ...tools.progress import report_progress
from ...tools.workspace import Workspace
from ..common.asking import asked, stand_in
from ..common.history.authors import together
from ..common.history.sequences import chain_of
from ..common.workspaces import workspace_of
from ..records.gradient import GapAnalysis, PolicyEvaluation
from ..records.plan import RunPlan
from ..records.task import TaskSummary
from ..records.together import AnsweredTogether
from ..records.trajectories import Trajectory
from .builtin import analyze, sequence_gap
from .movement import Pair
from .prompt import gap_messages, profiles_around
from .reply import GapCauses, causes_of


class Reads(TypedDict):
    """What this agent reads."""

    plan: RunPlan
    summary: TaskSummary
    iteration: int
    evaluated: PolicyEvaluation
    trajectories: dict[str, Trajectory]
    reflected: NotRequired[AnsweredTogether | None]


async def gap_analysis(state: Reads) -> dict[str, Any]:
    """Explain each disagreement, and name the sequences that worked."""
    analysis, steps = await asyncio.to_thread(analysis_of, state)
    if state["plan"].models.model_of("gap_analysis") != BUILTIN and analysis.gaps:
        analysis = explained(analysis, steps, await _ask(state, analysis, steps))
    report_progress(
        "gap_analysis",
        iteration=state["iteration"],
        gaps=[
            {"kind": gap.kind, "technique": gap.technique, "explanation": gap.explained}
            for gap in analysis.gaps
        ],
        author=analysis.author,
    )
    return {
        "analysis": analysis,
        "evaluated": state["evaluated"].model_copy(update={"reviews": ()}),
    }


def analysis_of(state: Reads) -> tuple[GapAnalysis, list[Step]]:
    """Return the gaps as they are computed, whoever explains them, and the iteration's steps."""
    trajectories = [
        trajectory
        for _, trajectory in sorted(state["trajectories"].items())
        if trajectory.iteration == state["iteration"]
    ]
    steps, profiles, states = _seen(state)
    return analyze(state["evaluated"], trajectories, steps, profiles, states), steps


def _seen(
    state: Reads,
) -> tuple[list[Step], dict[str, Pair], dict[str, PerformanceState]]:
    """Return the iteration's steps, the signatures around those that passed, and the states."""
    with workspace_of(state["plan"]) as workspace:
        steps = workspace.store.replay.steps(state["iteration"])
        task = workspace.task(state["summary"].artifact)
        profiles: dict[str, Pair] = {}
        for step in steps:
            before, after = profiles_around(workspace, task, step)
            if step.evidence_id and before is not None and after is not None:
                pair = signature_of(before).values, signature_of(after).values
                profiles[step.evidence_id] = pair
        states = {found.id: found for found in workspace.knowledge.states()}
    return steps, profiles, states


async def _ask(state: Reads, analysis: GapAnalysis, steps: Sequence[Step]) -> Answer[GapCauses]:
    def prepare(workspace: Workspace) -> tuple[tuple[Message, ...], type[GapCauses]]:
        messages = gap_messages(
            workspace,
            state["plan"],
            state["summary"],
            analysis,
            steps,
            state["evaluated"].summary,
        )
        return messages, causes_of(analysis.gaps, steps)

    place, reflected = (state["iteration"],), state.get("reflected")
    return await asked(state["plan"], "gap_analysis", place, prepare, reflected)


def explained(
    analysis: GapAnalysis, steps: Sequence[Step], answer: Answer[GapCauses]
) -> GapAnalysis:
    """Return the gaps with a model's causes, with the sequences that it adds, without those that
    it says are none."""
    reply = answer.value
    if reply is None:
        return analysis.model_copy(update={"author": stand_in(answer)})
    said = {cause.gap: cause for cause in reply.causes}
    gaps = [
        gap.model_copy(
            update={
                "cause": said[at].cause,
                "condition": said[at].condition,
                "author": together(gap.author, answer.author),
            }
        )
        if at in said
        else gap
        for at, gap in enumerate(analysis.gaps, 1)
        if at not in reply.unordered
    ]
    names = {gap.state_id: gap.state_name for gap in analysis.gaps}
    listed = {gap.techniques for gap in gaps}
    for wanted in reply.sequences:
        gap = sequence_gap(chain_of(wanted.evidence, steps), names)
        if gap.techniques not in listed:
            said_by = {"cause": wanted.cause, "author": answer.author}
            gaps.append(gap.model_copy(update=said_by))
            listed.add(gap.techniques)
    return analysis.model_copy(update={"gaps": tuple(gaps), "author": answer.author})
