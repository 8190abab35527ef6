"""Optimization proposer: put techniques on the table for this code in this state.

Reads plan, summary, current, state_choice, the steps so far; writes proposals. Sources: the
knowledge base's optimizations for the state and its neighbours, and what applies to the code
though the knowledge base does not list it there.
"""

from __future__ import annotations

import asyncio
from typing import Any, TypedDict

from ..memory.records import PolicyContext, Step
from ..tools.workspace import Workspace, open_knowledge, open_workspace
from .builtin.proposer import propose
from .builtin.rewrites import applicable
from .progress import report_progress
from .records import KernelPoint, Proposal, RunPlan, StateChoice, TaskSummary

REAL_GAIN = 0.02
"""Log gain above which a step changed the situation (about 2 %)."""


class Reads(TypedDict):
    """What this agent reads."""

    plan: RunPlan
    summary: TaskSummary
    current: KernelPoint
    state_choice: StateChoice
    knowledge_at: int
    iteration: int
    rollout: int
    step: int
    steps: tuple[Step, ...]


async def propose_optimizations(state: Reads) -> dict[str, Any]:
    """List what could be tried here, with the policy's expected gain of each."""
    proposals, inapplicable = await asyncio.to_thread(_propose, state)
    report_progress(
        "proposals",
        iteration=state["iteration"],
        rollout=state["rollout"],
        step=state["step"],
        techniques=[p.technique for p in proposals],
        inapplicable=inapplicable,
    )
    return {"proposals": proposals}


def _propose(state: Reads) -> tuple[tuple[Proposal, ...], int]:
    plan, current = state["plan"], state["current"]
    with open_workspace(plan.run_directory, plan.device, plan.gpu) as workspace:
        task = workspace.task(state["summary"].artifact)
        source = workspace.artifacts.get_text(current.source_sha256)
        tried = techniques_tried(workspace, state)
        identity = workspace.measured_by
    context = PolicyContext(
        device_kind=identity.kind,
        gpu=identity.gpu,
        arch=identity.arch,
        family=architecture_family(identity.arch),
        op_class=state["summary"].op_class,
        dtype=state["summary"].dtype,
        harness=identity.harness,
        previous_technique=current.path[-1].technique if current.path else None,
        tried=tried,
    )
    reasons = applicable(source, task)
    at, where = state["knowledge_at"], state["state_choice"].state
    with open_knowledge(plan.knowledge_directory) as knowledge:
        known = knowledge.candidates(where, context, at)
        settled = {optimization.technique for optimization, _ in known} | set(tried)
        settled |= knowledge.deprecated(where, context, at)
        unlisted = knowledge.beliefs(where, sorted(set(reasons) - settled), context, at)
        measured = knowledge.settings(where, sorted(reasons), context, at)
    return propose(known, unlisted, reasons, measured)


def techniques_tried(workspace: Workspace, state: Reads) -> tuple[str, ...]:
    """Return the techniques not worth trying on this source again.

    Those tried on this very source, and those that this rollout tried without gain since its last
    real gain: neutral changes since then give them no new chance. Earlier iterations are complete
    and this rollout's own steps are its state; what parallel rollouts do meanwhile is left out, so
    that a run does not depend on their timing.
    """
    parent = state["current"].source_sha256
    earlier = [s for s in workspace.store.replay.steps() if s.iteration < state["iteration"]]
    tried = {s.technique for s in (*earlier, *state["steps"]) if s.parent_sha256 == parent}
    for step in reversed(state["steps"]):
        if step.log_gain is not None and step.log_gain > REAL_GAIN:
            break
        tried.add(step.technique)
    return tuple(sorted(tried))


def architecture_family(arch: str) -> str:
    """Return the family of an architecture such as sm_90: what gains carry over within."""
    digits = "".join(ch for ch in arch if ch.isdigit())
    names = {"80": "ampere", "86": "ampere", "87": "ampere", "89": "ada", "90": "hopper"}
    return names.get(digits, f"sm_{digits[:-1]}x" if digits else arch)
