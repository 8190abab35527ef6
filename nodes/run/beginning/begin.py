"""Begin a run: resolve what is asked once, and make the directory that holds it."""

from __future__ import annotations

import difflib
import os
import uuid
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, TypeVar

from pydantic import ValidationError

from ....harness.devices.registry import device_choice, open_device
from ....harness.errors import UserError, told_of
from ....harness.files import read_regular
from ....harness.records.identity import sha256_of
from ....harness.records.readings import Reading
from ....harness.task.loading import LARGEST_REFERENCE_BYTES, reference_seconds
from ....memory.knowledge.ablation import open_under
from ....memory.knowledge.directory import prepare
from ....memory.locations import default_knowledge_directory
from ....memory.run.directory import NotEmpty, RunDirectory, new_run_directory, read_plan
from ....memory.run.run_store import RunStore
from ....memory.run.shared_stages import fresh_by_default
from ....tools.models.budgets import BUDGETS_FILE, require_prices
from ....tools.models.chat_models import check_models, parse_models
from ....tools.models.records import BUILTIN, ModelPlan, Role
from ....tools.techniques.catalogue import knowledge_seed
from ....tools.workspace import open_runs
from ...common.policies import RULES, under_policy
from ...records.plan import OptimizeRequest, RunContext, RunPlan

TASK_FILE, START_FILE = "task.py", "start.cu"
"""Where in a run's directory the texts lie that were given in place of paths."""

Asked = TypeVar("Asked", OptimizeRequest, RunContext, Reading)


def checked(kind: type[Asked], asked: Mapping[str, Any]) -> Asked:
    """Return a record of what was asked.

    Raises:
        UserError: a value is missing, unknown or out of range; the line names it.
    """
    try:
        return kind.model_validate(dict(asked))
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        name = ".".join(str(part) for part in first["loc"])
        if first["type"] == "missing":
            what = kind.sentences().get(name)
            raise UserError(f"{name} is missing: give it, {what}") from None
        unknown = first["type"] == "extra_forbidden"
        close = difflib.get_close_matches(name, kind.model_fields, 1) if unknown else ()
        meant = f"; did you mean {close[0]}?" if close else ""
        raise UserError(told_of(error) + meant) from error


def given_texts(request: OptimizeRequest) -> dict[str, str]:
    """Return the texts that a request gives in place of paths, by their file in the run."""
    given = {TASK_FILE: request.task, START_FILE: request.start or ""}
    return {name: text for name, text in given.items() if "\n" in text}


def resolve_plan(request: OptimizeRequest, context: RunContext) -> RunPlan:
    """Fill in defaults and check files, device, GPU, models and knowledge base before any work.

    Raises:
        UserError: one of them is unknown or unusable, or a model's key is missing.
    """
    context = under_policy(context)
    models = resolve_models(context)
    given = given_texts(request)
    if request.start and START_FILE not in given and not Path(request.start).is_file():
        raise UserError(f"no such file: --start {request.start}; give a CUDA source or a solution")
    device, why = device_choice(context.device, context.gpu)
    identity = open_device(device, context.gpu).identity
    task = Path(TASK_FILE if TASK_FILE in given else request.task)
    directory = Path(request.run) if request.run else new_run_directory(task.stem)
    directory = directory.resolve()
    start = Path(START_FILE if START_FILE in given else request.start or "")
    knowledge = Path(context.knowledge or default_knowledge_directory()).resolve()
    prepare(knowledge, create=True)
    with open_under(context.ablation, knowledge, knowledge_seed()):
        pass  # A foreign or newer directory is refused before anything is made.
    resolved = {
        **_named(directory),
        "task": str(directory / task if TASK_FILE in given else task.resolve()),
        "start": str(directory / start if START_FILE in given else start.resolve())
        if request.start else None,
        "knowledge": str(knowledge),
        "device": device,
        "device_why": why,
        "gpu": identity.gpu,
        "identity": identity,
        "task_sha256": _sum_of(given.get(TASK_FILE, task)),
        "models": models,
        "repairs": _repairs(context, models),
        "fresh": fresh_by_default() if context.fresh is None else context.fresh,
        "reference_seconds": context.reference_seconds or reference_seconds(),
    }
    return RunPlan(**(dict(request) | dict(context) | resolved))


