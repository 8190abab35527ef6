"""The command `bench`: many runs of a suite under several policies, begun or gone on with."""

from __future__ import annotations

import asyncio
import os
import signal
from pathlib import Path
from tempfile import NamedTemporaryFile
from typing import TYPE_CHECKING, Annotated, Any

import typer
from pydantic import ValidationError
from rich.console import Console

from ..harness.errors import UserError, in_shell, unwritten
from ..harness.files import require_replaceable
from .flags import (
    DeviceName,
    Gpu,
    Gpus,
    Json,
    Quiet,
    describe,
    read_settings,
)
from .reports import write_report
from .showing.bench_view import BenchView, console_of_tables, show_results
from .showing.output import print_json, say
from .showing.terminal import Terminal
from .task_flags import TaskFlags, with_task_flags

if TYPE_CHECKING:
    from ..bench.records import SuiteLock
    from ..nodes.records.plan import RunContext

CAPS = {
    "evaluations": "evaluations", "tokens": "tokens", "money": "money", "calls": "calls",
    "seconds": "wall_seconds", "gpu_seconds": "gpu_seconds",
}  # fmt: skip
"""What `--budget` calls each cap."""
LENGTHS = ("iterations", "rollouts", "steps", "rounds")
GOING_ON = frozenset({"suite", "retry", "jobs", "device", "gpus", "html", "quiet", "as_json"})
"""What a bench that goes on can be told."""


@with_task_flags
def bench(
    *,
    called: typer.Context,
    suite: Annotated[
        str | None,
        typer.Argument(
            help="Folder of tasks, checkout of KernelBench, folder of problems with workloads, "
            "hub:OWNER/NAME; or the directory of a bench to go on with."
        ),
    ] = None,
    policy: Annotated[
        str, typer.Option(help="NAME or NAME[SETTING=VALUE,...], with commas between.")
    ] = "kernelblaster",
    ablate: Annotated[
        str | None,
        typer.Option(help="memory, gradient, counters, breadth, depth or models: its variants."),
    ] = None,
    tasks: Annotated[
        str | None, typer.Option(help="Names of tasks, with * and ?, commas between.")
    ] = None,
    seeds: Annotated[int, typer.Option(min=1, help="How many.")] = 1,
    seed: Annotated[int, typer.Option(help="The first of them.")] = 0,
    jobs: Annotated[
        int | None, typer.Option(min=1, help="Runs at a time; by default one a GPU or core.")
    ] = None,
    budget: Annotated[
        str | None,
        typer.Option(help="Of each run: evaluations=..,tokens=..,money=..,calls=..,seconds=.."),
    ] = None,
    knowledge: Annotated[
        str,
        typer.Option(help="shared (one base a policy and seed), each (one a run), or a base."),
    ] = "shared",
    out: Annotated[Path | None, typer.Option(help="Directory of the bench.")] = None,
    retry: Annotated[
        bool, typer.Option("--retry", help="Going on: try again what failed.")
    ] = False,
    html: Annotated[
        Path | None, typer.Option(help="At the end write its report there, as one HTML file.")
    ] = None,
    gpu: Gpu = None,
    gpus: Gpus = None,
    device: DeviceName = None,
    model: Annotated[
        str | None, typer.Option(help="builtin, openai:NAME, or ROLE=MODEL,ROLE=MODEL.")
    ] = None,
    base_url: Annotated[str | None, typer.Option(help="OpenAI-compatible endpoint.")] = None,
    iterations: Annotated[int | None, typer.Option(help="Policy updates.")] = None,
    rollouts: Annotated[int | None, typer.Option(help="Trajectories an iteration.")] = None,
    steps: Annotated[int | None, typer.Option(help="Techniques a trajectory.")] = None,
    rounds: Annotated[int | None, typer.Option(help="Candidates, one a round.")] = None,
    flags: TaskFlags,
    quiet: Quiet = False,
    as_json: Json = False,
) -> None:
    """Run every task of a suite under several policies, and set them side by side.

    Killed or stopped, it goes on with: kernelblaster bench DIRECTORY.
    """
    from ..bench import directory as place
    from ..bench.planning import require_same
    from ..bench.results import write_results
    from ..nodes.records.plan import RunContext

    if html:
        _require_writable(html)
    origin = _origin(suite, flags)
    going_on = place.is_suite(Path(origin))
    kind, _, numbers = (device or "").partition(":")
    if kind == "cuda" and numbers:
        device, gpus = kind, gpus or numbers
    settings = read_settings(model=model, base_url=base_url)
    if going_on:
        _require_nothing_new(called)
        directory = Path(origin).resolve()
        lock = place.read_suite(directory)
        require_same(lock)
    else:
        lengths = {"iterations": iterations, "rollouts": rollouts, "steps": steps, "rounds": rounds}
        named = {name: value for name, value in lengths.items() if value is not None}
        try:
            context = RunContext(
                gpu=gpu or settings.gpu,
                device=device or settings.device,
                model=settings.model,
                models=settings.models,
                budgets=_budgets(budget),
                confirm_seconds=settings.confirm_seconds,
                reference_seconds=flags.reference_seconds,
                **({name: getattr(settings, name) for name in LENGTHS} | named),
            )
        except ValidationError as error:
            raise UserError(describe(error)) from error
        directory, lock = _begun(
            origin, context, policy, ablate, tasks, flags, tuple(range(seed, seed + seeds)),
            knowledge, out, frozenset(named),
        )  # fmt: skip
    console = console_of_tables(as_json)
    with place.held(directory):
        if retry:
            place.forget_failed(directory, lock)
        code = _run(directory, lock, jobs, gpus, console, quiet=quiet)
        results = write_results(directory, lock)
    if as_json:
        print_json(results.model_dump(mode="json") | {"directory": str(directory)})
    else:
        show_results(console, lock, results, directory)
    if html:
        write_report(html, [directory], "html")
        say(f"Report: {html}", aside=as_json)
    if code:
        raise typer.Exit(code)


