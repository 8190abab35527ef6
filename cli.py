"""The command line: optimize, resume, evaluate, jobs, runs, report, kb, task and doctor."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sqlite3
import sys
from pathlib import Path
from typing import Annotated, Any, Literal, NamedTuple, NoReturn

# Before langgraph is imported: only this project's records may come back from a checkpoint.
os.environ.setdefault("LANGGRAPH_STRICT_MSGPACK", "true")
os.environ.setdefault("LANGSMITH_TRACING", "false")

import typer
from pydantic import ValidationError
from pydantic_settings import SettingsError
from rich.console import Console

from .harness.errors import UserError
from .settings import Settings

app = typer.Typer(
    help="Agents that rewrite a CUDA kernel, measure every rewrite, and remember.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    add_completion=False,
)
knowledge_app = typer.Typer(help="The knowledge base.", no_args_is_help=True)
app.add_typer(knowledge_app, name="kb")
task_app = typer.Typer(help="Tasks.", no_args_is_help=True)
app.add_typer(task_app, name="task")
jobs_app = typer.Typer(help="Evaluation on another host (device deferred).", no_args_is_help=True)
app.add_typer(jobs_app, name="jobs")

Json = Annotated[bool, typer.Option("--json", help="Print one JSON object on standard output.")]
TaskPath = Annotated[Path, typer.Argument(help="PyTorch reference in KernelBench form.")]
Gpu = Annotated[str | None, typer.Option(help="GPU to optimise for.")]
DeviceName = Annotated[
    str | None, typer.Option("--device", help="auto, cuda, simulated, or deferred.")
]
Gpus = Annotated[
    str | None, typer.Option("--gpus", help="Numbers of this machine's GPUs to work on: 0,1.")
]
Dimensions = Annotated[
    list[str] | None,
    typer.Option("--set", help="NAME=VALUE: a dimension at which candidates are verified."),
]
KnowledgeDirectory = Annotated[Path | None, typer.Option("--kb", help="Knowledge base directory.")]
MaxTokens = Annotated[int | None, typer.Option(help="Cap on tokens of all model calls.")]
MaxMoney = Annotated[float | None, typer.Option(help="Cap on dollars, by the table of prices.")]
MaxCalls = Annotated[int | None, typer.Option(help="Cap on model calls.")]
MaxGpuSeconds = Annotated[float | None, typer.Option(help="Cap on time on the device.")]
MaxSeconds = Annotated[float | None, typer.Option(help="Cap on working time.")]
Quiet = Annotated[bool, typer.Option("--quiet", help="Show only what it came to.")]
Events = Annotated[
    Literal["jsonl"] | None,
    typer.Option(help="jsonl: one JSON object a line on standard output as things happen."),
]


@app.command()
def optimize(
    task: TaskPath,
    start: Annotated[Path | None, typer.Option(help="First kernel; else one is written.")] = None,
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
    max_tokens: MaxTokens = None,
    max_money: MaxMoney = None,
    max_calls: MaxCalls = None,
    max_gpu_seconds: MaxGpuSeconds = None,
    max_seconds: MaxSeconds = None,
    iterations: Annotated[int | None, typer.Option(help="Policy updates.")] = None,
    rollouts: Annotated[int | None, typer.Option(help="Trajectories an iteration.")] = None,
    steps: Annotated[int | None, typer.Option(help="Techniques a trajectory.")] = None,
    seed: Annotated[int | None, typer.Option(help="Same seed, same run.")] = None,
    run: Annotated[Path | None, typer.Option("--run", help="Run directory.")] = None,
    kb: KnowledgeDirectory = None,
    dimensions: Dimensions = None,
    quiet: Quiet = False,
    events: Events = None,
    as_json: Json = False,
) -> None:
    """Make the first CUDA kernel for a PyTorch reference, then make it faster."""
    from .graph.session import Session
    from .memory.locations import new_run_directory
    from .nodes.records import OptimizeRequest

    settings = read_settings(
        model=model,
        base_url=base_url,
        structured_output=structured_output,
        temperature=temperature,
        max_tokens=max_tokens,
        max_money=max_money,
        max_calls=max_calls,
        max_gpu_seconds=max_gpu_seconds,
        max_seconds=max_seconds,
    )
    try:
        request = OptimizeRequest(
            task=str(task),
            start=str(start) if start else None,
            gpu=gpu or settings.gpu,
            device=with_gpus(device or settings.device, gpus),
            model=settings.model,
            models=settings.models,
            budgets=settings.budgets,
            iterations=settings.iterations if iterations is None else iterations,
            rollouts=settings.rollouts if rollouts is None else rollouts,
            steps=settings.steps if steps is None else steps,
            seed=settings.seed if seed is None else seed,
            knowledge=str(kb) if kb else None,
            dimensions=parse_dimensions(dimensions or []),
        )
    except ValidationError as error:
        raise UserError(describe(error)) from error
    check_request(request)
    directory = run or new_run_directory(task.stem, settings.runs_directory)
    follow(Session.create(directory, request), Showing(as_json, quiet, events))


@app.command()
def resume(
    runs: Annotated[list[Path], typer.Argument(help="Run directories.", metavar="RUN...")],
    results: Annotated[
        Path | None, typer.Option(help="File of `jobs run`: take the runs' results from it first.")
    ] = None,
    max_tokens: MaxTokens = None,
    max_money: MaxMoney = None,
    max_calls: MaxCalls = None,
    max_gpu_seconds: MaxGpuSeconds = None,
    max_seconds: MaxSeconds = None,
    quiet: Quiet = False,
    events: Events = None,
    as_json: Json = False,
) -> None:
    """Go on with runs that were stopped, killed or wait for results, from their checkpoints."""
    from .graph.exchange import take_results
    from .graph.session import Session
    from .harness.job_records import read_results
    from .tools.budgets import change_budgets

    raised = checked_budgets(
        tokens=max_tokens,
        money=max_money,
        calls=max_calls,
        gpu_seconds=max_gpu_seconds,
        wall_seconds=max_seconds,
    )
    found = read_results(results) if results else None
    sessions: list[Session] = []
    try:
        for run in dict.fromkeys(path.resolve() for path in runs):
            sessions.append(Session.open(run))
        directories = [session.directory for session in sessions]
        for line in take_results(directories, found, results) if found and results else []:
            typer.echo(line, err=as_json or bool(events))
        for run in directories:
            change_budgets(run, raised)
        follow_all(sessions, Showing(as_json, quiet, events))
    finally:
        for session in sessions:
            session.close()


@jobs_app.command("export")
def jobs_export(
    runs: Annotated[list[Path], typer.Argument(help="Run directories.", metavar="RUN...")],
    output: Annotated[Path, typer.Option("-o", "--output", help="File to write.")],
    as_json: Json = False,
) -> None:
    """Write what runs of device deferred wait for to one file, for the host that has the GPU."""
    from .graph.exchange import export_jobs
    from .graph.session import read_request
    from .harness.job_records import counted

    directories = list(dict.fromkeys(path.resolve() for path in runs))
    for run in directories:
        read_request(run)
    counts = export_jobs(directories, output)
    if as_json:
        print_json({"file": str(output), "runs": counts})
        return
    for name, count in counts.items():
        typer.echo(f"{name}: {counted(count)}")
    typer.echo(f"run them on the GPU host: kernelblaster jobs run {output} -o results.json")


@jobs_app.command("run")
def jobs_run(
    jobs: Annotated[Path, typer.Argument(help="File of `jobs export`.")],
    output: Annotated[Path, typer.Option("-o", "--output", help="File to write, or go on with.")],
    device: Annotated[
        str, typer.Option(help="Which jobs: cuda, simulated, or auto for what each asks for.")
    ] = "auto",
    gpus: Annotated[str, typer.Option(help="Which GPUs work, for example 0,1.")] = "0",
    as_json: Json = False,
) -> None:
    """Run a jobs file here: each job through every gate, each result kept as it comes."""
    from .harness.jobs import conclude, run_command

    def say(line: str) -> None:
        typer.echo(line, err=as_json)

    summary = run_command(jobs, output, device, gpus, say)
    if as_json and summary:
        print_json(summary.model_dump(mode="json"))
    code = conclude(summary, output, say)
    if code:
        raise typer.Exit(code)


@app.command()
def evaluate(
    kernel: Annotated[Path, typer.Argument(help="CUDA source that defines `launch`.")],
    task: Annotated[Path, typer.Option("--task", help="PyTorch reference it must compute.")],
    gpu: Gpu = None,
    gpus: Gpus = None,
    device: DeviceName = None,
    dimensions: Dimensions = None,
    confirm: Annotated[
        bool,
        typer.Option("--confirm", help="Verify again, in a fresh process and under a sanitizer."),
    ] = False,
    as_json: Json = False,
) -> None:
    """Compile, verify, profile and time one kernel."""
    from .console import show_evaluation
    from .graph.evaluate import evaluate_file
    from .harness.interruption import Stopped, run_until_stopped

    settings = read_settings()
    try:
        evaluation = run_until_stopped(
            evaluate_file(
                kernel,
                task,
                with_gpus(device or settings.device, gpus),
                gpu or settings.gpu,
                parse_dimensions(dimensions or []),
                confirm,
            )
        )
    except Stopped as stopped:
        typer.echo(f"stopped by {stopped}; nothing is kept", err=True)
        raise typer.Exit(stopped.exit_code) from None
    if as_json:
        print_json(evaluation.model_dump(mode="json"))
    else:
        show_evaluation(Console(), evaluation)
    if evaluation.outcome != "passed":
        raise typer.Exit(1)


@app.command()
def runs(as_json: Json = False) -> None:
    """List the runs in the runs directory."""
    from .console import show_runs
    from .graph.session import list_runs

    found = list_runs(read_settings().runs_directory)
    if as_json:
        print_json({"runs": found})
    else:
        show_runs(Console(), found)


@app.command()
def report(run: Annotated[Path, typer.Argument(help="Run directory.")]) -> None:
    """Print the report of a finished run."""
    from .graph.session import read_request

    read_request(run)
    path = run / "report.txt"
    if not path.is_file():
        raise UserError(f"{run} is not finished; go on with: kernelblaster resume {run}")
    sys.stdout.write(path.read_text())


@knowledge_app.command("show")
def kb_show(
    state: Annotated[str | None, typer.Argument(help="Only this state.")] = None,
    kb: KnowledgeDirectory = None,
    as_json: Json = False,
) -> None:
    """Show states, techniques, expected gains and lessons."""
    from .console import show_knowledge
    from .tools.workspace import open_knowledge

    with open_knowledge(str(knowledge_directory(kb)), create=False) as knowledge:
        states = knowledge.show()
    if state is not None:
        states = [entry for entry in states if state in (entry["id"], entry["name"])]
        if not states:
            raise UserError(f"the knowledge base has no state {state!r}; list them: kb show")
    if as_json:
        print_json({"states": states})
    else:
        show_knowledge(Console(), states)


@knowledge_app.command("stats")
def kb_stats(kb: KnowledgeDirectory = None, as_json: Json = False) -> None:
    """Count what the knowledge base holds."""
    from .console import show_counts
    from .tools.workspace import open_knowledge

    directory = knowledge_directory(kb)
    with open_knowledge(str(directory), create=False) as knowledge:
        counts = knowledge.stats()
    if as_json:
        print_json({"directory": str(directory), **counts})
    else:
        show_counts(Console(), str(directory), counts)


@knowledge_app.command("reindex")
def kb_reindex(kb: KnowledgeDirectory = None) -> None:
    """Rebuild the vector index from the evidence."""
    from .tools.workspace import open_knowledge

    with open_knowledge(str(knowledge_directory(kb)), create=False) as knowledge:
        typer.echo(f"{knowledge.reindex()} states indexed")


@task_app.command("show")
def task_show(task: TaskPath, dimensions: Dimensions = None) -> None:
    """Print a task's tensors, the exact `launch` signature and task.cuh."""
    from .harness.contract import header, signature
    from .harness.tasks import load_task

    loaded = asyncio.run(load_task(task, parse_dimensions(dimensions or [])))
    typer.echo(f"{loaded.name}: {loaded.op_class}, {loaded.dtype}\n")
    typer.echo(signature(loaded) + "\n")
    for variant in (loaded.full, loaded.verify):
        typer.echo(f"// {variant.name}\n{header(variant)}")