def resolve_models(context: RunContext) -> ModelPlan:
    """Return who answers in which role of the context's policy, and how they are asked.

    Raises:
        UserError: a role or a model is unknown or unusable, or its key is missing.
    """
    models = context.models.model_copy(update={"roles": _roles(context)})
    check_asked(context.model_copy(update={"models": models}))
    return models


def _roles(context: RunContext) -> dict[Role, str]:
    """Return who answers in the roles that the policy has, where something comes of an answer.

    Raises:
        UserError: a role was given to a model that the policy has not.
    """
    named = parse_models(context.model)
    has = RULES[context.policy].roles
    foreign = [role for role in named if role not in has]
    if foreign and "=" in context.model and not set(has) <= set(named):
        raise UserError(
            f"--model {context.model}: the policy {context.policy} has no {foreign[0]}; it has "
            f"{', '.join(has)}"
        )
    asked = context.models.roles | named | dict.fromkeys(_not_asked(context), BUILTIN)
    return {role: name for role, name in asked.items() if role in has}


def _not_asked(context: RunContext) -> tuple[Role, ...]:
    """Return the roles in which no model is asked, as nothing would come of its answer."""
    gradient: tuple[Role, ...] = ("policy_evaluation", "gap_analysis", "parameter_update")
    by_rule: tuple[Role, ...] = ("optimization_selector",)
    return (() if context.learns else gradient) + (
        () if context.choice == "sampled" else by_rule
    )


def check_asked(context: RunContext) -> None:
    """Check that those who are to answer can: their names, keys, prices, what they are asked for.

    Raises:
        UserError: one cannot.
    """
    check_models(context.models)
    require_prices(context.models, context.budgets)
    if context.choice == "greedy" and context.memory == "off":
        raise UserError(
            "--choice greedy --memory off: without memory no technique is expected to gain more "
            "than another; leave one of the two out"
        )
    if context.writer == "tools" and context.models.model_of("kernel_writer") == BUILTIN:
        raise UserError(
            "--writer tools: the built-in kernel writer calls no tools; give a model the role: "
            "--model kernel_writer=openai:NAME"
        )


def _sum_of(reference: str | Path) -> str:
    """Return the sha256 of a reference's text, given or in a file; empty where there is none."""
    if isinstance(reference, str):
        return sha256_of(reference)
    try:
        data = read_regular(reference, LARGEST_REFERENCE_BYTES, "a PyTorch reference")
    except (OSError, UserError):
        return ""  # Who loads it says what is wrong.
    return sha256_of(data)


def changed_since(plan: RunPlan) -> str:
    """Return what of a run's files is no longer what the run read, in a sentence; or nothing."""
    now = _sum_of(Path(plan.task))
    if not plan.task_sha256 or now in ("", plan.task_sha256):
        return ""
    return f"{plan.task} has changed since the run began; the run goes on with what it read then"


def _repairs(context: RunContext, models: ModelPlan) -> int:
    """Return the repairs asked for; a built-in rewrite has but one other setting to try."""
    if context.repairs is not None:
        return context.repairs
    return 1 if models.model_of("kernel_writer") == BUILTIN else 2


def begin_run(
    plan: RunPlan, given: Mapping[str, str], *, named: bool, until_released: bool = False
) -> RunPlan:
    """Make the run's directory with the plan and the caps in it, open it, and return the plan.

    Args:
        plan: of the new run.
        given: texts in place of files, as `given_texts` returns them.
        named: whether the directory was asked for by name; else the next free name will do where
            somebody else was quicker. A graph that was killed before its first checkpoint asks
            for the same directory again, and has it.
        until_released: whether it stays open, used or not, until `open_runs().release`.

    Raises:
        UserError: the directory holds something, or cannot be created or written.
    """
    while True:
        try:
            texts = _texts(plan) | dict(given)
            held = RunDirectory.create(Path(plan.run), _json(plan), texts)
            break
        except NotEmpty:
            if named and not until_released and (left := _left_behind(plan)):
                return left
            if named:
                raise
            plan = moved_to(new_run_directory(Path(plan.task).stem), plan)
    _open(held, plan, until_released=until_released, new=True)
    return plan


def _json(plan: RunPlan) -> dict[str, Any]:
    return plan.model_dump(mode="json")


def _texts(plan: RunPlan) -> dict[str, str]:
    """Return what a run's directory holds beside the plan from its first moment on, by file."""
    return {BUDGETS_FILE: plan.budgets.model_dump_json(indent=2) + "\n"}


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