def _require_writable(file: Path) -> None:
    """Look before the first run whether a file can be written after the last. Raises UserError."""
    require_replaceable(file)
    try:
        with NamedTemporaryFile(dir=file.parent):
            pass
    except OSError as error:
        raise UserError(f"{unwritten(file, error)}, or name another file") from error


def _require_nothing_new(context: typer.Context) -> None:
    """Refuse flags that a bench has from its beginning: given now, they would change nothing.

    Raises:
        UserError: names those that were given.
    """
    given = [
        each.opts[0] for each in context.command.params
        if each.name is not None and each.name not in GOING_ON
        and getattr(context.get_parameter_source(each.name), "name", "") == "COMMANDLINE"
    ]  # fmt: skip
    if given:
        raise UserError(
            f"{', '.join(given)}: a bench that goes on keeps what it began with; leave it out, or "
            "start another one with the suite and --out"
        )


def _origin(suite: str | None, flags: TaskFlags) -> str:
    """Return where the suite is.

    Raises:
        UserError: nowhere, or in two places, or a size is set that only one task would have.
    """
    if flags.dimensions:
        raise UserError("--set names a size of one task: a bench has no such flag")
    if (suite is None) == (flags.kernelbench is None):
        raise UserError("name a suite: a folder of tasks, hub:OWNER/NAME, or --kernelbench DIR")
    return suite or str(flags.kernelbench)


def _begun(
    suite: str, context: RunContext, policy: str, ablate: str | None, tasks: str | None,
    flags: TaskFlags, seeds: tuple[int, ...], knowledge: str, out: Path | None,
    named: frozenset[str],
) -> tuple[Path, SuiteLock]:  # fmt: skip
    """Return the directory and the lock of a bench that begins, or that was begun just so."""
    from ..bench import directory as place
    from ..bench.planning import lock_of
    from ..bench.variants import ablation, parse_variants
    from ..harness.suites.finding import find_suite
    from ..nodes.common.policies import editable
    from ..tools.workspace import read_knowledge

    if ablate and policy != "kernelblaster":
        raise UserError("--ablate says what is compared: leave --policy out")
    variants = (
        ablation(ablate, context.model, context) if ablate else parse_variants(policy, context)
    )
    counted = {name for each in variants for name in editable(each.in_place_of(context).policy)}
    if missed := sorted(named - counted):
        raise UserError(f"--{missed[0]}: none of the policies has such a loop; leave it out")
    wanted = [each.strip() for each in (tasks or "").split(",") if each.strip()]
    found = find_suite(suite, flags.level, wanted, flags.problem)
    base = ""
    if knowledge not in ("shared", "each"):
        base = str(Path(knowledge).resolve())
        if not Path(base).is_dir():
            raise UserError(
                f"--knowledge {knowledge}: write shared, each, or the directory of a base"
            )
        with read_knowledge(base) as begun_with:
            begun_with.snapshot()
    lock = lock_of(
        found, context, variants, seeds, flags.reading,
        knowledge="each" if knowledge == "each" else "shared", knowledge_from=base, named=named,
    )  # fmt: skip
    directory = (out or place.new_directory(found.name)).resolve()
    if place.is_suite(directory):
        if place.read_suite(directory) != lock:
            raise UserError(
                f"{directory} holds another bench; go on with that one with: kernelblaster bench "
                f"{directory}, or choose another directory with --out"
            )
    else:
        with place.held(directory):
            place.begin(directory, lock, found.tasks)
    return directory, lock


