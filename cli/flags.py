"""The flags that several commands have, and one clear line where a flag is wrong."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any, Literal

import typer
from pydantic import ValidationError
from pydantic_settings import SettingsError

from ..harness.errors import UserError, shown
from ..memory.records.ablation import Memory
from ..settings import Settings

Json = Annotated[bool, typer.Option("--json", help="Print one JSON object on standard output.")]
Gpu = Annotated[str | None, typer.Option(help="GPU to optimise for.")]
DeviceName = Annotated[
    str | None,
    typer.Option("--device", help="auto, cuda, simulated, deferred, or a package's (see doctor)."),
]
Gpus = Annotated[
    str | None, typer.Option("--gpus", help="Numbers of this machine's GPUs to work on: 0,1.")
]
KnowledgeDirectory = Annotated[Path | None, typer.Option("--kb", help="Knowledge base directory.")]
Measured = Annotated[
    bool, typer.Option("--measured", help="What real GPUs said, instead of the simulated one.")
]
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
_ABLATION = "Ablation: the same without a part"
Remembered = Annotated[
    Memory | None,
    typer.Option(
        "--memory",
        help="What of the knowledge base is read; to one that is not live nothing is written.",
        rich_help_panel=_ABLATION,
    ),
]
Chosen = Annotated[
    Literal["sampled", "greedy", "random"] | None,
    typer.Option("--choice", help="How a technique is chosen.", rich_help_panel=_ABLATION),
]
Counters = Annotated[
    bool | None,
    typer.Option(
        "--counters/--no-counters",
        help="Whether agents are shown hardware counters, or time alone.",
        rich_help_panel=_ABLATION,
    ),
]
Gradient = Annotated[
    bool | None,
    typer.Option(
        "--gradient/--no-gradient",
        help="Whether agents change the knowledge base, or evidence alone does.",
        rich_help_panel=_ABLATION,
    ),
]
Sweeps = Annotated[
    bool | None,
    typer.Option(
        "--sweeps/--no-sweeps",
        help="Whether other settings of what moved a kernel's time are tried without a model.",
        rich_help_panel=_ABLATION,
    ),
]
Fresh = Annotated[
    bool | None,
    typer.Option(
        "--fresh/--not-fresh",
        help="Evaluate every kernel anew, whatever earlier runs on this machine found.",
    ),
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


def gpu_of(named: str) -> str:
    """Return the name of a GPU: the one that is named, the first one here, or the simulated one.

    Raises:
        UserError: nobody knows the one that is named.
    """
    from ..harness.cuda.present_gpus import find_gpus
    from ..harness.devices.registry import SIMULATED_GPU
    from ..harness.gpus import find_gpu

    if named:
        return find_gpu(named).name
    try:
        return find_gpus()[0].name
    except UserError:
        return SIMULATED_GPU


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


def describe(error: ValidationError) -> str:
    """Return the first complaint of a validation error as one line with the flag's name."""
    first = error.errors()[0]
    flag = ".".join(str(part) for part in first["loc"]).replace("_", "-")
    return f"--{flag} {shown(first.get('input'))}: {first['msg'].lower()}"