@app.command()
def doctor(as_json: Json = False) -> None:
    """Say what this machine can do, and how to mend what it cannot."""
    from .console import show_checks
    from .harness.doctor import examine
    from .tools.chat_models import parse_models
    from .tools.model_check import check_endpoint

    settings = read_settings()
    models = settings.models.model_copy(update={"roles": parse_models(settings.model)})
    checks = [*asyncio.run(examine(settings.gpu)), asyncio.run(check_endpoint(models))]
    if as_json:
        print_json({"checks": [check.model_dump() for check in checks]})
    else:
        show_checks(Console(), checks)
    if any(check.required and not check.passed for check in checks):
        raise typer.Exit(2)


class Showing(NamedTuple):
    """How a run is shown."""

    as_json: bool = False
    """The result is one JSON object on standard output; the rest goes to standard error."""
    quiet: bool = False
    events: str | None = None
    """jsonl: events and result are JSON lines on standard output."""

    @property
    def in_words(self) -> bool:
        """Whether the result is shown as text."""
        return not self.as_json and self.events is None


def follow(session: Any, showing: Showing) -> None:
    """Run a session as `showing` says, and print what it came to."""
    try:
        follow_all([session], showing)
    finally:
        session.close()


def follow_all(sessions: list[Any], showing: Showing) -> None:
    """Run sessions one after the other; a run that fails keeps no other from going on.

    Waiting for another host is an end like others (exit code 0, outcome `waiting`), and so is a
    cap that was reached (outcome `budget_reached`).
    """
    answers: list[dict[str, Any]] = []
    failed = False
    for session in sessions:
        try:
            answers.append(watch(session, showing))
        except UserError as error:
            if len(sessions) == 1:
                raise
            failed = True
            sys.stderr.write(f"kernelblaster: {session.directory}: {error}\n")
            answers.append(
                {"outcome": "failed", "reason": str(error), "run": str(session.directory)}
            )
    if showing.events:
        for answer in answers:
            print_json({"event": "end", **answer})
    elif showing.as_json:
        print_json(answers[0] if len(answers) == 1 else {"runs": answers})
    if failed:
        raise typer.Exit(2)


