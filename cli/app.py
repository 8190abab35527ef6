"""The command line: optimize, resume, evaluate, runs, task, doctor; others in modules beside."""

from __future__ import annotations

import asyncio
import io
import os
import sqlite3
import sys
from pathlib import Path
from typing import Annotated, Literal

from .bench import bench
from .commands import Commands
from .exporting import export
from .jobs import jobs_app
from .knowledge import knowledge_app
from .rerun import rerun

# Before langgraph is imported: only this project's records may come back from a checkpoint.
os.environ.setdefault("LANGGRAPH_STRICT_MSGPACK", "true")
os.environ.setdefault("LANGSMITH_TRACING", "false")

import typer
from pydantic import ValidationError

from ..harness.errors import UserError, unwritten
from ..harness.task.loading import begin_loading
from .flags import (
    Approve,
    Chosen,
    ConfirmSeconds,
    Counters,
    DeviceName,
    Events,
    Fresh,
    Gpu,
    Gpus,
    Gradient,
    Json,
    KnowledgeDirectory,
    MaxCalls,
    MaxEvaluations,
    MaxGpuSeconds,
    MaxMoney,
    MaxSeconds,
    MaxTokens,
    OnBudget,
    Quiet,
    Remembered,
    Sweeps,
    Until,
    checked_budgets,
    describe,
    gpu_of,
    read_settings,
    with_gpus,
)
from .following import Opening, Showing, follow_all
from .reports import add_report_commands
from .showing.output import fail, print_json, say, tell
from .showing.terminal import Terminal
from .task_flags import ReferenceSeconds, TaskFlags, TaskPath, with_task_flags

app = typer.Typer(
    cls=Commands,
    help="Agents that rewrite a CUDA kernel, measure every rewrite, and remember.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    add_completion=False,
)
app.add_typer(knowledge_app, name="kb")
task_app = typer.Typer(help="Tasks.", no_args_is_help=True)
app.add_typer(task_app, name="task")
app.add_typer(jobs_app, name="jobs")
app.command()(bench)
app.command()(rerun)
app.command()(export)
add_report_commands(app)


