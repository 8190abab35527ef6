"""Load the task: read the reference, resolve the plan, lay out the run directory.

Reads the request, and the caller's context from LangGraph's runtime; writes plan, summary and the
counters (reset, since a thread may be reused).
"""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

from langgraph.runtime import Runtime
from langgraph.types import Overwrite

from ...harness.records import Task
from ...harness.task.loading import load_task as read_task
from ...memory.knowledge.state_index import import_chroma
from ...tools.models.endpoint import require_endpoint
from ...tools.models.records import ROLES
from ...tools.progress import report_progress
from ...tools.workspace import open_runs
from ..common.workspaces import workspace_of
from ..records import OptimizeRequest, RunContext, RunPlan, TaskSummary
from .begin import begin_run, resolve_plan, stored_plan


async def load_task(state: OptimizeRequest, runtime: Runtime[RunContext]) -> dict[str, Any]:
    """Resolve the request under its context and load the reference.

    Raises:
        UserError: the task, device, GPU, model, knowledge base or run directory cannot be used, or
            the models' endpoint cannot be asked.
    """
    # Whoever began the run already (the command line does) holds its directory with the plan.
    begun = state.run is not None and open_runs().begun(Path(state.run))
    if begun:
        plan = await asyncio.to_thread(stored_plan, Path(str(state.run)))
    else:
        # A parent's own context is no affair of this graph.
        context = runtime.context if isinstance(runtime.context, RunContext) else RunContext()
        plan = await asyncio.to_thread(resolve_plan, state, context)
    # PyTorch describes the task in a process of its own: time to see whether the models can be
    # asked, and to import what is needed afterwards.
    task, note, _ = await asyncio.gather(
        read_task(Path(plan.task), plan.dimensions),
        require_endpoint(plan.models, Path(plan.run)),
        asyncio.to_thread(import_chroma),
    )
    if not begun:
        named = state.run is not None
        plan = await asyncio.to_thread(begin_run, plan, named=named)
    summary = await asyncio.to_thread(_store_task, plan, task)
    report_progress(
        "task",
        task=task.name,
        op_class=task.op_class,
        gpu=plan.gpu,
        device=plan.device,
        device_why=plan.device_why,
        run=plan.run,
        shapes={t.name: list(t.shape) for t in task.full.tensors},
        plan=plan.model_dump(include={"iterations", "rollouts", "steps", "seed"}),
        models={role: plan.models.model_of(role) for role in ROLES},
    )
    if note:
        report_progress("note", text=note)
    return {
        "plan": plan,
        "summary": summary,
        "iteration": 0,
        # A reused thread still holds what the last run was asked and found: replace all of it.
        "start": None,
        "run": None,
        "dimensions": {},
        "trajectories": Overwrite({}),
        "soft_reviews": Overwrite({}),
    }


def _store_task(plan: RunPlan, task: Task) -> TaskSummary:
    with workspace_of(plan) as workspace:
        artifact = workspace.artifacts.put_text(task.model_dump_json())
    return TaskSummary(
        name=task.name, id=task.id, artifact=artifact, op_class=task.op_class, dtype=task.dtype
    )
