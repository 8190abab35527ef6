"""One run in one directory: lock it, checkpoint it, stream its progress, drain it, resume it."""

from __future__ import annotations

import asyncio
import copy
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, cast, get_args

from langchain_core.runnables import RunnableConfig
from langgraph.checkpoint.base import BaseCheckpointSaver
from langgraph.errors import GraphDrained
from langgraph.runtime import RunControl
from langgraph.types import Command, StateSnapshot

from ..harness.devices.job_records import counted
from ..harness.devices.registry import open_device
from ..harness.errors import UserError, in_shell
from ..memory.run.directory import CHECKPOINTS_FILE
from ..memory.run.exchange import count_waiting
from ..memory.run.journal import Entry, latest
from ..memory.run.ledger import Ledger
from ..nodes.common.policies import graph_name
from ..nodes.common.workspaces import workspace_of
from ..nodes.records.plan import Approval, OptimizeRequest, RunContext, RunPlan
from ..nodes.records.result import RunResult
from ..nodes.run.beginning.begin import begin_run, changed_since, given_texts, resolve_plan, take_up
from ..nodes.run.ending.report import stored_result
from ..nodes.run.reading.best_so_far import BestSoFar, keep_best
from ..tools.models.chat_models import check_models
from ..tools.models.endpoint import require_endpoint
from ..tools.models.pauses import PAUSES, Paused
from ..tools.workspace import open_runs
from .checkpoints import open_checkpointer
from .policies import policy_graph
from .state import OptimizeInput

THREAD = "run"


class Interrupted(Exception):
    """The run was asked to stop and has saved its place; `directory` resumes it."""

    def __init__(self, directory: Path) -> None:
        super().__init__(f"stopped; resume with: kernelblaster resume {in_shell(directory)}")
        self.directory = directory


class Waiting(Exception):
    """The run has saved its place and goes on when jobs have results from another host."""

    def __init__(self, directory: Path, jobs: int) -> None:
        super().__init__(
            f"{counted(jobs)} {'waits' if jobs == 1 else 'wait'} for the GPU host; export with: "
            f"kernelblaster jobs export {in_shell(directory)} -o jobs.json"
        )
        self.directory = directory
        self.jobs = jobs