@app.command()
@with_task_flags
def optimize(
    task: TaskPath = None,
    start: Annotated[
        Path | None,
        typer.Option(help="First kernel, or a KernelBench solution; else one is written."),
    ] = None,
    gpu: Gpu = None,
    gpus: Gpus = None,
    device: DeviceName = None,
    model: Annotated[
        str | None,
        typer.Option(help="builtin, openai:NAME, or ROLE=MODEL,ROLE=MODEL (docs/models.md)."),
    ] = None,
    base_url: Annotated[str | None, typer.Option(help="OpenAI-compatible endpoint.")] = None,
    structured_output: Annotated[
        str | None, typer.Option(help="json_schema, function_calling, or json_mode.")
    ] = None,
    temperature: Annotated[float | None, typer.Option(help="Of the models.")] = None,
    on_model_failure: Annotated[
        str | None,
        typer.Option(help="Where a model cannot be reached: pause, or builtin (stands in)."),
    ] = None,
    max_tokens: MaxTokens = None,
    max_money: MaxMoney = None,
    max_calls: MaxCalls = None,
    max_gpu_seconds: MaxGpuSeconds = None,
    max_seconds: MaxSeconds = None,
    max_evaluations: MaxEvaluations = None,
    on_budget: OnBudget = None,
    policy: Annotated[
        str | None, typer.Option(help="How the search goes (docs/policies.md).")
    ] = None,
    rounds: Annotated[
        int | None, typer.Option(help="Candidates of a policy that writes one a round.")
    ] = None,
    iterations: Annotated[int | None, typer.Option(help="Policy updates.")] = None,
    rollouts: Annotated[int | None, typer.Option(help="Trajectories an iteration.")] = None,
    steps: Annotated[int | None, typer.Option(help="Techniques a trajectory.")] = None,
    repairs: Annotated[
        int | None,
        typer.Option(help="Times a failed candidate is mended; by a model 2, else 1."),
    ] = None,
    rewrites_first: Annotated[
        bool | None,
        typer.Option(
            "--rewrites-first/--models-first",
            help="Try a technique's built-in rewrite before a model writes it.",
        ),
    ] = None,
    writer: Annotated[
        Literal["replies", "tools"] | None,
        typer.Option(help="A model writes a file a reply, or has tools to try it before."),
    ] = None,
    agents: Annotated[
        Literal["compact", "full"] | None,
        typer.Option(help="Models are asked where the rule leaves a state open, or at every step."),
    ] = None,
    until: Until = None,
    confirm_seconds: ConfirmSeconds = None,
    shapes: Annotated[
        int | None, typer.Option(help="Other shapes to look at the winner at; 0: none.")
    ] = None,
    seed: Annotated[int | None, typer.Option(help="Same seed, same run.")] = None,
    approve: Approve = None,
    memory: Remembered = None,
    choice: Chosen = None,
    counters: Counters = None,
    gradient: Gradient = None,
    sweeps: Sweeps = None,
    fresh: Fresh = None,
    run: Annotated[Path | None, typer.Option("--run", help="Run directory.")] = None,
    kb: KnowledgeDirectory = None,
    *,
    flags: TaskFlags,
    quiet: Quiet = False,
    events: Events = None,
    as_json: Json = False,
) -> None:
    """Make the first CUDA kernel for a PyTorch reference, then make it faster.

    Several tasks are done one after the other, each in a run directory of its own; one that
    fails keeps no other back (exit code 2 at the end).
    """
    tasks = flags.tasks(task)
    if len(tasks) > 1 and (run or start):
        raise UserError(f"--run and --start are one task's, and {len(tasks)} are named")
    begin_loading(tasks[0], flags.dimensions, flags.reading)
    from ..graph.session import Session
    from ..nodes.common.policies import by_rounds, require_counted
    from ..nodes.common.stopping.approval import parse_approvals
    from ..nodes.records.plan import OptimizeRequest, RunContext
    from ..nodes.run.beginning.begin import resolve_plan

    settings = read_settings(
        model=model,
        base_url=base_url,
        structured_output=structured_output,
        temperature=temperature,
        rewrites_first=rewrites_first,
        on_model_failure=on_model_failure,
        max_tokens=max_tokens,
        max_money=max_money,
        max_calls=max_calls,
        max_gpu_seconds=max_gpu_seconds,
        max_seconds=max_seconds,
        max_evaluations=max_evaluations,
        on_budget=on_budget,
        confirm_seconds=confirm_seconds,
    )
    try:
        requests = [
            OptimizeRequest(
                task=str(path),
                start=str(start) if start else None,
                run=str(run) if run else None,
                dimensions=flags.dimensions,
                reading=flags.reading,
            )
            for path in tasks
        ]
        context = RunContext(
            gpu=gpu or settings.gpu,
            device=with_gpus(device or settings.device, gpus),
            model=settings.model,
            models=settings.models,
            budgets=settings.budgets,
            on_budget=settings.on_budget,
            policy=policy or settings.policy,
            rounds=settings.rounds if rounds is None else rounds,
            iterations=settings.iterations if iterations is None else iterations,
            rollouts=settings.rollouts if rollouts is None else rollouts,
            steps=settings.steps if steps is None else steps,
            repairs=settings.repairs if repairs is None else repairs,
            writer=writer or settings.writer,
            agents=agents or settings.agents,
            until=until,
            confirm_seconds=settings.confirm_seconds,
            reference_seconds=flags.reference_seconds,
            shapes=settings.shapes if shapes is None else shapes,
            seed=settings.seed if seed is None else seed,
            knowledge=str(kb) if kb else None,
            approve=parse_approvals(approve or ""),
            memory=memory or "live",
            choice=choice or "sampled",
            counters=counters is not False,
            gradient=gradient is not False,
            sweeps=sweeps is not False,
            fresh=settings.fresh if fresh is None else fresh,
        )
    except ValidationError as error:
        raise UserError(describe(error)) from error
    loops = {"iterations": iterations, "rollouts": rollouts, "steps": steps, "rounds": rounds}
    require_counted(context.policy, [name for name, length in loops.items() if length is not None])
    if rewrites_first and by_rounds(context.policy):
        raise UserError(
            f"--rewrites-first: the policy {context.policy} lowers no technique; leave it out"
        )
    showing = Showing(as_json, quiet, events)
    if len(requests) > 1:
        resolve_plan(requests[0], context)  # What is wrong with the context is told once.

    def opening(request: OptimizeRequest) -> Opening:
        return Opening(Path(request.task), lambda: Session.create(request, context))

    follow_all([opening(request) for request in requests], showing)