def watch(session: Any, showing: Showing) -> dict[str, Any]:
    """Run one session to its end, or until it waits; return what JSON says of it."""
    from .console import JsonLines, ProgressView, show_capped, show_result
    from .graph.session import Capped, Interrupted, Waiting, read_seconds

    console = Console(stderr=not showing.in_words)
    view = JsonLines() if showing.events else ProgressView(console, quiet=showing.quiet)

    asked_to_stop = False

    async def work() -> Any:
        loop = asyncio.get_running_loop()
        task = asyncio.current_task()
        assert task is not None
        for number in (signal.SIGINT, signal.SIGTERM):
            loop.add_signal_handler(number, stop, task)
        return await session.run(view.event)

    def stop(task: asyncio.Task[Any]) -> None:
        nonlocal asked_to_stop
        if asked_to_stop:
            task.cancel()
            return
        asked_to_stop = True
        view.note("stopping after the current step (again: at once); the place is saved …")
        session.drain()

    try:
        with view:
            result = asyncio.run(work())
    except (Interrupted, asyncio.CancelledError):
        stopped = str(Interrupted(session.directory))
        Console(stderr=True).print(stopped, highlight=False, soft_wrap=True)
        raise typer.Exit(130) from None
    except Waiting as waiting:
        if showing.in_words:
            console.print(str(waiting), markup=False, highlight=False, soft_wrap=True)
        return {"outcome": "waiting", "jobs": waiting.jobs, "run": str(session.directory)}
    except Capped as capped:
        if showing.in_words:
            show_capped(console, capped.reason, capped.best)
        best = capped.best.model_dump(mode="json") if capped.best else {}
        reached = {"outcome": "budget_reached", "reason": capped.reason}
        return {**reached, "run": str(session.directory), **best}
    if showing.in_words:
        show_result(console, result, session.directory)
    seconds = read_seconds(session.directory)
    return {**result.model_dump(mode="json"), "seconds": seconds}


