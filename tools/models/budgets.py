"""Caps on what a run may use: where they are kept, and when one is reached."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from ...harness.errors import UserError, in_shell, shown, unwritten
from ...harness.files import read_json, write_atomically
from ...memory.run.directory import how_to_go_on
from ...memory.run.ledger import Totals, Usage
from ...memory.run.run_store import RunStore
from .chat_models import priced
from .pauses import BudgetReached
from .records import Budgets, ModelPlan

BUDGETS_FILE = "budgets.json"
CAPS = {
    "max_tokens": "tokens",
    "max_money": "money",
    "max_calls": "calls",
    "max_gpu_seconds": "gpu_seconds",
    "max_seconds": "wall_seconds",
    "max_evaluations": "evaluations",
}
"""What a person calls each cap."""
NO_PRICE = (
    "--max-money needs a price for {model}: set KERNELBLASTER_PRICES to JSON such as "
    '{{"NAME": {{"input_per_million": 1, "cached_per_million": 0.1, "output_per_million": 5}}}}'
)


def read_budgets(directory: Path) -> Budgets:
    """Return a run's caps; none where the file is not there.

    Raises:
        UserError: the file is damaged.
    """
    path = directory / BUDGETS_FILE
    again = f"kernelblaster resume {in_shell(directory)} --max-calls 100"
    remedy = f"write the caps anew, for example: {again}"
    try:
        return Budgets.model_validate(read_json(path, "a run's caps", remedy))
    except FileNotFoundError:
        return Budgets()
    except (OSError, ValueError) as error:
        raise UserError(f"{path} is damaged; {remedy}") from error


def write_budgets(directory: Path, budgets: Budgets) -> None:
    """Write a run's caps.

    Raises:
        UserError: the disk is full or the directory is not writable.
    """
    path = directory / BUDGETS_FILE
    try:
        write_atomically(path, (budgets.model_dump_json(indent=2) + "\n").encode())
    except OSError as error:
        raise UserError(unwritten(path, error)) from error


def change_budgets(directory: Path, changed: Budgets) -> Budgets:
    """Set the caps that `changed` names, keep the others, and return what holds now."""
    new = changed.model_dump(exclude_none=True)
    try:
        before = read_budgets(directory)
    except UserError:
        before = Budgets()  # Damaged: what is written now is what holds.
    budgets = before.model_copy(update=new)
    if new:
        write_budgets(directory, budgets)
    return budgets


def raise_budgets(directory: Path, models: ModelPlan, named: Mapping[str, Any]) -> None:
    """Raise caps, by the names of CAPS; one that is higher already, or not set, stays.

    Raises:
        UserError: another name, no number, or a model has no price: one sentence says what is
            understood.
    """
    understood = f"a cap is raised with {', '.join(CAPS)}: a number each"
    if unknown := [name for name in named if name not in CAPS]:
        raise UserError(f"{shown(unknown[0])} is no cap: {understood}")
    try:
        asked = Budgets(**{CAPS[name]: value for name, value in named.items()})
    except ValidationError as error:
        raise UserError(f"{error.errors()[0]['msg'].lower()}: {understood}") from error
    require_prices(models, asked)
    now = read_budgets(directory).model_dump(exclude_none=True)
    higher = {
        name: value
        for name, value in asked.model_dump(exclude_none=True).items()
        if name in now and value > now[name]
    }
    change_budgets(directory, Budgets(**higher))


def require_prices(models: ModelPlan, budgets: Budgets) -> None:
    """Refuse a cap on money that could not be kept.

    Raises:
        UserError: a model has no price.
    """
    if budgets.money is None:
        return
    for name in models.names:
        if priced(models, name, {"in": 0}) is None:
            raise UserError(NO_PRICE.format(model=name))


def require_call(budgets: Budgets, totals: Totals, expected: Usage, directory: Path) -> None:
    """Refuse a call that would not fit the caps on calls, tokens and money.

    `expected` is what the call takes at most, as far as that is known: its prompt, and the longest
    reply where a limit is set.

    Raises:
        BudgetReached: with the flag that raises the cap.
        UserError: money is capped and the model has no price.
    """
    if budgets.money is not None and expected.money is None:
        raise UserError(NO_PRICE.format(model="this run's model"))
    tokens = expected.tokens_in + expected.tokens_out
    spent = totals.money or 0.0
    money = expected.money or 0.0
    under_way = " or under way" if totals.unfinished else ""
    if budgets.calls is not None and totals.calls + 1 > budgets.calls:
        _refuse("max_calls", f"{budgets.calls} calls", f"{totals.calls} made{under_way}", directory)
    if budgets.tokens is not None and totals.tokens + tokens > budgets.tokens:
        used = f"{totals.tokens} used{under_way}, the next call may take {tokens}"
        _refuse("max_tokens", f"{budgets.tokens} tokens", used, directory)
    if budgets.money is not None and spent + money > budgets.money:
        used = f"${spent:.4f} spent{under_way}, the next call may take ${money:.4f}"
        _refuse("max_money", f"${budgets.money:g}", used, directory)


def require_room(budgets: Budgets, store: RunStore, directory: Path) -> None:
    """Refuse to begin another step when the device's or the run's time, or its evaluations, are
    used up.

    Raises:
        BudgetReached: with the flag that raises the cap.
    """
    store.ledger.still_working()
    wall = store.ledger.wall_seconds()
    device = store.ledger.device_seconds()
    require_evaluation(budgets, store.count(), directory)
    if budgets.gpu_seconds is not None and device >= budgets.gpu_seconds:
        _refuse(
            "max_gpu_seconds", f"{budgets.gpu_seconds:g} s on the device", f"{device:.1f} s used",
            directory,
        )  # fmt: skip
    if budgets.wall_seconds is not None and wall >= budgets.wall_seconds:
        _refuse(
            "max_seconds", f"{budgets.wall_seconds:g} s of working time", f"{wall:.1f} s used",
            directory,
        )  # fmt: skip


def require_evaluation(budgets: Budgets, done: int, directory: Path) -> None:
    """Refuse one more evaluation after so many, made or under way.

    Raises:
        BudgetReached: with the flag that raises the cap.
    """
    if budgets.evaluations is not None and done >= budgets.evaluations:
        cap = f"{budgets.evaluations} evaluations"
        _refuse("max_evaluations", cap, f"{done} made", directory)


def _refuse(name: str, cap: str, used: str, directory: Path) -> None:
    flag = f"--{name.replace('_', '-')} N"
    how = how_to_go_on(directory, flag, f'{{"{name}": N}}')
    told = f"the cap of {cap} is reached ({used})"
    raise BudgetReached(f"{told}; go on with a higher one: {how}", name, told)