@app.command()
def resume(
    runs: Annotated[list[Path], typer.Argument(help="Run directories.", metavar="RUN...")],
    results: Annotated[
        Path | None, typer.Option(help="File of `jobs run`: take the runs' results from it first.")
    ] = None,
    answer: Annotated[
        list[str] | None,
        typer.Option(help="To what the run asks: accept, reject:REASON or edit:JSON, in order."),
    ] = None,
    approve: Approve = None,
    kb: Annotated[
        Path | None, typer.Option("--kb", help="Where the knowledge base lies, if it was moved.")
    ] = None,
    reference_seconds: ReferenceSeconds = None,
    max_tokens: MaxTokens = None,
    max_money: MaxMoney = None,
    max_calls: MaxCalls = None,
    max_gpu_seconds: MaxGpuSeconds = None,
    max_seconds: MaxSeconds = None,
    max_evaluations: MaxEvaluations = None,
    quiet: Quiet = False,
    events: Events = None,
    as_json: Json = False,
) -> None:
    """Go on with runs that were stopped, killed or wait, from their checkpoints."""
    from ..graph.session import Session
    from ..harness.devices.job_records import read_results
    from ..memory.run.directory import change_reference_seconds, held
    from ..memory.run.exchange import take_results
    from ..nodes.common.stopping.approval import change_approvals, parse_approvals
    from ..tools.models.budgets import change_budgets

    raised = checked_budgets(
        tokens=max_tokens,
        money=max_money,
        calls=max_calls,
        gpu_seconds=max_gpu_seconds,
        wall_seconds=max_seconds,
        evaluations=max_evaluations,
    )
    approvals = None if approve is None else parse_approvals(approve)
    if answer and len(set(runs)) > 1:
        raise UserError("--answer answers one run: name it alone")
    directories = list(dict.fromkeys(path.resolve() for path in runs))
    if results:
        with held(directories) as free:
            for line in take_results(free, read_results(results), results):
                say(line, aside=as_json or bool(events))

    def opening(run: Path) -> Opening:
        def changed() -> Session:
            session = Session.open(run, kb)
            try:
                change_budgets(run, raised)
                if approvals is not None:
                    change_approvals(run, approvals)
                if reference_seconds is not None:
                    change_reference_seconds(run, reference_seconds)
            except BaseException:
                session.close()
                raise
            return session

        return Opening(run, changed)

    showing = Showing(as_json, quiet, events)
    follow_all([opening(run) for run in directories], showing, answer or ())


@app.command()
@with_task_flags
def evaluate(
    kernel: Annotated[Path, typer.Argument(help="CUDA source, or file with ModelNew.")],
    task: Annotated[
        Path | None, typer.Option("--task", help="PyTorch reference it must compute.")
    ] = None,
    gpu: Gpu = None,
    gpus: Gpus = None,
    device: DeviceName = None,
    *,
    flags: TaskFlags,
    confirm: Annotated[
        bool,
        typer.Option("--confirm", help="Verify and time it again, as a run does with its winner."),
    ] = False,
    secret_seed: Annotated[
        int | None,
        typer.Option(min=1, help="Confirm on the cases of an earlier confirmation: its fact."),
    ] = None,
    confirm_seconds: ConfirmSeconds = None,
    as_json: Json = False,
) -> None:
    """Compile, verify, profile and time one kernel."""
    reference = flags.one_task(task)
    begin_loading(reference, flags.dimensions, flags.reading)
    from ..harness.process.interruption import Stopped, run_until_stopped
    from ..tools.evaluation.file import evaluate_file
    from .showing.tables import show_evaluation

    settings = read_settings(confirm_seconds=confirm_seconds)
    try:
        evaluation = run_until_stopped(
            evaluate_file(
                kernel,
                reference,
                with_gpus(device or settings.device, gpus),
                gpu or settings.gpu,
                flags.dimensions,
                confirm,
                secret_seed,
                flags.reading,
                tell,
                settings.confirm_seconds,
                flags.reference_seconds,
            )
        )
    except Stopped as stopped:
        say(f"stopped by {stopped}; nothing is kept", aside=True)
        raise typer.Exit(stopped.exit_code) from None
    if as_json:
        print_json(evaluation.model_dump(mode="json"))
    else:
        show_evaluation(Terminal(), evaluation)
    if evaluation.outcome != "passed":
        raise typer.Exit(1)


