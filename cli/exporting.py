"""kernelblaster export: a winner in forms that work without this program."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

import typer

from ..harness.errors import UserError, in_shell
from .flags import Json
from .showing.output import print_json, say


def export(
    run: Annotated[Path, typer.Argument(help="Directory of a finished run.")],
    output: Annotated[Path, typer.Option("-o", "--output", help="Folder to write into.")],
    form: Annotated[
        Literal["modelnew", "operator", "cu"],
        typer.Option(
            "--format",
            help="A KernelBench solution, a PyTorch operator to install, or the bare source.",
        ),
    ] = "modelnew",
    as_json: Json = False,
) -> None:
    """Write a run's winner as a KernelBench solution, a PyTorch operator, or a CUDA file."""
    from ..harness.build.toolchain import find_toolchain
    from ..nodes.run.reading.winner import winner_of
    from ..tools.exporting.model_new import model_new
    from ..tools.exporting.operator_package import operator_package

    winner = winner_of(run.resolve())
    if form == "modelnew":
        files = {f"{winner.name}.py": model_new(winner).encode()}
        hint = "KernelBench's evaluation takes it as a solution of the problem"
    elif form == "operator":
        files = operator_package(winner, find_toolchain())
        hint = f"install it with: pip install {in_shell(output)}"
    else:
        whole = winner.whole_source(winner.task.full)
        files = {f"{winner.name}.cu": whole.encode(), "task.py": winner.task.source.encode()}
        hint = "it compiles alone; launch() is at its end"
    for name, data in files.items():
        _write(output / name, data)
    if as_json:
        print_json({"folder": str(output), "files": sorted(files)})
        return
    for name in files:
        say(str(output / name))
    say(hint)


def _write(path: Path, data: bytes) -> None:
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data)
    except OSError as error:
        raise UserError(f"cannot write {path}: {error.strerror}; choose another -o") from error
