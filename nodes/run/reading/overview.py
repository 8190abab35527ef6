"""The runs of a directory: what each was asked, how far it is, and what came of it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from ....harness.errors import UserError
from ....memory.run.directory import is_held
from ....memory.run.exchange import count_waiting
from ....memory.run.run_store import RunStore
from ..beginning.begin import stored_plan
from ..ending.report import stored_result


def read_seconds(directory: Path) -> float:
    """Return the run's working time so far, all sittings together; 0 before the first."""
    path = directory / "run.sqlite"
    if not path.is_file():
        return 0.0
    with RunStore(path, copied=True) as store:
        return store.ledger.wall_seconds()


def list_runs(root: Path) -> list[dict[str, Any]]:
    """Return the runs under a directory, by name: task, status, and the result when finished."""
    found = []
    for path in sorted(root.glob("*/run.json")):
        directory = path.parent
        try:
            plan = stored_plan(directory)
            seconds = read_seconds(directory)
        except UserError as error:
            found.append({"run": str(directory), "status": "damaged", "reason": str(error)})
            continue
        entry: dict[str, Any] = {
            "run": str(directory),
            "task": plan.task,
            "policy": plan.policy,
            "gpu": plan.gpu,
            "status": "in use" if is_held(directory) else "unfinished",
            "seconds": seconds,
        }
        if plan.device.startswith("deferred"):
            _add_waiting(entry, directory)
        result = stored_result(directory)
        if result is not None:
            entry |= {"status": result.outcome} | result.model_dump(
                mode="json", include={"gpu", "gain", "best_us", "evaluations", "provenance"}
            )
        found.append(entry)
    return found


def _add_waiting(entry: dict[str, Any], directory: Path) -> None:
    """Say in a run's entry how many jobs it waits for."""
    try:
        entry["waiting"] = count_waiting(directory)
    except UserError as error:
        entry |= {"status": "damaged", "reason": str(error)}
        return
    if entry["waiting"] and entry["status"] == "unfinished":
        entry["status"] = "waiting"
