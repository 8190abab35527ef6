"""One run in one directory: lock it, checkpoint it, stream its progress, drain it, resume it."""

from __future__ import annotations

import asyncio
import fcntl
import json
import os
import shutil
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, cast

import aiosqlite
from langchain_core.runnables import RunnableConfig
from langgraph.checkpoint.serde.jsonplus import JsonPlusSerializer
from langgraph.checkpoint.sqlite.aio import AsyncSqliteSaver
from langgraph.errors import GraphDrained
from langgraph.runtime import RunControl
from langgraph.types import StateSnapshot

from ..harness.devices.job_records import counted
from ..harness.devices.registry import open_device
from ..harness.errors import UserError
from ..memory.run.exchange import count_waiting
from ..memory.run.run_store import RunStore
from ..nodes import records as node_records
from ..nodes.records import OptimizeRequest, RunPlan, RunResult
from ..nodes.run.best_so_far import BestSoFar, keep_best
from ..nodes.run.load_task import with_absolute_paths
from ..nodes.run.report import write_file
from ..tools.models.budgets import write_budgets
from ..tools.models.chat_models import check_models
from ..tools.models.endpoint import require_endpoint
from ..tools.models.pauses import PAUSES, Paused
from .optimize import build_graph

RUN_FORMAT = "kernelblaster-run/1"
THREAD = "run"
RECURSION_LIMIT = 10_000


class Interrupted(Exception):
    """The run was asked to stop and has saved its place; `directory` resumes it."""

    def __init__(self, directory: Path) -> None:
        super().__init__(f"stopped; resume with: kernelblaster resume {directory}")
        self.directory = directory


class Waiting(Exception):
    """The run has saved its place and goes on when jobs have results from another host."""

    def __init__(self, directory: Path, jobs: int) -> None:
        super().__init__(
            f"{counted(jobs)} {'waits' if jobs == 1 else 'wait'} for the GPU host; export with: "
            f"kernelblaster jobs export {directory} -o jobs.json"
        )
        self.directory = directory
        self.jobs = jobs


class Capped(Exception):
    """A cap is reached or a model cannot be asked, and the place is saved; `resume` goes on."""

    def __init__(
        self, directory: Path, outcome: str, reason: str, best: BestSoFar | None
    ) -> None:
        super().__init__(reason)
        self.directory = directory
        self.outcome = outcome
        """budget_reached or model_unavailable."""
        self.reason = reason
        self.best = best


