"""One GPU held for a stage of a candidate: its worker is asked, and blamed only for its own."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import fields
from typing import Any, TypeVar

from ...errors import UserError
from ...host.plan import Plan
from ...judge.border import Malformed, read_report
from ...process.children import Cancelled, caller_cancelled
from ...records.builds import Diagnostic
from ...records.evaluations import StageResult
from ...records.outcomes import Outcome
from ...records.tasks import Task
from ..gpu_lock import SHARED_PART, leaves_room
from ..present_gpus import FoundGpu
from ..reports import About, InputsAnswer, MeasureAnswer, NoAnswer, VerifyAnswer
from .client import GpuWorker, WorkerEnded, WorkerTimedOut
from .inspection import Stage

POLL_SECONDS = 0.01
RUNS_A_CANDIDATE = ("verify", "measure")
"""Requests whose answers a candidate's kernels may have had a hand in."""
TIMES = ("measure",)
"""Requests that nobody may disturb."""
BESIDE_IT = (
    "the GPU's memory does not suffice beside this candidate (its workspace, device variables, "
    "stacks): what verifying and timing it take fits without it"
)

Kind = TypeVar("Kind", VerifyAnswer, MeasureAnswer, InputsAnswer, NoAnswer)


class _Crowded(Exception):
    """What went wrong may come of others on the GPU: it is to be asked again, alone."""


class HeldGpu:
    """A GPU and its worker, with nobody else's request between two of one stage.

    Args:
        fresh: answer the first request from a process that has run no candidate before.
        alone: have nobody else use the GPU during any request.
    """

    def __init__(
        self, gpu: FoundGpu, worker: GpuWorker, limits: Mapping[str, float], fresh: bool,
        alone: bool,
    ) -> None:  # fmt: skip
        self.gpu = gpu
        self.worker = worker
        self._limits = dict(limits)
        self._fresh, self._alone = fresh, alone

    def shares(self, task: Task) -> bool:
        """Say whether others may use the GPU while a task is verified, or prepared to be timed."""
        tensors, memory = task.full.tensors, self.gpu.memory_bytes
        return not self._alone and leaves_room(tensors, memory, SHARED_PART)

    def ask(
        self, task: Task, request: dict[str, Any], kind: type[Kind]
    ) -> Kind | StageResult:
        """Return the worker's answer, of a kind, or the failure of a candidate that ended it.

        Raises UserError for faults of the task or the machine.
        """
        if request["op"] not in TIMES and self.shares(task):
            try:
                return self._asked(task, request, kind, alone=False)
            except _Crowded:
                self._fresh = True
        return self._asked(task, request, kind, alone=True)

    def _asked(
        self, task: Task, request: dict[str, Any], kind: type[Kind], *, alone: bool
    ) -> Kind | StageResult:
        """Do what `ask` does; raises _Crowded too where others may have caused what went wrong."""
        body = {**request, "task": task.model_dump(mode="json")}
        fresh, self._fresh = self._fresh, False
        try:
            about, answer = self._request(body, fresh, kind, alone)
            if about.crowded and (about.out_of_memory or _found_no_room(answer)):
                raise _Crowded
            if about.out_of_memory and about.candidate_loaded:
                self._require_room(body)
                # Others, who know nothing of the lock, may have had that memory until now.
                about, answer = self._request(body, True, kind, alone=True)
                if about.out_of_memory and about.candidate_loaded:
                    return _failure(Outcome.CRASHED, BESIDE_IT)
        except WorkerTimedOut as error:
            if error.crowded:
                raise _Crowded from error
            if error.stage == "candidate":
                reason = f"{error.reason}: a loop that does not end, or far too much work"
                return _failure(Outcome.TIMED_OUT, reason)
            raise UserError(f"{task.path}: PyTorch's reference {error.reason}") from error
        except WorkerEnded as error:
            if error.candidate_loaded:
                return _failure(Outcome.CRASHED, error.reason)
            raise UserError(
                f"{task.path}: the reference ended the worker: {error.reason}"
            ) from error
        error_words = about.task_error or about.worker_error
        if error_words and about.broken and about.candidate_loaded:
            return _failure(Outcome.CRASHED, f"the GPU's context is lost: {error_words}")
        if about.task_error:
            raise UserError(f"{task.path}: {about.task_error}")
        if about.worker_error:
            raise UserError(f"{task.path}: evaluating it fails on the GPU: {about.worker_error}")
        if isinstance(answer, Malformed):
            if request["op"] in RUNS_A_CANDIDATE:
                return answer.failure()
            raise UserError(f"{task.path}: the GPU's worker gives no answer that can be: {answer}")
        return answer

    def inspection_stage(self, task: Task) -> Stage | str:
        """Return what a program outside the worker needs to run a candidate, or why there is none.

        The inputs are those of the worker, from its files.
        """
        answer = self.ask(task, {"op": "inputs"}, InputsAnswer)
        if isinstance(answer, StageResult):
            return answer.reason
        if answer.no_inputs:
            return answer.no_inputs
        return Stage(
            gpu_uuid=self.gpu.uuid,
            gpu=self.gpu.name,
            memory_bytes=self.gpu.memory_bytes,
            inputs=answer.inputs,
        )

    def circumstances(self, *plans: Plan) -> dict[str, float | int | str]:
        """Return what of their isolation this machine does not offer to the processes."""
        words = list(self.worker.hello().get("isolation_missing", ()))
        words += [missing for plan in plans for missing in plan.isolation_missing]
        missing = "; ".join(dict.fromkeys(words))
        return {"isolation_missing": missing} if missing else {}

    def _require_room(self, body: dict[str, Any]) -> None:
        """Have the trusted work done without the candidate beside which it found no memory.

        Raises UserError where that does not fit either; WorkerEnded.
        """
        rehearsal = {"op": "rehearse", "of": body["op"], "task": body["task"]}
        request = self.worker.request(rehearsal, **self._limits, fresh=True, alone=True)
        alone, _ = _read(request, NoAnswer)
        words = alone.task_error or alone.worker_error
        if words:
            raise UserError(f"{body['task']['path']}: {words}")

    def _request(
        self, body: dict[str, Any], fresh: bool, kind: type[Kind], alone: bool
    ) -> tuple[About, Kind | Malformed]:
        """Ask; once more in a new process where trusted work failed in a used one.

        An earlier candidate may have damaged that process: nobody else pays for it.
        """
        starts = self.worker.starts

        def answered(fresh: bool) -> tuple[About, Kind | Malformed]:
            return _read(
                self.worker.request(body, **self._limits, fresh=fresh, alone=alone), kind
            )

        try:
            about, answer = answered(fresh)
        except WorkerEnded as error:
            if error.stage == "candidate" or fresh or self.worker.starts != starts:
                raise
            return answered(fresh=True)
        suspicious = (
            isinstance(answer, Malformed)
            or about.worker_error
            or about.out_of_memory
            or (about.broken and not answer.explains)
        )
        if suspicious and not fresh and self.worker.starts == starts:
            return answered(fresh=True)
        return about, answer