def read_settings(**flags: Any) -> Settings:
    """Return the settings, with the flags that were given in their place.

    Raises:
        UserError: a flag, or a variable in the environment, has a bad value.
    """
    given = {name: value for name, value in flags.items() if value is not None}
    try:
        return Settings(**given)
    except ValidationError as error:
        is_flag = str(error.errors()[0]["loc"][0]) in given
        raise UserError(("" if is_flag else "settings: ") + describe(error)) from error
    except SettingsError as error:
        raise UserError(f"settings: {error}; prices and context_tokens are JSON") from error


def checked_budgets(**caps: Any) -> Any:
    """Return caps from flags.

    Raises:
        UserError: one is negative.
    """
    from .tools.model_records import Budgets

    try:
        return Budgets(**caps)
    except ValidationError as error:
        flag = str(error.errors()[0]["loc"][0]).removeprefix("wall_").replace("_", "-")
        raise UserError(f"--max-{flag}: {error.errors()[0]['msg'].lower()}") from error


def check_request(request: Any) -> None:
    """Refuse what can be refused before a run directory is made.

    Raises:
        UserError: unknown GPU, device, model, file, or a foreign knowledge base.
    """
    from .nodes.load_task import resolve_plan

    if not Path(request.task).is_file():
        raise UserError(f"no such file: {request.task}; give a PyTorch reference (examples/)")
    resolve_plan(request)