class Session:
    """A run directory held by this process.

    Use `Session.create` for a new run and `Session.open` for one to resume; both take the
    directory's lock, which the kernel drops when the process dies, however it dies.
    """

    def __init__(self, directory: Path, request: OptimizeRequest, lock: int) -> None:
        self.directory = directory
        self.request = request
        self.control = RunControl()
        self.resumed = (directory / "checkpoints.sqlite").exists()
        self.begun = False
        """The request can be served; before that nothing is evaluated, and nobody is asked."""
        self._lock = lock

    @classmethod
    def create(cls, directory: Path, request: OptimizeRequest) -> Session:
        """Lay out a new run directory.

        Raises:
            UserError: it holds something already, is in use, or cannot be written.
        """
        directory = directory.resolve()
        if directory.exists() and not directory.is_dir():
            raise UserError(f"--run {directory} is a file; give a directory")
        if directory.exists() and any(directory.iterdir()):
            hint = (
                f"continue it with: kernelblaster resume {directory}"
                if (directory / "run.json").is_file()
                else "choose an empty or new directory with --run"
            )
            raise UserError(f"{directory} is not empty; {hint}")
        try:
            directory.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise UserError(
                f"cannot create the run directory {directory}: {error.strerror}; "
                "choose another with --run"
            ) from error
        lock = _take_lock(directory)
        write_budgets(directory, request.budgets)
        pinned = with_absolute_paths(request.model_copy(update={"run": str(directory)}))
        document = {"format": RUN_FORMAT, "request": pinned.model_dump(mode="json")}
        write_file(directory / "run.json", json.dumps(document, indent=2) + "\n")
        return cls(directory, pinned, lock)

    @classmethod
    def open(cls, directory: Path) -> Session:
        """Open a run directory to resume it.

        Raises:
            UserError: it is no run directory, of another version, or in use.
        """
        directory = directory.resolve()
        request = read_request(directory)
        if request.run != str(directory):
            raise UserError(
                f"the run in {directory} was started in {request.run}; move it back to resume it"
            )
        return cls(directory, request, _take_lock(directory))

    def discard_unserved(self) -> None:
        """Remove the directory of a run that could not begin: there is nothing to go on from."""
        if not self.begun:
            shutil.rmtree(self.directory, ignore_errors=True)

    def close(self) -> None:
        """Let the directory go."""
        os.close(self._lock)

    def drain(self) -> None:
        """Ask the run to stop at the next step, with its place saved. Safe in a signal handler."""
        self.control.request_drain("interrupted")

    async def run(self, watch: Callable[[dict[str, Any]], None] = lambda event: None) -> RunResult:
        """Start the run, or go on where its last checkpoint stands; return its result.

        `watch` receives every progress event.

        Raises:
            UserError: the request cannot be served.
            Interrupted: `drain` was called and the place is saved.
            Waiting: no rollout can go on without results from another host.
            Capped: no rollout can go on without a higher cap, or without its model.
        """
        began = time.monotonic()
        config: RunnableConfig = {
            "configurable": {"thread_id": THREAD},
            "recursion_limit": RECURSION_LIMIT,
        }
        async with open_checkpointer(self.directory) as checkpointer:
            graph = build_graph().compile(checkpointer=checkpointer, name="optimize")
            started = (await graph.aget_state(config)).values
            self.begun = bool(started)
            if "result" not in started:
                check_identity(started.get("plan"))
                await asyncio.to_thread(sit_down, self.directory, started.get("plan"))
                if started.get("plan"):
                    models = started["plan"].models
                    note = await require_endpoint(models, self.directory, resumed=True)
                    if note:
                        watch({"event": "note", "text": note})
                try:
                    async for _, event in graph.astream(
                        None if started.get("plan") else self.request,
                        config,
                        stream_mode="custom",
                        subgraphs=True,
                        durability="sync",
                        control=self.control,
                    ):
                        self.begun = True
                        watch(cast(dict[str, Any], event))
                except GraphDrained as drained:
                    raise Interrupted(self.directory) from drained
                except Paused as paused:
                    best = await self._best(await graph.aget_state(config))
                    raise Capped(self.directory, paused.outcome, paused.reason, best) from paused
                finally:
                    add_seconds(self.directory, time.monotonic() - began)
            ended = await graph.aget_state(config)
            reasons = [
                (kind.outcome, each.value[kind.outcome])
                for each in ended.interrupts
                for kind in PAUSES
                if kind.outcome in each.value
            ]
            if reasons:
                raise Capped(self.directory, *reasons[0], await self._best(ended))
            if ended.interrupts:
                raise Waiting(
                    self.directory, await asyncio.to_thread(count_waiting, self.directory)
                )
            result = ended.values["result"]
        if not isinstance(result, RunResult):
            raise UserError(f"{self.directory} was written by another version; start a new run")
        return result

    async def _best(self, stopped: StateSnapshot) -> BestSoFar | None:
        return await asyncio.to_thread(keep_best, self.directory, stopped.values.get("initial"))


def sit_down(directory: Path, plan: RunPlan | None) -> None:
    """Begin to count working time, and see that a resumed run's models can still be asked.

    Raises:
        UserError: a key is missing, or the directory cannot be written.
    """
    if plan is not None:
        check_models(plan.models)
    with RunStore(directory / "run.sqlite") as store:
        store.ledger.sit_down()


def check_identity(plan: RunPlan | None) -> None:
    """Refuse to go on with another device, compiler or harness than the run began with.

    Raises:
        UserError: they differ: evaluations of the two would be compared.
    """
    if plan is None or plan.identity is None:
        return
    now = open_device(plan.device, plan.gpu).identity
    if now != plan.identity:
        before = plan.identity.model_dump()
        changed = ", ".join(
            f"{name} was {before[name]!r} and is {value!r}"
            for name, value in now.model_dump().items()
            if value != before[name]
        )
        raise UserError(f"this run cannot go on here: {changed}; start a new run")


