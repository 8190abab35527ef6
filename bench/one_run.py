"""One run of a bench: begun or gone on with, to its end, which is written down whatever it is."""

from __future__ import annotations

import os
import sys
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any

from ..graph.session import Capped, Interrupted, Session, Undecided, Waiting
from ..harness.errors import UserError
from ..harness.metrics import VALID, TaskOutcome
from ..memory.run.directory import PLAN_FILE, InUse
from ..memory.run.run_store import RunStore
from ..nodes.records.plan import OptimizeRequest
from ..nodes.records.result import RunResult
from .directory import prepare_knowledge, run_path, stages_path, task_path, write_ended
from .records import Ended, PlannedRun, SuiteLock

Watch = Callable[[dict[str, Any]], None]


class Unfinished(Exception):
    """A run has saved its place and is not over: it was stopped, its model is gone, or another
    process is at it."""


class OneRun:
    """A run of a bench that this process does."""

    def __init__(self, directory: Path, lock: SuiteLock, run: PlannedRun) -> None:
        self._directory, self._lock, self._run = directory, lock, run
        self._session: Session | None = None
        self._stopped = False

    def stop(self) -> None:
        """Have it stop after the step under way, with its place saved."""
        self._stopped = True
        if self._session is not None:
            self._session.drain()

    async def to_its_end(self, watch: Watch = lambda event: None) -> Ended:
        """Do the run, write down what became of it, and return that.

        Whatever is wrong with a task is an end like others; it ends no other run.

        Raises:
            Unfinished: it goes on when it is asked for again.
            UserError: its end cannot be written.
        """
        place = run_path(self._directory, self._run)
        try:
            ended = self._succeeded(await self._worked(place, watch))
        except (Interrupted, Capped, Waiting, Undecided, InUse) as stopped:
            raise Unfinished(str(stopped)) from stopped
        except UserError as error:
            ended = failed(self._directory, self._run, str(error))
        except Exception as error:  # A fault of ours in one run is told, and ends no other.
            traceback.print_exc(file=sys.stderr)
            reason = f"{type(error).__name__}: {error}"
            ended = failed(self._directory, self._run, reason)
        write_ended(self._directory, self._run, ended)
        return ended

    async def _worked(self, place: Path, watch: Watch) -> RunResult:
        self._session = session = self._opened(place)
        try:
            if self._stopped:
                session.drain()
            return await session.run(watch)
        except UserError:
            session.discard_unserved()
            raise
        finally:
            self._session = None
            session.close()

    def _opened(self, place: Path) -> Session:
        knowledge = prepare_knowledge(self._directory, self._lock, self._run)
        if (place / PLAN_FILE).is_file():
            return Session.open(place, knowledge)  # The bench may have been moved.
        context = self._lock.context_of(self._run)
        request = OptimizeRequest(
            task=str(task_path(self._directory, self._run.task)),
            run=str(place),
            reading=self._lock.reading,
        )
        shared = os.path.relpath(stages_path(self._directory), place)
        own = {"knowledge": str(knowledge), "shared": "" if context.fresh else shared}
        return Session.create(request, context.model_copy(update=own))

    def _succeeded(self, result: RunResult) -> Ended:
        place = run_path(self._directory, self._run)
        valid = result.outcome in VALID
        outcome = TaskOutcome(
            **_named(self._run),
            **_spent(place),
            outcome=result.outcome,
            provenance=result.provenance,
            initial_us=result.initial_us,
            best_us=result.best_us if valid else None,
            eager_us=result.baselines.get("eager_us"),
            compile_us=result.baselines.get("compile_us"),
            bound_us=_bound(result),
            gain=result.gain if valid else None,
            uncertainty=max(0.0, result.gain / result.gain_ci[0] - 1) if valid else 0.0,
        )
        where = _place_of(self._directory, place)
        reason = "; ".join(result.notes)
        return Ended(outcome=outcome, reason=reason, began=result.began_with, run=where)


def failed(directory: Path, run: PlannedRun, reason: str) -> Ended:
    """Return the end of a run that came to nothing."""
    place = run_path(directory, run)
    outcome = TaskOutcome(**_named(run), **_spent(place), outcome="failed")
    return Ended(outcome=outcome, reason=reason, run=_place_of(directory, place))


def _named(run: PlannedRun) -> dict[str, Any]:
    return {"task": run.task, "policy": run.variant, "seed": run.seed}


def _place_of(directory: Path, place: Path) -> str:
    return str(place.relative_to(directory)) if place.is_dir() else ""


def _spent(place: Path) -> dict[str, Any]:
    """Return what a run took, as far as it came."""
    path = place / "run.sqlite"
    if not path.is_file():
        return {}
    with RunStore(path) as store:
        totals = store.ledger.totals()
        return {
            "evaluations": store.count(),
            "outcomes": store.outcomes(),
            "seconds": store.ledger.wall_seconds() + store.seconds_taken_over(),
            "device_seconds": store.ledger.device_seconds(),
            "tokens": totals.tokens,
            "money": totals.money,
        }


def _bound(result: RunResult) -> float | None:
    return None if result.bound is None else result.bound.microseconds