class Undecided(Exception):
    """The run has saved its place and goes on when a person has decided: `answers` of `run`."""

    def __init__(self, directory: Path, questions: Mapping[str, dict[str, Any]]) -> None:
        super().__init__(
            "; ".join(question["asks"] for question in questions.values())
            + f" Answer with: kernelblaster resume {in_shell(directory)} --answer accept"
        )
        self.directory = directory
        self.questions = questions
        """What is asked, by the id to answer under: `nodes.common.stopping.questions` as JSON."""


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

    Use `Session.create` for a new run and `Session.open` for one to resume; both hold the
    directory until `close`, or until the process dies, however it dies.
    """

    def __init__(self, plan: RunPlan, *, made: bool) -> None:
        """Take a run that `begin_run` has made, or `take_up` has opened."""
        self.plan = plan
        self._made = made
        self.directory = Path(plan.run)
        self.control = RunControl()
        self.resumed = (self.directory / CHECKPOINTS_FILE).exists()
        self.begun = False
        """The request can be served; before that nothing is evaluated, and nobody is asked."""

    @classmethod
    def create(cls, request: OptimizeRequest, context: RunContext | None = None) -> Session:
        """Lay out a new run directory.

        Raises:
            UserError: what is asked cannot be served here, or the directory holds something
                already, is in use, or cannot be written.
        """
        plan = resolve_plan(request, context or RunContext())
        named = request.run is not None
        begun = begin_run(plan, given_texts(request), named=named, until_released=True)
        return cls(begun, made=True)

    @classmethod
    def open(cls, directory: Path, knowledge: Path | None = None) -> Session:
        """Open a run directory to resume it.

        Args:
            directory: of the run.
            knowledge: where its knowledge base lies, if no longer where it was.

        Raises:
            UserError: it is no run directory, of another version, was moved and cannot go on, or
                is in use; or there is no such knowledge base.
        """
        return cls(take_up(directory.resolve(), knowledge), made=False)

    def discard_unserved(self) -> None:
        """Remove the directory of a new run that could not begin: there is nothing to go on from.

        A directory that was there before is left alone.
        """
        if self._made and not self.begun:
            open_runs().discard(self.directory)

    def close(self) -> None:
        """Let the directory go."""
        open_runs().release(self.directory)

    def drain(self) -> None:
        """Ask the run to stop at the next step, with its place saved. Safe in a signal handler."""
        self.control.request_drain("interrupted")

    async def questions(self) -> dict[str, dict[str, Any]]:
        """Return what a person was asked when the run stopped, by the id to answer under."""
        with open_checkpointer(self.directory) as checkpointer:
            graph = self._graph(checkpointer)
            return _questions(await graph.aget_state(_config()))

    async def run(
        self,
        watch: Callable[[dict[str, Any]], None] = lambda event: None,
        answers: Mapping[str, Any] | None = None,
    ) -> RunResult:
        """Start the run, or go on where its last checkpoint stands; return its result.

        `watch` receives every progress event; `answers` are a person's, by the id of the question.

        Raises:
            UserError: the request cannot be served.
            Interrupted: `drain` was called and the place is saved.
            Undecided: no rollout can go on without a person's decision.
            Waiting: no rollout can go on without results from another host.
            Capped: no rollout can go on without a higher cap, or without its model.
        """
        config = _config()
        with open_checkpointer(self.directory) as checkpointer:
            graph = self._graph(checkpointer)
            started = (await graph.aget_state(config)).values
            if not started.get("plan") and (
                entries := await asyncio.to_thread(self._journal)
            ):
                # Its checkpoints lie elsewhere, or name the place that it was moved from.
                last = next(each for each in reversed(entries) if each.node != "rollout")
                known = latest(entries) | {"plan": self.plan}
                # A node that several policies share may write what this graph has no key for.
                known = {name: known[name] for name in graph.stream_channels_list if name in known}
                await graph.aupdate_state(config, known, as_node=last.node)
                started = (await graph.aget_state(config)).values
            self.begun = bool(started)
            if "result" not in started:
                await asyncio.to_thread(check_identity, self.plan)
                check_models(self.plan.models)
                await asyncio.to_thread(self._check_knowledge, started.get("knowledge_at", 0))
                await asyncio.to_thread(self._note, Ledger.sit_down)
                if started.get("plan"):
                    reached = await require_endpoint(self.plan.models, self.directory, resumed=True)
                    changed = await asyncio.to_thread(changed_since, self.plan)
                    for note in filter(None, (reached, changed)):
                        watch({"event": "note", "text": note})
                try:
                    async for _, event in graph.astream(
                        Command(resume=dict(answers)) if answers
                        else None if started.get("plan") else self._request(),
                        config,
                        stream_mode="custom",
                        subgraphs=True,
                        durability="sync",
                        control=self.control,
                    ):
                        # That PyTorch is still at work is told before it is known what can be done.
                        self.begun = self.begun or cast(dict[str, Any], event)["event"] != "note"
                        watch(cast(dict[str, Any], event))
                except GraphDrained as drained:
                    raise Interrupted(self.directory) from drained
                except Paused as paused:
                    best = await self._best(await graph.aget_state(config))
                    raise Capped(self.directory, paused.outcome, paused.reason, best) from paused
                finally:  # Also where this is cancelled: then nothing can be awaited.
                    self._note(Ledger.still_working)
            ended = await graph.aget_state(config)
            if asked := _questions(ended):
                raise Undecided(self.directory, asked)
            pauses = {kind.outcome for kind in PAUSES}
            for each in ended.interrupts:
                if each.value["kind"] in pauses:
                    kind, reason = each.value["kind"], each.value["reason"]
                    raise Capped(self.directory, kind, reason, await self._best(ended))
            if ended.interrupts:
                raise Waiting(
                    self.directory, await asyncio.to_thread(count_waiting, self.directory)
                )
            result = ended.values.get("result")
        if not isinstance(result, RunResult):
            raise UserError(f"{self.directory} was written by another version; start a new run")
        return await asyncio.to_thread(stored_result, self.directory) or result

    def _graph(self, checkpointer: BaseCheckpointSaver[Any]) -> Any:
        """Return the graph that the run follows, with its checkpoints."""
        followed = copy.copy(policy_graph(self.plan.policy))  # Compiling takes as long as a step.
        followed.checkpointer, followed.name = checkpointer, graph_name(self.plan.policy)
        return followed

    def _check_knowledge(self, at: int) -> None:
        """Raises UserError where the knowledge base is not the one that the run read."""
        with workspace_of(self.plan) as workspace:
            if workspace.knowledge.sequence() < at:
                raise UserError(
                    f"the knowledge base {self.plan.knowledge} holds less than when this run read "
                    "it; restore it, or start a new run"
                )

    def _request(self) -> OptimizeInput:
        asked = self.plan.model_dump(include=set(OptimizeRequest.model_fields))
        return cast(OptimizeInput, asked)

    def _journal(self) -> list[Entry]:
        with workspace_of(self.plan) as workspace:
            return workspace.store.journal.entries()

    def _note(self, note: Callable[[Ledger], None]) -> None:
        with workspace_of(self.plan) as workspace:
            note(workspace.store.ledger)

    async def _best(self, stopped: StateSnapshot) -> BestSoFar | None:
        return await asyncio.to_thread(keep_best, self.directory, stopped.values.get("initial"))


def _config() -> RunnableConfig:
    return {"configurable": {"thread_id": THREAD}}


def _questions(stopped: StateSnapshot) -> dict[str, dict[str, Any]]:
    """Return what only a person can decide, rollouts in order, by the id to answer under."""
    asked = {
        each.id: each.value
        for each in stopped.interrupts
        if isinstance(each.value, dict) and each.value.get("kind") in get_args(Approval)
    }
    return dict(sorted(asked.items(), key=lambda item: item[1].get("rollout", 0)))


def check_identity(plan: RunPlan) -> None:
    """Refuse to go on with another device, compiler or harness than the run began with.

    Raises:
        UserError: they differ: evaluations of the two would be compared.
    """
    now = open_device(plan.device, plan.gpu).identity
    if now != plan.identity:
        before = plan.identity.model_dump()
        changed = ", ".join(
            f"{name} was {before[name]!r} and is {value!r}"
            for name, value in now.model_dump().items()
            if value != before[name]
        )
        raise UserError(f"this run cannot go on here: {changed}; start a new run")