def moved_to(directory: Path, plan: RunPlan) -> RunPlan:
    """Return the plan of another run that does the same in another directory."""
    return _lying_in(directory.resolve(), plan).model_copy(update=_named(directory))


def _lying_in(directory: Path, plan: RunPlan) -> RunPlan:
    """Return a plan whose run, and what lies in its directory, lies in another."""
    update: dict[str, str] = {"run": str(directory)}
    for name in ("task", "start", "knowledge"):
        path = getattr(plan, name)
        if path and Path(path).is_relative_to(plan.run):
            update[name] = str(directory / Path(path).relative_to(plan.run))
    if plan.shared and not (directory / plan.shared).is_dir():
        # A run of a bench that was moved alone: what the bench found lies where it was, if at all.
        before = (Path(plan.run) / plan.shared).resolve()
        update["shared"] = os.path.relpath(before, directory) if before.is_dir() else ""
    return plan.model_copy(update=update)


def _named(directory: Path) -> dict[str, str]:
    """Return what a plan says of its directory.

    Directories of one name in two places are two runs to the knowledge base they share.
    """
    directory = directory.resolve()
    return {"run": str(directory), "run_id": f"{directory.name}-{uuid.uuid4().hex[:8]}"}


def fork_directory(plan: RunPlan, fill: Callable[[Path], None]) -> RunPlan:
    """Make, hold and open the directory of a fork beside its run's, and return its plan.

    Args:
        plan: of the run that is forked, as edited.
        fill: puts what both have in common into the folder that becomes the directory.

    Raises:
        UserError: it cannot be created or written.
    """
    origin = Path(plan.run)
    while True:
        directory = new_run_directory(f"{origin.name}-fork", origin.parent)
        fork = moved_to(directory, plan).model_copy(update={"forked_from": str(origin)})
        try:
            held = RunDirectory.create(directory, _json(fork), _texts(fork), fill)
            break
        except NotEmpty:
            continue  # Somebody was quicker.
    _open(held, fork, until_released=False, new=True)
    return fork


def take_up(directory: Path, knowledge: Path | None = None) -> RunPlan:
    """Hold and open the directory of a run that was begun, until `open_runs().release`.

    A directory that was moved is the same run; a copy of one that is still there is another. Either
    goes on by its journal, for its checkpoints name the old place.

    Args:
        directory: of the run.
        knowledge: where its knowledge base lies, if no longer where it was.

    Raises:
        UserError: it is no run directory, of another version, was moved and cannot go on, or is in
            use; or there is no such knowledge base.
    """
    plan = stored_plan(directory)
    held = RunDirectory.hold(directory)
    base = str(knowledge.resolve()) if knowledge else plan.knowledge
    if plan.run != str(directory) or base != plan.knowledge:
        try:
            if knowledge:
                prepare(knowledge, create=False)
            plan = _moved_here(held, plan, base)
        except BaseException:
            held.close()
            raise
    _open(held, plan, until_released=True, new=False)
    return plan


def _moved_here(held: RunDirectory, plan: RunPlan, knowledge: str) -> RunPlan:
    with RunStore(held.path / "run.sqlite") as store:
        begun, untouched = bool(store.journal.entries()), store.is_untouched()
    origin = Path(plan.run)
    if not (begun or untouched):
        moved = f"was started in {origin}" if origin != held.path else f"uses {plan.knowledge}"
        raise UserError(
            f"the run in {held.path} {moved} and is of an earlier version; move it back to resume "
            "it"
        )
    try:
        copied = origin != held.path and stored_plan(origin).run_id == plan.run_id
    except UserError:
        copied = False
    for tail in ("", "-wal", "-shm", "-journal"):
        (held.path / f"checkpoints.sqlite{tail}").unlink(missing_ok=True)
    here = _lying_in(held.path, plan)
    if knowledge != plan.knowledge:
        here = here.model_copy(update={"knowledge": knowledge})
    if copied:
        here = here.model_copy(
            update={"run_id": _named(held.path)["run_id"], "forked_from": plan.run}
        )
    # The last thing: until then the directory is one that was moved.
    held.write_plan(_json(here))
    return here


def _open(held: RunDirectory, plan: RunPlan, *, until_released: bool, new: bool) -> None:
    try:
        open_runs().keep(
            held, plan.device, plan.gpu, plan.knowledge, plan.ablation,
            until_released=until_released,
        )  # fmt: skip
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
