"""Begin a run: resolve what is asked once, and make the directory that holds it."""

from __future__ import annotations

import uuid
from pathlib import Path

from pydantic import ValidationError

from ...harness.devices.registry import device_choice, open_device
from ...harness.errors import UserError
from ...memory.locations import default_knowledge_directory
from ...memory.run.directory import NotEmpty, RunDirectory, new_run_directory, read_plan
from ...memory.run.run_store import RunStore
from ...tools.models.budgets import BUDGETS_FILE, require_prices
from ...tools.models.chat_models import check_models, parse_models
from ...tools.models.records import BUILTIN, ModelPlan
from ...tools.workspace import open_knowledge, open_runs
from ..records import OptimizeRequest, RunContext, RunPlan


def resolve_plan(request: OptimizeRequest, context: RunContext) -> RunPlan:
    """Fill in defaults and check files, device, GPU, models and knowledge base before any work.

    Raises:
        UserError: one of them is unknown or unusable, or a model's key is missing.
    """
    roles = context.models.roles | parse_models(context.model)
    models = context.models.model_copy(update={"roles": roles})
    check_models(models)
    require_prices(models, context.budgets)
    if request.start and not Path(request.start).is_file():
        raise UserError(f"no such file: --start {request.start}; give the path of a CUDA source")
    device, why = device_choice(context.device, context.gpu)
    identity = open_device(device, context.gpu).identity
    task = Path(request.task).resolve()
    knowledge = Path(context.knowledge or default_knowledge_directory()).resolve()
    with open_knowledge(str(knowledge)):
        pass  # A foreign or newer directory is refused before anything is made.
    resolved = {
        **_named(Path(request.run) if request.run else new_run_directory(task.stem)),
        "task": str(task),
        "start": str(Path(request.start).resolve()) if request.start else None,
        "knowledge": str(knowledge),
        "device": device,
        "device_why": why,
        "gpu": identity.gpu,
        "identity": identity,
        "models": models,
        "repairs": _repairs(context, models),
    }
    return RunPlan(**(dict(request) | dict(context) | resolved))


def _repairs(context: RunContext, models: ModelPlan) -> int:
    """Return the repairs asked for; a built-in rewrite has but one other setting to try."""
    if context.repairs is not None:
        return context.repairs
    return 1 if models.model_of("kernel_writer") == BUILTIN else 2


def begin_run(plan: RunPlan, *, named: bool, until_released: bool = False) -> RunPlan:
    """Make the run's directory with the plan and the caps in it, open it, and return the plan.

    Args:
        named: whether the directory was asked for by name; else the next free name will do where
            somebody else was quicker. A graph that was killed before its first checkpoint asks
            for the same directory again, and has it.
        until_released: whether it stays open, used or not, until `open_runs().release`.

    Raises:
        UserError: the directory holds something, or cannot be created or written.
    """
    while True:
        try:
            held = RunDirectory.create(
                Path(plan.run),
                plan.model_dump(mode="json"),
                {BUDGETS_FILE: plan.budgets.model_dump_json(indent=2) + "\n"},
            )
            break
        except NotEmpty:
            if named and not until_released and (left := _left_behind(plan)):
                return left
            if named:
                raise
            plan = plan.model_copy(update=_named(new_run_directory(Path(plan.task).stem)))
    _open(held, plan, until_released=until_released, new=True)
    return plan


def _left_behind(plan: RunPlan) -> RunPlan | None:
    """Take up the directory of a graph that was killed before its first checkpoint.

    The graph asks for it again, with the same plan: nothing was done in it, and nobody holds it.
    """
    directory = Path(plan.run)
    try:
        stored = stored_plan(directory)
        held = RunDirectory.hold(directory)
    except UserError:
        return None
    with RunStore(directory / "run.sqlite") as store:
        untouched = store.is_untouched()
    if stored.model_copy(update={"run_id": plan.run_id}) != plan or not untouched:
        held.close()
        return None
    _open(held, stored, until_released=False, new=False)
    return stored


def _named(directory: Path) -> dict[str, str]:
    """Return what a plan says of its directory.

    Directories of one name in two places are two runs to the knowledge base they share.
    """
    directory = directory.resolve()
    return {"run": str(directory), "run_id": f"{directory.name}-{uuid.uuid4().hex[:8]}"}


def take_up(directory: Path) -> RunPlan:
    """Hold and open the directory of a run that was begun, until `open_runs().release`.

    Raises:
        UserError: it is no run directory, of another version, was moved, or is in use.
    """
    plan = stored_plan(directory)
    if plan.run != str(directory):
        raise UserError(
            f"the run in {directory} was started in {plan.run}; move it back to resume it"
        )
    _open(RunDirectory.hold(directory), plan, until_released=True, new=False)
    return plan


def _open(held: RunDirectory, plan: RunPlan, *, until_released: bool, new: bool) -> None:
    try:
        open_runs().keep(
            held, plan.device, plan.gpu, plan.knowledge, until_released=until_released
        )
    except BaseException:
        if new:
            held.remove()
        held.close()
        raise


def stored_plan(directory: Path) -> RunPlan:
    """Return the plan of a run directory.

    Raises:
        UserError: there is no run, or its run.json is not this program's.
    """
    plan = read_plan(directory)
    try:
        return RunPlan.model_validate(plan)
    except ValidationError as error:
        first = error.errors()[0]
        where = ".".join(["plan", *map(str, first["loc"])])
        raise UserError(
            f"{directory}/run.json is damaged: {where}: {first['msg']}; start a new run"
        ) from error
