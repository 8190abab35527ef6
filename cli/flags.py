"""The flags that several commands have, and one clear line where a flag is wrong."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Annotated, Any, Literal

import typer
from pydantic import ValidationError
from pydantic_settings import SettingsError

from ..harness.errors import UserError, shown
from ..harness.records import Reading
from ..harness.task.kernelbench import kernelbench_files, task_files
from ..settings import Settings

Json = Annotated[bool, typer.Option("--json", help="Print one JSON object on standard output.")]
TaskPath = Annotated[
    Path | None, typer.Argument(help="PyTorch reference in KernelBench form, or a folder of them.")
]
KernelBench = Annotated[
    Path | None, typer.Option(help="Checkout of KernelBench, in place of a task's path.")
]
Level = Annotated[int | None, typer.Option(min=1, help="Of KernelBench.")]
Problem = Annotated[int | None, typer.Option(min=1, help="Of a level of KernelBench.")]
Mode = Annotated[
    Literal["file", "eval", "train"],
    typer.Option(help="Mode of the model; by default as its file leaves it."),
]
Precision = Annotated[
    Literal["file", "fp16", "bf16", "fp32"],
    typer.Option("--dtype", help="Type of floating numbers; by default as the file has them."),
]
AllowDegenerate = Annotated[
    bool,
    typer.Option("--allow-degenerate", help="Go on where the answer is known beforehand."),
]
ReferenceSeconds = Annotated[
    float | None,
    typer.Option(min=1, help="Longest that PyTorch may take for a task's answers; 600."),
]
Gpu = Annotated[str | None, typer.Option(help="GPU to optimise for.")]
DeviceName = Annotated[
    str | None,
    typer.Option("--device", help="auto, cuda, simulated, deferred, or a package's (see doctor)."),
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
MaxEvaluations = Annotated[int | None, typer.Option(help="Cap on kernels evaluated.")]
OnBudget = Annotated[
    Literal["pause", "finish"] | None,
    typer.Option(help="At a cap: pause, or finish with the best so far."),
]
ConfirmSeconds = Annotated[
    float | None,
    typer.Option(help="Limit of Compute Sanitizer at full dimensions, on a GPU."),
]
Until = Annotated[
    float | None,
    typer.Option(help="End the search at this share of the speed of light: 0.9."),
]
Approve = Annotated[
    str | None,
    typer.Option(help="Where a person is asked first: plan,technique,winner, or none."),
]
Quiet = Annotated[bool, typer.Option("--quiet", help="Show only what it came to.")]
Events = Annotated[
    Literal["jsonl"] | None,
    typer.Option(help="jsonl: one JSON object a line on standard output as things happen."),
]


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
    except (UnicodeDecodeError, OSError) as error:
        raise UserError(f"settings: kernelblaster.env cannot be read: {error}") from error
    except SettingsError as error:
        raise UserError(f"settings: {error}; prices and context_tokens are JSON") from error


def checked_budgets(**caps: Any) -> Any:
    """Return caps from flags.

    Raises:
        UserError: one is negative.
    """
    from ..tools.models.records import Budgets

    try:
        return Budgets(**caps)
    except ValidationError as error:
        flag = str(error.errors()[0]["loc"][0]).removeprefix("wall_").replace("_", "-")
        raise UserError(f"--max-{flag}: {error.errors()[0]['msg'].lower()}") from error


def chosen_tasks(
    task: Path | None, kernelbench: Path | None, level: int | None, problem: int | None
) -> list[Path]:
    """Return the references that the flags name.

    Raises:
        UserError: none, or two ways of naming them.
    """
    if kernelbench is not None and task is None:
        return kernelbench_files(kernelbench, level, problem)
    if task is None or kernelbench is not None:
        raise UserError("name a task: its path, a folder of tasks, or --kernelbench DIR")
    if level is not None or problem is not None:
        raise UserError("--level and --problem go with --kernelbench DIR")
    return task_files(task)


def one_task(
    task: Path | None, kernelbench: Path | None, level: int | None, problem: int | None
) -> Path:
    """Return the one reference that the flags name. Raises UserError where there are more."""
    found = chosen_tasks(task, kernelbench, level, problem)
    if len(found) > 1:
        raise UserError(f"{len(found)} tasks are named, and one is wanted: {found[0].name} or ...")
    return found[0]


def reading_of(mode: str, dtype: str, allow_degenerate: bool) -> Reading:
    """Return how a reference is read, from flags."""
    return Reading.model_validate(
        {"mode": mode, "dtype": dtype, "allow_degenerate": allow_degenerate}
    )


def limit_reference(seconds: float | None) -> None:
    """Set how long PyTorch may take, for this process and those it starts."""
    if seconds is not None:
        os.environ["KERNELBLASTER_REFERENCE_SECONDS"] = str(seconds)


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
    from ..harness.devices.registry import parse_gpus

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
    return f"--{flag} {shown(first.get('input'))}: {first['msg'].lower()}"
