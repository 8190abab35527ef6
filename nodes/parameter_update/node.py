"""Parameter update: rewrite the knowledge base from the gap analysis.

Reads plan, summary, analysis, trajectories and the best before; writes update, best, the next
snapshot and the iteration counter, and takes out of state the gaps that it has read. Last part of
the textual gradient (KernelBlaster: parameter update). What changes by rule changes whoever writes;
a model writes the words of lessons and cards.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any, NotRequired, TypedDict

from ...memory.knowledge.knowledge_base import KnowledgeBase
from ...memory.knowledge.states.conditions import KernelFacts
from ...memory.records.evidence import Step
from ...memory.records.update import KnowledgeUpdate
from ...tools.models.records import BUILTIN, Answer, Message
from ...tools.progress import report_progress
from ...tools.workspace import Workspace
from ..common.asking import asked, stand_in
from ..common.history.steps import path_to
from ..common.outlook.facts_at_hand import facts_at_hand
from ..common.outlook.policy_context import policy_context
from ..common.workspaces import workspace_of
from ..records.gradient import Gap, GapAnalysis, ParameterUpdate
from ..records.kernels import KernelPoint
from ..records.plan import RunPlan
from ..records.task import TaskSummary
from ..records.together import AnsweredTogether
from ..records.trajectories import Trajectory, best_so_far
from .builtin import Change, Known, knowledge_update, written_edits, written_lessons
from .by_rule import Learned
from .prompt import Iteration, lesson_messages, notes_on, with_notes
from .reply import KnowledgeNotes


class Reads(TypedDict):
    """What this agent reads."""

    plan: RunPlan
    summary: TaskSummary
    iteration: int
    knowledge_at: int
    best: KernelPoint
    trajectories: dict[str, Trajectory]
    analysis: GapAnalysis
    reflected: NotRequired[AnsweredTogether | None]


async def parameter_update(state: Reads) -> dict[str, Any]:
    """Write lessons and corrections; take the snapshot and the best the next iteration reads."""
    plan = state["plan"]
    told = await asyncio.to_thread(learned_of, state)
    change, author = told.change, BUILTIN
    if not plan.learns:  # Evidence moves expectations by itself, where it is kept.
        change = Change(KnowledgeUpdate(run=plan.run_id, iteration=state["iteration"]))
    elif plan.models.model_of("parameter_update") != BUILTIN and told.steps:
        answer = await _ask(state, told)
        if answer.value is None:
            author = stand_in(answer)
        else:
            change = await asyncio.to_thread(with_notes, answer, told, state["summary"].op_class)
            author = answer.author
    update, sequence = await asyncio.to_thread(_apply, state, told, change, author)
    report_progress(
        "parameter_update",
        iteration=state["iteration"],
        lessons=[lesson.model_dump(mode="json") for lesson in update.lessons],
        edits=[edit.model_dump(mode="json") for edit in update.edits],
        refused=list(update.refused),
        moved={name: list(pair) for name, pair in update.moved.items()},
        author=author,
    )
    return {
        "update": update,
        "analysis": state["analysis"].model_copy(update={"gaps": ()}),
        "knowledge_at": sequence,
        "best": best_so_far(state["best"], state["trajectories"]),
        "iteration": state["iteration"] + 1,
    }


async def _ask(state: Reads, told: Iteration) -> Answer[KnowledgeNotes]:
    def prepare(_: Workspace) -> tuple[tuple[Message, ...], type[KnowledgeNotes]]:
        messages = lesson_messages(state["plan"], state["summary"], state["analysis"], told)
        return messages, notes_on(told.steps)

    place, reflected = (state["iteration"],), state.get("reflected")
    return await asked(state["plan"], "parameter_update", place, prepare, reflected)


def learned_of(state: Reads) -> Iteration:
    """Return what the iteration teaches by rule, and what a model may speak of."""
    plan = state["plan"]
    with workspace_of(plan) as workspace:
        identity = workspace.measured_by
        steps = [
            step
            for step in workspace.store.replay.steps()
            if step.iteration <= state["iteration"]
        ]
        knowledge = workspace.knowledge
        known = _known(knowledge, state, identity.kind, steps)
        own = [step for step in steps if step.iteration == state["iteration"]]
        facts = _facts(workspace, state, own, steps)
    names = {gap.state_id: gap.state_name for gap in _single(state["analysis"])}
    return Iteration(
        steps=own,
        names=names | {found.id: found.name for found in known.learned.found.values()},
        change=knowledge_update(state["analysis"], known),
        learned=known.learned,
        facts=facts,
        lessons=list(known.lessons),
        gpu=identity.gpu,
        device_kind=identity.kind,
    )


def _facts(
    workspace: Workspace, state: Reads, own: Sequence[Step], steps: Sequence[Step]
) -> dict[str, KernelFacts]:
    """Return what is known of the kernels that an iteration's steps began with."""
    task = workspace.task(state["summary"].artifact)
    found = {}
    for step in own:
        source = workspace.artifacts.get_text(step.parent_sha256)
        evaluation = workspace.store.get(workspace.evaluator.key(task, source))
        if step.evidence_id and evaluation is not None and evaluation.profile is not None:
            path = path_to(step.parent_sha256, steps)
            found[step.evidence_id] = facts_at_hand(
                workspace, state["plan"], state["summary"], evaluation.profile, path
            )
    return found