def read_request(directory: Path) -> OptimizeRequest:
    """Return the request of a run directory.

    Raises:
        UserError: there is no run, or its run.json is not this program's.
    """
    path = directory / "run.json"
    try:
        document = json.loads(path.read_text())
        if document["format"] != RUN_FORMAT:
            raise UserError(
                f"{path} has format {document['format']!r}, this program writes {RUN_FORMAT!r}; "
                "resume it with the version that started it"
            )
        return OptimizeRequest.model_validate(document["request"])
    except FileNotFoundError as error:
        raise UserError(
            f"{directory} is no run directory (no run.json); list runs with: kernelblaster runs"
        ) from error
    except NotADirectoryError as error:
        raise UserError(
            f"{directory} is a file, no run directory; list runs with: kernelblaster runs"
        ) from error
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise UserError(f"{path} is damaged: {error}; start a new run") from error


def add_seconds(directory: Path, seconds: float) -> None:
    """Add working time to the run's total, kept beside the results (it never repeats exactly)."""
    total = read_seconds(directory) + seconds
    write_file(directory / "seconds.json", json.dumps({"seconds": round(total, 3)}) + "\n")


def read_seconds(directory: Path) -> float:
    """Return the run's working time so far, all sessions together."""
    try:
        return float(json.loads((directory / "seconds.json").read_text())["seconds"])
    except (OSError, ValueError, KeyError, TypeError):
        return 0.0


@asynccontextmanager
async def open_checkpointer(directory: Path) -> AsyncIterator[AsyncSqliteSaver]:
    """Open the run's checkpoints; only this project's records come back from them."""
    path = directory / "checkpoints.sqlite"
    try:
        async with aiosqlite.connect(path) as connection:
            yield AsyncSqliteSaver(connection, serde=checkpoint_serializer())
    except aiosqlite.OperationalError as error:
        raise UserError(
            f"cannot write {path}: {error}; free some space, then: kernelblaster resume {directory}"
        ) from error
    except aiosqlite.DatabaseError as error:
        raise UserError(f"{path} is damaged: {error}; start a new run") from error


def checkpoint_serializer() -> JsonPlusSerializer:
    """Return a serializer that refuses every type but the records this project checkpoints."""
    from ..harness import records as harness_records
    from ..memory import records as memory_records
    from ..tools.models import records as model_records

    modules = (harness_records, memory_records, node_records, model_records)
    allowed = [
        (kind.__module__, kind.__name__)
        for module in modules
        for kind in vars(module).values()
        if isinstance(kind, type) and kind.__module__ == module.__name__
    ]
    return JsonPlusSerializer(allowed_msgpack_modules=allowed)


def _take_lock(directory: Path) -> int:
    try:
        descriptor = os.open(directory / "lock", os.O_CREAT | os.O_RDWR, 0o644)
    except OSError as error:
        raise UserError(
            f"cannot write to the run directory {directory}: {error.strerror}"
        ) from error
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError as error:
        os.close(descriptor)
        raise UserError(
            f"the run directory {directory} is in use by another process; "
            "wait for it to end, or choose another with --run"
        ) from error
    return descriptor


def list_runs(root: Path) -> list[dict[str, Any]]:
    """Return the runs under a directory, by name: task, status, and the result when finished."""
    found = []
    for path in sorted(root.glob("*/run.json")):
        directory = path.parent
        try:
            request = read_request(directory)
        except UserError as error:
            found.append({"run": str(directory), "status": "damaged", "reason": str(error)})
            continue
        entry: dict[str, Any] = {
            "run": str(directory),
            "task": request.task,
            "gpu": request.gpu,
            "status": "in use" if _is_locked(directory) else "unfinished",
            "seconds": read_seconds(directory),
        }
        if request.device.startswith("deferred"):
            _add_waiting(entry, directory)
        try:
            result = RunResult.model_validate_json((directory / "result.json").read_text())
        except (OSError, ValueError):
            pass
        else:
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


def _is_locked(directory: Path) -> bool:
    """Say whether a process holds the run; a shared lock, so that looking disturbs nobody."""
    try:
        descriptor = os.open(directory / "lock", os.O_RDONLY)
    except OSError:
        return False
    try:
        fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    finally:
        os.close(descriptor)
    return False