@app.command()
def runs(as_json: Json = False) -> None:
    """List the runs in the runs directory."""
    from ..nodes.run.reading.overview import list_runs
    from .showing.tables import show_runs

    found = list_runs(read_settings().runs_directory)
    if as_json:
        print_json({"runs": found})
    else:
        show_runs(Terminal(), found)


@task_app.command("show")
@with_task_flags
def task_show(
    task: TaskPath = None,
    gpu: Gpu = None,
    *,
    flags: TaskFlags,
) -> None:
    """Print a task's tensors, its speed of light, the `launch` signature and task.cuh."""
    from ..harness.task.contract import header, signature
    from ..harness.task.loading import load_task, small_variant_in_words
    from .showing.tables import bound_lines

    chosen_gpu = gpu_of(gpu or read_settings().gpu)
    how = flags.dimensions, flags.reading, tell, flags.reference_seconds
    loaded = asyncio.run(load_task(flags.one_task(task), *how))
    say(f"{loaded.name}: {loaded.op_class}, {loaded.dtype}")
    say(small_variant_in_words(loaded))
    for note in loaded.notes:
        say(f"note: {note}")
    say("\n".join(bound_lines(loaded, chosen_gpu)))
    say(f"\n{signature(loaded)}\n")
    for variant in (loaded.full, loaded.verify):
        say(f"// {variant.name}\n{header(variant)}")


@task_app.command("check")
@with_task_flags
def task_check(
    task: TaskPath = None,
    gpu: Gpu = None,
    *,
    flags: TaskFlags,
) -> None:
    """Load tasks: at which sizes each is verified and its bound, or why it cannot be loaded."""
    from ..harness.task.cases import prepare_cases_now, read_degenerate
    from ..harness.task.loading import load_task_now, small_variant_in_words
    from .showing.tables import bound_lines

    tasks = flags.tasks(task)
    how = flags.dimensions, flags.reading, tell, flags.reference_seconds
    failed = 0
    chosen_gpu = gpu_of(gpu or read_settings().gpu)
    for path in tasks:
        try:
            loaded = load_task_now(path, *how)
            degenerate = read_degenerate(prepare_cases_now(loaded))
        except UserError as error:
            failed += 1
            say(f"{path.stem}: refused: {str(error).removeprefix(f'{path}: ')}")
            continue
        say(f"{path.stem}: {loaded.op_class}, {small_variant_in_words(loaded)}")
        say(f"  {bound_lines(loaded, chosen_gpu)[0]}")
        for note in (*loaded.notes, *([f"degenerate: {degenerate}"] if degenerate else [])):
            say(f"  note: {note}")
    if len(tasks) > 1:
        say(f"{len(tasks) - failed} of {len(tasks)} tasks load")
    if failed:
        raise typer.Exit(2)


@app.command()
def doctor(as_json: Json = False) -> None:
    """Say what this machine can do, and how to mend what it cannot."""
    from ..harness.doctor import examine
    from ..tools.models.chat_models import parse_models
    from ..tools.models.check import check_endpoint
    from .showing.tables import show_checks

    settings = read_settings()
    models = settings.models.model_copy(update={"roles": parse_models(settings.model)})
    checks = [*asyncio.run(examine(settings.gpu)), asyncio.run(check_endpoint(models))]
    if as_json:
        print_json({"checks": [check.model_dump() for check in checks]})
    else:
        show_checks(Terminal(), checks)
    if any(check.required and not check.passed for check in checks):
        raise typer.Exit(2)


def main() -> None:
    """Entry point: a UserError is one line and exit code 2, never a traceback."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            # A name, a lesson or a table holds what this terminal may have no letters for.
            stream.reconfigure(errors="backslashreplace")
    try:
        app()
    except UserError as error:
        fail(str(error))
    except sqlite3.DatabaseError as error:
        fail(f"a database cannot be used: {error}; free some space or check the directory's rights")
    except OSError as error:
        if error.errno in (28, 30, 122):  # no space, read-only, quota
            fail(f"{unwritten(error.filename or 'a file', error)}, then resume")
        if error.filename is not None and error.errno in (1, 2, 13, 20, 21, 36, 40):
            # Not permitted, not there, no folder or a folder, too long a name, a loop of links.
            fail(f"cannot use {error.filename}: {error.strerror}")
        raise