@contextmanager
def hold_one(
    gpus: Sequence[tuple[FoundGpu, GpuWorker]], limits: Mapping[str, float], fresh: bool,
    alone: bool,
) -> Iterator[HeldGpu]:  # fmt: skip
    """Hold the first GPU that is free, waiting for one where none is. Raises Cancelled."""
    while True:
        for gpu, worker in gpus:
            if worker.reservation.acquire(blocking=False):
                try:
                    yield HeldGpu(gpu, worker, limits, fresh, alone)
                finally:
                    worker.reservation.release()
                return
        if caller_cancelled():
            raise Cancelled
        time.sleep(POLL_SECONDS)


def _read(answer: dict[str, Any], kind: type[Kind]) -> tuple[About, Kind | Malformed]:
    """Return the two parts of an answer. One about a failure has no second: that is then empty."""
    of_all = {field.name for field in fields(About)}
    try:
        about = read_report(About, {k: v for k, v in answer.items() if k in of_all})
        # What leaked is for who asked the worker: it is negative where memory was given back.
        rest = {k: v for k, v in answer.items() if k not in of_all | {"leaked_bytes"}}
        return about, read_report(kind, rest)
    except Malformed as malformed:
        return About(), malformed


def _found_no_room(answer: Any) -> bool:
    """Whether a candidate was refused memory, among other reasons for which a launch is invalid."""
    cases = answer.cases if isinstance(answer, VerifyAnswer) else []
    return any(kind == "invalid_launch" for case in cases for kind, _ in case.faults)


def _failure(outcome: Outcome, reason: str) -> StageResult:
    return StageResult(
        outcome=outcome, reason=reason,
        diagnostics=(Diagnostic(kind=str(outcome), message=reason),),
    )  # fmt: skip
