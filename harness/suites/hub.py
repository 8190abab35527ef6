"""KernelBench from the Hugging Face hub, where `datasets` is installed and a network is there."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from ..errors import UserError
from .records import SuiteTask

PREFIX = "hub:"
LEVELS = (1, 2, 3)
_BY_PATH = "or clone https://github.com/ScalingIntelligence/KernelBench and give its folder"


def hub_tasks(name: str, level: int | None) -> list[SuiteTask]:
    """Return the problems of a data set that has KernelBench's columns, a split for each level.

    Raises:
        UserError: `datasets` is not installed, the hub cannot be reached, or the data set has
            other columns.
    """
    try:
        import datasets  # type: ignore[import-not-found, unused-ignore]
    except ImportError as error:
        raise UserError(
            f"{PREFIX}{name} needs the package datasets: pip install datasets, {_BY_PATH}"
        ) from error
    tasks: list[SuiteTask] = []
    for number in (level,) if level is not None else LEVELS:
        split = f"level_{number}"
        try:
            rows = datasets.load_dataset(name, split=split)
        except Exception as error:  # What it raises depends on its version and on the network.
            said = str(error).strip().splitlines() or [type(error).__name__]
            raise UserError(
                f"{PREFIX}{name}: {split} cannot be had: {said[0][:200]}; try again with a "
                f"network, {_BY_PATH}"
            ) from error
        tasks += _tasks(name, number, rows)
    return tasks


def _tasks(name: str, level: int, rows: Iterable[Mapping[str, Any]]) -> list[SuiteTask]:
    try:
        ordered = sorted(rows, key=lambda row: int(row["problem_id"]))
        return [
            SuiteTask(
                name=f"level{level}_{row['name']}",
                source=str(row["code"]),
                origin=f"{PREFIX}{name} level {level} problem {row['problem_id']}",
            )
            for row in ordered
        ]
    except (KeyError, TypeError, ValueError) as error:
        raise UserError(
            f"{PREFIX}{name} has not KernelBench's columns (code, name, problem_id): {error!r}"
        ) from error