def _single(analysis: GapAnalysis) -> list[Gap]:
    """Return the gaps of one technique each, by state and technique: as they were reviewed."""
    single = (gap for gap in analysis.gaps if gap.kind != "sequence")
    return sorted(single, key=lambda gap: (gap.state_id, gap.technique))


def _apply(
    state: Reads, told: Iteration, change: Change, author: str
) -> tuple[ParameterUpdate, int]:
    """Change the knowledge base; return what changed, and the number of the new snapshot."""
    plan, before = state["plan"], state["knowledge_at"]
    with workspace_of(plan) as workspace:
        context = policy_context(workspace.measured_by, state["summary"])
        knowledge = workspace.knowledge
        # Its own number, not the newest: after a kill the same update names the same snapshot.
        # A base to which nothing is added is read as it was when the run began.
        after = knowledge.apply_update(change.update) if plan.memory == "live" else before
        moved = {}
        for gap in _single(state["analysis"]) if after != before else ():
            where = knowledge.state(gap.state_id, after)
            if where is None:
                continue
            old, new = (
                knowledge.beliefs(where, [gap.technique], context, at)[0].expected.score
                for at in (before, after)
            )
            moved[f"{gap.state_name} / {gap.technique}"] = (old, new)
    return (
        ParameterUpdate(
            iteration=state["iteration"],
            lessons=written_lessons(change.update, told.names),
            edits=written_edits(change.update.edits, told.names),
            refused=change.refused,
            moved=moved,
            author=author,
        ),
        after,
    )


def _known(
    knowledge: KnowledgeBase, state: Reads, device_kind: str, steps: Sequence[Step]
) -> Known:
    """Return what the iteration's snapshot knew, and what the iteration itself added.

    What other runs wrote meanwhile is left out: repeated after a kill, the update is the same.
    """
    knowledge.snapshot()  # What the iteration wrote is read.
    before = knowledge.snapshot(state["knowledge_at"])
    own = {identity for gap in state["analysis"].gaps for identity in gap.evidence}
    reviewed = {gap.state_id for gap in _single(state["analysis"])}
    seen = {found.id for found in before.states()}
    return Known(
        learned=Learned(
            snapshot=before,
            rows=before.rows(later=own),
            described={
                name: card
                for name in knowledge.seed().techniques
                if (card := before.card(name, device_kind)) is not None
            }
            | {step.technique: step.optimization for step in steps if step.optimization},
            op_class=state["summary"].op_class,
            device_kind=device_kind,
            run=state["plan"].run_id,
            iteration=state["iteration"],
            found={
                found.id: found.model_copy(update={"count": 0})
                for found in sorted(knowledge.states(), key=lambda found: found.id)
                if found.id in reviewed - seen
            },
        ),
        lessons=knowledge.lessons(state["knowledge_at"]),
    )
