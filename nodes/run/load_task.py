"""Load the task: read the reference, resolve the plan, lay out the run directory.

Reads the request; writes plan, task and the counters (reset, since a thread may be reused).
"""

from __future__ import annotations

import asyncio
import uuid
from pathlib import Path
from typing import Any

from langgraph.types import Overwrite

from ...harness.devices.registry import device_choice, open_device
from ...harness.errors import UserError
from ...harness.records import Task
from ...harness.task.loading import load_task as read_task
from ...memory.knowledge.state_index import import_chroma
from ...memory.locations import default_knowledge_directory, new_run_directory
from ...memory.run.artifacts import ArtifactStore
from ...tools.models.budgets import BUDGETS_FILE, require_prices, write_budgets
from ...tools.models.chat_models import check_models, parse_models
from ...tools.models.records import BUILTIN, ROLES, Budgets, ModelPlan
from ...tools.progress import report_progress
from ...tools.workspace import open_knowledge
from ..records import OptimizeRequest, RunPlan, TaskSummary


async def load_task(state: OptimizeRequest) -> dict[str, Any]:
    """Resolve the request and load the reference.

    Raises:
        UserError: the task, device, GPU, model or knowledge base cannot be used.
    """
    plan = await asyncio.to_thread(resolve_plan, state)
    # PyTorch describes the task in a process of its own: time to import what is needed afterwards.
    task, _ = await asyncio.gather(
        read_task(Path(plan.task_path), plan.dimensions), asyncio.to_thread(import_chroma)
    )
    summary = await asyncio.to_thread(store_task, plan, task, state.budgets)
    report_progress(
        "task",
        task=task.name,
        op_class=task.op_class,
        gpu=plan.gpu,
        device=plan.device,
        device_why=plan.device_why,
        run=plan.run_directory,
        shapes={t.name: list(t.shape) for t in task.full.tensors},
        plan=plan.model_dump(include={"iterations", "rollouts", "steps", "seed"}),
        models={role: plan.models.model_of(role) for role in ROLES},
    )
    return {
        "plan": plan,
        "summary": summary,
        "iteration": 0,
        # A reused thread still holds the last run's trajectories: replace, do not merge.
        "trajectories": Overwrite({}),
    }


def resolve_plan(request: OptimizeRequest) -> RunPlan:
    """Fill in defaults and check device, GPU, model and knowledge base before any work.

    Raises:
        UserError: one of them is unknown or unusable, or a model's key is missing.
    """
    roles = request.models.roles | parse_models(request.model)
    models = request.models.model_copy(update={"roles": roles})
    check_models(models)
    require_prices(models, request.budgets)
    request = with_absolute_paths(request)
    if request.start and not Path(request.start).is_file():
        raise UserError(f"no such file: --start {request.start}; give the path of a CUDA source")
    device, why = device_choice(request.device, request.gpu)
    identity = open_device(device, request.gpu).identity
    task_path = Path(request.task)
    directory = Path(request.run) if request.run else new_run_directory(task_path.stem).resolve()
    knowledge = request.knowledge
    knowledge_directory = Path(knowledge or default_knowledge_directory()).resolve()
    with open_knowledge(str(knowledge_directory)):
        pass  # A foreign or newer directory is refused before an evaluation is paid for.
    return RunPlan(
        # Directories of one name in two places are two runs to the knowledge base they share.
        run_id=f"{directory.name}-{uuid.uuid4().hex[:8]}",
        task_path=str(task_path),
        start_path=request.start,
        dimensions=request.dimensions,
        run_directory=str(directory),
        knowledge_directory=str(knowledge_directory),
        device=device,
        device_why=why,
        gpu=identity.gpu,
        identity=identity,
        model=request.model,
        models=models,
        iterations=request.iterations,
        rollouts=request.rollouts,
        steps=request.steps,
        repairs=_repairs(request, models),
        seed=request.seed,
    )


def _repairs(request: OptimizeRequest, models: ModelPlan) -> int:
    """Return the repairs asked for; a built-in rewrite has but one other setting to try."""
    if request.repairs is not None:
        return request.repairs
    return 1 if models.model_of("kernel_writer") == BUILTIN else 2


def with_absolute_paths(request: OptimizeRequest) -> OptimizeRequest:
    """Return the request with every path absolute: a run may be resumed from anywhere."""
    paths = {name: getattr(request, name) for name in ("task", "start", "run", "knowledge")}
    return request.model_copy(
        update={name: str(Path(path).resolve()) for name, path in paths.items() if path}
    )


def store_task(plan: RunPlan, task: Task, budgets: Budgets) -> TaskSummary:
    """Create the run directory and store the task in it, and the caps where none are set there.

    Raises:
        UserError: the directory cannot be created or written.
    """
    directory = Path(plan.run_directory)
    try:
        directory.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise UserError(
            f"cannot create the run directory {directory}: {error.strerror}; "
            "choose another with --run"
        ) from error
    if not (directory / BUDGETS_FILE).exists():
        write_budgets(directory, budgets)
    artifact = ArtifactStore(directory / "artifacts").put_text(task.model_dump_json())
    return TaskSummary(
        name=task.name, id=task.id, artifact=artifact, op_class=task.op_class, dtype=task.dtype
    )
