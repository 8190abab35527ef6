"""Load the task: read the reference, resolve the plan, lay out the run directory.

Reads the request, and the caller's context from LangGraph's runtime; writes plan, summary and the
counters (reset, since a thread may be reused).
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from pathlib import Path
from typing import Any, TypedDict

from langgraph.runtime import Runtime
from langgraph.types import Overwrite
from pydantic_core import to_jsonable_python

from ....harness.bound.speed_of_light import speed_of_light
from ....harness.errors import UserError
from ....harness.gpus import known_gpu
from ....harness.process.scratch import scratch_folder
from ....harness.records.tasks import Task
from ....harness.task.loading import load_task as read_task
from ....harness.task.loading import small_variant_in_words
from ....memory.knowledge.retrieval.chroma_index import import_chroma
from ....memory.run.directory import reference_seconds_of
from ....memory.run.journal import Entry
from ....tools.models.endpoint import require_endpoint
from ....tools.progress import progress_writer, report_progress
from ....tools.workspace import open_runs
from ...common.policies import RULES, by_rounds, in_graph
from ...common.workspaces import workspace_of
from ...records.plan import OptimizeRequest, Policy, RunContext, RunPlan, Settings
from ...records.task import TaskSummary
from .begin import TASK_FILE, begin_run, checked, given_texts, resolve_plan, stored_plan
from .lineage import note


class Asks(TypedDict, total=False):
    """What this node reads: nothing of it is checked before."""

    task: str
    start: str | None
    run: str | None
    dimensions: dict[str, int]
    reading: dict[str, Any]


def load_task_of(graph: Policy) -> Callable[..., Awaitable[dict[str, Any]]]:
    """Return the node that begins the runs of a policy's graph."""

    async def load_task(state: Asks, runtime: Runtime[Settings]) -> dict[str, Any]:
        return await begun_in(graph, state, runtime.context)

    return load_task


async def begun_in(graph: Policy, state: Asks, given_context: object) -> dict[str, Any]:
    """Resolve the request under its context and load the reference.

    Raises:
        UserError: the task, device, GPU, model, knowledge base or run directory cannot be used, or
            the models' endpoint cannot be asked, or the policy is another graph.
    """
    request = checked(OptimizeRequest, {k: v for k, v in state.items() if v is not None})
    # Whoever began the run already (the command line does) holds its directory with the plan.
    begun = request.run is not None and open_runs().begun(Path(request.run))
    given = {} if begun else given_texts(request)
    if begun:
        plan = await asyncio.to_thread(stored_plan, Path(str(request.run)))
    else:
        context = in_graph(_context(given_context), graph)
        plan = await asyncio.to_thread(resolve_plan, request, context)
    # PyTorch describes the task in a process of its own: time to see whether the models can be
    # asked, and to import what is needed afterwards.
    task, told, _ = await asyncio.gather(
        _described(plan, given),
        require_endpoint(plan.models, Path(plan.run)),
        asyncio.to_thread(import_chroma),
    )
    if not begun:
        named = request.run is not None
        plan = await asyncio.to_thread(begin_run, plan, given, named=named)
    summary = await asyncio.to_thread(_store_task, plan, task)
    if plan.until is not None and summary.bound_us is None:
        raise UserError(
            f"--until {plan.until:g}: the peaks of {plan.gpu} are not known, and without them "
            "nobody knows what its speed of light is; leave --until out"
        )
    report_progress(
        "task",
        task=task.name,
        op_class=task.op_class,
        gpu=plan.gpu,
        device=plan.device,
        device_why=plan.device_why,
        run=plan.run,
        shapes={t.name: list(t.shape) for t in task.full.tensors},
        verified=small_variant_in_words(task),
        plan=plan.model_dump(
            include={"policy", "iterations", "rollouts", "steps", "rounds", "seed"}
        ),
        by_rounds=by_rounds(plan.policy),
        models={role: plan.models.model_of(role) for role in RULES[plan.policy].roles},
    )
    for text in (*plan.without, *task.notes, *([told] if told else [])):
        report_progress("note", text=text)
    written = {"plan": plan, "summary": summary, "iteration": 0}
    entry = Entry(
        place="load_task", node="load_task", read_sha256="", written=to_jsonable_python(written)
    )
    await asyncio.to_thread(note, plan, entry)
    return {
        **written,
        # A reused thread still holds what the last run was asked and found: replace all of it.
        "start": None,
        "run": None,
        "dimensions": {},
        "reading": {},
        "trajectories": Overwrite({}),
        "soft_reviews": Overwrite({}),
    }


def _context(given: object) -> RunContext:
    """Return the caller's settings; a parent's own context is no affair of this graph."""
    if isinstance(given, Settings):
        return checked(RunContext, given.model_extra or {})
    return given if isinstance(given, RunContext) else RunContext()


async def _described(plan: RunPlan, given: Mapping[str, str]) -> Task:
    """Load the reference; where its text was given, from a file that is there meanwhile."""
    write = progress_writer()

    def tell(text: str) -> None:
        write({"event": "note", "text": text})

    how = plan.dimensions, plan.reading, tell
    seconds = await asyncio.to_thread(reference_seconds_of, Path(plan.run))
    seconds = seconds or plan.reference_seconds
    if TASK_FILE not in given:
        return await read_task(Path(plan.task), *how, seconds)
    held = scratch_folder("task")
    folder = await asyncio.to_thread(held.__enter__)
    try:
        await asyncio.to_thread((folder / TASK_FILE).write_text, given[TASK_FILE])
        return await read_task(folder / TASK_FILE, *how, seconds)
    except UserError as error:
        raise UserError(str(error).replace(f"{folder}/", "")) from error
    finally:
        await asyncio.to_thread(held.__exit__, None, None, None)


def _store_task(plan: RunPlan, task: Task) -> TaskSummary:
    with workspace_of(plan) as workspace:
        artifact = workspace.artifacts.put_text(task.model_dump_json())
    gpu = known_gpu(plan.gpu)
    return TaskSummary(
        name=task.name,
        id=task.id,
        artifact=artifact,
        op_class=task.op_class,
        dtype=task.dtype,
        bound_us=speed_of_light(task, gpu).microseconds if gpu else None,
    )