def knowledge_directory(chosen: Path | None) -> Path:
    """Return the knowledge base a command works on."""
    return chosen or read_settings().knowledge_directory


def with_gpus(device: str, gpus: str | None) -> str:
    """Return the device that works on the GPUs of `--gpus`.

    Raises:
        UserError: no list of numbers, a GPU twice, or not with this device.
    """
    if gpus is None:
        return device
    from .harness.devices import parse_gpus

    numbers = parse_gpus(gpus)
    if device not in ("auto", "cuda"):
        raise UserError(f"--gpus goes with --device cuda, not with {device}")
    return f"cuda:{','.join(map(str, numbers))}"


def parse_dimensions(pairs: list[str]) -> dict[str, int]:
    """Return {NAME: VALUE} of `--set NAME=VALUE` flags.

    Raises:
        UserError: a flag is not of that form, or its value is no positive integer.
    """
    parsed: dict[str, int] = {}
    for pair in pairs:
        name, equals, value = pair.partition("=")
        number = value.isascii() and value.isdecimal()
        if not (equals and name.isidentifier() and number and int(value) > 0):
            raise UserError(f"--set {pair}: write NAME=VALUE with a positive integer")
        parsed[name] = int(value)
    return parsed


def describe(error: ValidationError) -> str:
    """Return the first complaint of a validation error as one line with the flag's name."""
    first = error.errors()[0]
    flag = ".".join(str(part) for part in first["loc"]).replace("_", "-")
    return f"--{flag} {first.get('input')!r}: {first['msg'].lower()}"


def print_json(value: Any) -> None:
    """Print one JSON object, the last thing on standard output."""
    sys.stdout.write(json.dumps(value) + "\n")
    sys.stdout.flush()


def fail(message: str) -> NoReturn:
    """Print one line on standard error and leave with exit code 2."""
    sys.stderr.write(f"kernelblaster: {message}\n")
    raise SystemExit(2)


def main() -> None:
    """Entry point: a UserError is one line and exit code 2, never a traceback."""
    try:
        app()
    except UserError as error:
        fail(str(error))
    except sqlite3.DatabaseError as error:
        fail(f"a database cannot be used: {error}; free some space or check the directory's rights")
    except OSError as error:
        if error.errno in (28, 30, 122):  # no space, read-only, quota
            fail(f"cannot write: {error.strerror}: {error.filename}; free some space, then resume")
        raise
