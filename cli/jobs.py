"""kernelblaster jobs: what runs of device deferred wait for, and how another host answers."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from ..harness.errors import in_shell
from .flags import Json
from .showing.output import print_json, say

jobs_app = typer.Typer(help="Evaluation on another host (device deferred).", no_args_is_help=True)


@jobs_app.command("export")
def jobs_export(
    runs: Annotated[list[Path], typer.Argument(help="Run directories.", metavar="RUN...")],
    output: Annotated[Path, typer.Option("-o", "--output", help="File to write.")],
    as_json: Json = False,
) -> None:
    """Write what runs of device deferred wait for to one file, for the host that has the GPU."""
    from ..harness.devices.job_records import counted
    from ..memory.run.exchange import export_jobs
    from ..nodes.run.beginning.begin import stored_plan

    directories = list(dict.fromkeys(path.resolve() for path in runs))
    for run in directories:
        stored_plan(run)
    counts = export_jobs(directories, output)
    if as_json:
        print_json({"file": str(output), "runs": counts})
        return
    for name, count in counts.items():
        say(f"{name}: {counted(count)}")
    say(f"run them on the GPU host: kernelblaster jobs run {in_shell(output)} -o results.json")


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
    from ..harness.jobs.command import conclude, run_command

    def follow(line: str) -> None:
        say(line, aside=as_json)

    summary = run_command(jobs, output, device, gpus, follow)
    if as_json and summary:
        print_json(summary.model_dump(mode="json"))
    code = conclude(summary, output, follow)
    if code:
        raise typer.Exit(code)
