"""One GPU held for a stage of a candidate: its worker is asked, and blamed only for its own."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

from ..errors import UserError
from ..process.children import Cancelled, caller_cancelled
from ..records import Diagnostic, Outcome, StageResult, Task
from .client import GpuWorker, WorkerEnded, WorkerTimedOut
from .inspection import Stage
from .present_gpus import FoundGpu

POLL_SECONDS = 0.01


class HeldGpu:
    """A GPU and its worker, with nobody else's request between two of one stage.

    Args:
        fresh: answer the first request from a process that has run no candidate before.
    """

    def __init__(
        self, gpu: FoundGpu, worker: GpuWorker, limits: Mapping[str, float], fresh: bool
    ) -> None:
        self.gpu = gpu
        self.worker = worker
        self._limits = dict(limits)
        self._fresh = fresh

    def ask(self, task: Task, request: dict[str, Any]) -> dict[str, Any] | StageResult:
        """Return the worker's answer, or the failure of a candidate that ended it.

        Raises UserError for faults of the task or the machine.
        """
        body = {**request, "task": task.model_dump(mode="json")}
        fresh, self._fresh = self._fresh, False
        try:
            answer = self._request(body, fresh)
            if answer.get("out_of_memory") and answer["candidate_loaded"]:
                return self._blamed_for_memory(body)
        except WorkerTimedOut as error:
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
        error_words = answer.get("task_error") or answer.get("worker_error")
        if error_words and answer["broken"] and answer["candidate_loaded"]:
            return _failure(Outcome.CRASHED, f"the GPU's context is lost: {error_words}")
        if "task_error" in answer:
            raise UserError(f"{task.path}: {answer['task_error']}")
        if "worker_error" in answer:
            raise UserError(
                f"{task.path}: evaluating it fails on the GPU: {answer['worker_error']}"
            )
        return answer

    def inspection_stage(self, task: Task) -> Stage | str:
        """Return what a program outside the worker needs to run a candidate, or why there is none.

        The inputs are those of the worker, from its files.
        """
        answer = self.ask(task, {"op": "inputs"})
        if isinstance(answer, StageResult):
            return answer.reason
        if "no_inputs" in answer:
            return str(answer["no_inputs"])
        return Stage(
            gpu_uuid=self.gpu.uuid,
            gpu=self.gpu.name,
            runtime=str(self.worker.hello()["runtime"]),
            inputs=answer["inputs"],
        )

    def circumstances(self) -> dict[str, float | int | str]:
        """Return what of the process's isolation this machine does not offer."""
        missing = "; ".join(self.worker.hello().get("isolation_missing", ()))
        return {"isolation_missing": missing} if missing else {}

    def _blamed_for_memory(self, body: dict[str, Any]) -> StageResult:
        """Return the failure of a candidate beside which the trusted work finds no memory.

        Raises UserError where that work does not fit alone either; WorkerEnded.
        """
        rehearsal = {"op": "rehearse", "of": body["op"], "task": body["task"]}
        alone = self.worker.request(rehearsal, **self._limits, fresh=True)
        words = alone.get("task_error") or alone.get("worker_error")
        if words:
            raise UserError(f"{body['task']['path']}: {words}")
        return _failure(
            Outcome.CRASHED,
            "the GPU's memory does not suffice beside this candidate (its workspace, device "
            "variables, stacks): what verifying and timing it take fits without it",
        )

    def _request(self, body: dict[str, Any], fresh: bool) -> dict[str, Any]:
        """Ask; once more in a new process where trusted work failed in a used one.

        An earlier candidate may have damaged that process: nobody else pays for it.
        """
        starts = self.worker.starts
        try:
            answer = self.worker.request(body, **self._limits, fresh=fresh)
        except WorkerEnded as error:
            if error.stage == "candidate" or fresh or self.worker.starts != starts:
                raise
            return self.worker.request(body, **self._limits, fresh=True)
        suspicious = (
            "worker_error" in answer
            or answer.get("out_of_memory")
            or (answer.get("broken") and not _explained(answer))
        )
        if suspicious and not fresh and self.worker.starts == starts:
            return self.worker.request(body, **self._limits, fresh=True)
        return answer


@contextmanager
def hold_one(
    gpus: Sequence[tuple[FoundGpu, GpuWorker]], limits: Mapping[str, float], fresh: bool
) -> Iterator[HeldGpu]:
    """Hold the first GPU that is free, waiting for one where none is. Raises Cancelled."""
    while True:
        for gpu, worker in gpus:
            if worker.reservation.acquire(blocking=False):
                try:
                    yield HeldGpu(gpu, worker, limits, fresh)
                finally:
                    worker.reservation.release()
                return
        if caller_cancelled():
            raise Cancelled
        time.sleep(POLL_SECONDS)


def _explained(answer: dict[str, Any]) -> bool:
    """Whether the candidate's own work is what broke the context."""
    cases = [*answer.get("cases", ()), *([answer["case"]] if "case" in answer else [])]
    return any(case["faults"] for case in cases)


def _failure(outcome: Outcome, reason: str) -> StageResult:
    return StageResult(
        outcome=outcome, reason=reason,
        diagnostics=(Diagnostic(kind=str(outcome), message=reason),),
    )  # fmt: skip