def _budgets(text: str | None) -> Any:
    from ..tools.models.records import Budgets

    caps: dict[str, str] = {}
    if text is not None and not text.strip(" ,"):
        raise UserError(f"--budget names no cap: write NAME=NUMBER, of {', '.join(CAPS)}")
    for part in filter(None, (each.strip() for each in (text or "").split(","))):
        name, equals, value = part.partition("=")
        if name not in CAPS or not value:
            raise UserError(f"--budget {part}: write NAME=NUMBER, of {', '.join(CAPS)}")
        caps[CAPS[name]] = value
    try:
        return Budgets.model_validate(caps)
    except ValidationError as error:
        raise UserError(f"--budget: {describe(error).removeprefix('--')}") from error


def _run(
    directory: Path,
    lock: SuiteLock,
    jobs: int | None,
    gpus: str | None,
    console: Console,
    *,
    quiet: bool,
) -> int:
    """Do what is left of a bench; return the exit code of a stop by the user, or 0."""
    from ..bench.crew import ProcessWorker
    from ..bench.running import Bench
    from ..harness.devices.registry import parse_gpus

    seen: tuple[int | None, ...] = (None,)
    if lock.context.device.startswith("cuda"):
        seen = parse_gpus(gpus) if gpus else _gpus_called(lock.device.gpu)
    elif gpus is not None:
        raise UserError(f"--gpus goes with --device cuda, not with {lock.context.device}")
    cores = len(os.sched_getaffinity(0))
    number = min(jobs or (len(seen) if seen != (None,) else cores), len(lock.runs))
    # More threads than cores wait for each other by turning round: most of the time is lost.
    threads = max(1, cores // max(1, number))
    workers = [
        ProcessWorker(
            directory, directory / f"worker-{index + 1}.log", seen[index % len(seen)],
            threads=threads,
        )
        for index in range(number)
    ]  # fmt: skip
    view = BenchView(console, directory, lock, quiet=quiet)
    work = Bench(directory, lock, workers, view.told)
    stopped_by = 0

    async def watched() -> None:
        nonlocal stopped_by
        this = asyncio.current_task()
        assert this is not None

        def stop(signal_number: int) -> None:
            nonlocal stopped_by
            if stopped_by:
                this.cancel()
                return
            stopped_by = signal_number
            view.note("stopping after the steps under way (again: at once); all is saved …")
            work.stop()

        loop = asyncio.get_running_loop()
        for each in (signal.SIGINT, signal.SIGTERM):
            loop.add_signal_handler(each, stop, each)
        await work.run()

    try:
        with view:
            asyncio.run(watched())
    except asyncio.CancelledError:
        pass
    if work.unfinished or stopped_by:
        for label, why in work.unfinished.items():
            if not stopped_by:
                view.note(f"{label}: {why}")
        Terminal(stderr=True).print(
            f"{'stopped' if stopped_by else 'some runs wait'}; go on with: "
            f"kernelblaster bench {in_shell(directory)}",
            markup=False, highlight=False, soft_wrap=True,
        )  # fmt: skip
    return 128 + stopped_by if stopped_by else 0


def _gpus_called(name: str) -> tuple[int, ...]:
    """Return the numbers of this machine's GPUs of one model, of those that may be seen."""
    from ..harness.cuda.present_gpus import find_gpus
    from ..harness.gpus import is_called

    return tuple(n for n, each in enumerate(find_gpus()) if is_called(each.name, name))
