"""A real NVIDIA GPU as a device: candidates run in its worker process, at full dimensions."""

from __future__ import annotations

import secrets
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from .. import timing
from ..contract import header
from ..cuda.client import (
    CANDIDATE_SECONDS,
    REFERENCE_SECONDS,
    GpuWorker,
    WorkerEnded,
    WorkerTimedOut,
    shared_worker,
)
from ..cuda.gpus import FoundGpu, find_gpus
from ..cuda.pytorch import require_matching_torch, torch_version
from ..errors import UserError
from ..processes import off_loop
from ..records import (
    Build,
    DeviceIdentity,
    Diagnostic,
    Outcome,
    Profile,
    Provenance,
    Record,
    StageResult,
    Task,
    Timing,
)
from ..timing import Ratio, Stopping
from ..toolchain import Toolchain, build_now, find_toolchain
from .event_profile import event_profile
from .findings import judge, judge_build
from .protocol import Measurement

METHOD = "cuda events, L2 flushed, inputs fresh, interleaved with PyTorch eager"
PRECISION_LOSS = 100.0
"""A candidate this many times as far from the double-precision answer as PyTorch is computes in
less than the task's precision: reported, not refused. TF32 in a float32 task gives thousands,
another order of summation tens."""
MOST_DIAGNOSTICS = 5

Facts = dict[str, float | int | str]
Profiler = Callable[[Task, Build], Profile | None]


class Comparison(Record):
    """How two sources compare, measured in the same rounds."""

    stage: StageResult
    ratio: Ratio | None = None
    """First over second; None where the stage did not pass."""
    first: Timing | None = None
    second: Timing | None = None


class CudaDevice:
    """Evaluates candidates on a GPU of this machine.

    Args:
        gpu_index: which of the GPUs that CUDA_VISIBLE_DEVICES leaves, counted from 0.
        toolchain: the CUDA compiler; found on this machine when not given.
        candidate_seconds: wall-clock limit of one stage of a candidate (a case's two runs, or one
            timed round).
        reference_seconds: limit of each stage of PyTorch's own work.
        stopping: when a measurement is precise enough.
        with_compile: whether torch.compile is measured beside eager. Compiling takes seconds,
            once for each task and worker.
        profiler: gives a profile with hardware counters; without one, or where it gives none,
            the profile holds event times and static facts.
        worker: process beside the GPU; by default the one that this process shares.

    Raises:
        UserError: no such GPU, no driver, no compiler.
    """

    def __init__(
        self,
        gpu_index: int = 0,
        *,
        toolchain: Toolchain | None = None,
        candidate_seconds: float = CANDIDATE_SECONDS,
        reference_seconds: float = REFERENCE_SECONDS,
        stopping: Stopping | None = None,
        with_compile: bool = True,
        profiler: Profiler | None = None,
        worker: GpuWorker | None = None,
        gpus: Sequence[FoundGpu] | None = None,
    ) -> None:
        self.gpu = _chosen(gpu_index, find_gpus() if gpus is None else gpus)
        self._toolchain = toolchain or find_toolchain()
        require_matching_torch(self._toolchain)
        self._limits = {
            "candidate_seconds": candidate_seconds,
            "reference_seconds": reference_seconds,
        }
        self._stopping = stopping or Stopping()
        self._with_compile = with_compile
        self._profiler = profiler
        self._worker = worker or shared_worker(self.gpu.uuid)
        self._fresh = False

    @property
    def identity(self) -> DeviceIdentity:
        """What this device is: part of every evaluation's key."""
        return DeviceIdentity(
            kind="cuda",
            gpu=self.gpu.name,
            arch=self.gpu.arch,
            toolchain=f"{self._toolchain.identity}, driver {self.gpu.driver}, "
            f"PyTorch {torch_version()}",
        )

    @property
    def worker(self) -> GpuWorker:
        """The process beside the GPU."""
        return self._worker

    async def compile(self, task: Task, source: str) -> StageResult:
        """Compile the source for this GPU and check what its host half asks for."""
        return await off_loop(self._compile, task, source)

    async def verify(self, task: Task, source: str) -> StageResult:
        """Run every case at full dimensions, twice, and compare with PyTorch on the GPU."""
        return await off_loop(self._verify, task, source)

    async def profile(self, task: Task, source: str, sample: int = 0) -> Measurement:
        """Time the candidate in the same rounds as PyTorch, and describe its launches.

        All of the work is measured: `sample` makes no difference.
        """
        return await off_loop(self._profile, task, source)

    async def compare(self, task: Task, first: str, second: str) -> Comparison:
        """Time two sources in the same rounds: the way to know which is faster."""
        return await off_loop(self._compare, task, first, second)

    def renew(self) -> None:
        """Answer the next request from a process that has run no candidate before."""
        self._fresh = True

    def _compile(self, task: Task, source: str) -> StageResult:
        built = self._build(task, source)
        return judge_build(built) or StageResult(outcome=Outcome.PASSED, build=built)

    def _verify(self, task: Task, source: str) -> StageResult:
        built = self._build(task, source)
        refused = judge_build(built)
        if refused:
            return refused
        began = time.monotonic()
        answer = self._ask(task, {"op": "verify", "library": _library(built)})
        if isinstance(answer, StageResult):
            return answer.model_copy(update={"build": built})
        result = self._judge(answer, time.monotonic() - began)
        return result.model_copy(update={"build": built})

    def _judge(self, answer: dict[str, Any], seconds: float) -> StageResult:
        """Return the verdict on a verification that the worker finished."""
        if "degenerate" in answer:
            reason = f"the task cannot tell right from wrong: {answer['degenerate']}"
            return StageResult(outcome=Outcome.DEGENERATE_TASK, reason=reason)
        for case in answer["cases"]:
            failed = judge(case)
            if failed:
                return failed
        if answer["mismatches"]:
            found = tuple(
                Diagnostic(kind="mismatch", message=f"{message} (case {case})")
                for case, message in answer["mismatches"][:MOST_DIAGNOSTICS]
            )
            return StageResult(
                outcome=Outcome.WRONG_ANSWER, reason=found[0].message, diagnostics=found
            )
        if answer["repeat"]:
            case, message = answer["repeat"]
            reason = f"two runs on the same input disagree: {message} (case {case})"
            return StageResult(
                outcome=Outcome.NONDETERMINISTIC, reason=reason,
                diagnostics=(Diagnostic(kind="nondeterministic", message=reason),),
            )  # fmt: skip
        facts: Facts = {**answer["facts"], **self._circumstances(), "verify_seconds": seconds}
        ratio = float(facts["precision_ratio"])
        lost = Diagnostic(
            kind="precision_loss",
            message=f"error against double precision is {ratio:.0f} times PyTorch's own: computed "
            "in less than the task's precision",
        )
        return StageResult(
            outcome=Outcome.PASSED,
            facts=facts,
            diagnostics=(lost,) if ratio > PRECISION_LOSS else (),
        )

    def _profile(self, task: Task, source: str) -> Measurement:
        built = self._build(task, source)
        refused = judge_build(built)
        if refused:
            return Measurement(stage=refused)
        began = time.monotonic()
        answer = self._measure(task, {"candidate": built})
        if isinstance(answer, StageResult):
            return Measurement(stage=answer.model_copy(update={"build": built}))
        if not answer["launches"]:
            reason = "launch() started no kernel: there is nothing to profile"
            stage = StageResult(
                outcome=Outcome.PROFILER_UNAVAILABLE, reason=reason, build=built,
                diagnostics=(Diagnostic(kind="no_launch", message=reason),),
            )  # fmt: skip
            return Measurement(stage=stage)
        facts = self._baseline_facts(answer) | {"measure_seconds": time.monotonic() - began}
        profile = self._profiler(task, built) if self._profiler else None
        return Measurement(
            stage=StageResult(outcome=Outcome.PASSED, build=built, facts=facts),
            timing=_timing(answer["samples"]["candidate"]),
            profile=profile
            or event_profile(task, built, answer["launches"], self.gpu.name, self._worker.hello()),
        )

    def _compare(self, task: Task, first: str, second: str) -> Comparison:
        builds = {"first": self._build(task, first), "second": self._build(task, second)}
        for built in builds.values():
            refused = judge_build(built)
            if refused:
                return Comparison(stage=refused)
        answer = self._measure(task, builds)
        if isinstance(answer, StageResult):
            return Comparison(stage=answer)
        samples = answer["samples"]
        return Comparison(
            stage=StageResult(outcome=Outcome.PASSED, facts=self._circumstances()),
            ratio=timing.compare(samples["first"], samples["second"]),
            first=_timing(samples["first"]),
            second=_timing(samples["second"]),
        )

    def _measure(self, task: Task, builds: Mapping[str, Build]) -> dict[str, Any] | StageResult:
        """Return the worker's samples, or why a candidate could not be timed."""
        request = {
            "op": "measure",
            "libraries": {name: _library(built) for name, built in builds.items()},
            "stopping": self._stopping.model_dump(),
            "seed": secrets.randbelow(1 << 31),
            "with_compile": self._with_compile and len(builds) == 1,
            "with_eager": len(builds) == 1,
        }
        answer = self._ask(task, request)
        if isinstance(answer, StageResult) or "failed" not in answer:
            return answer
        failed = judge(answer["case"])
        if failed is None:
            reason = f"{answer['mismatch']}, though verification passed"
            failed = StageResult(
                outcome=Outcome.WRONG_ANSWER, reason=reason,
                diagnostics=(Diagnostic(kind="mismatch", message=reason),),
            )  # fmt: skip
        return failed

    def _baseline_facts(self, answer: dict[str, Any]) -> Facts:
        """Return the baselines of the same rounds, and how the candidate compares with them."""
        samples = answer["samples"]
        facts: Facts = {
            "rounds": len(samples["candidate"]),
            "timed_answers_checked": int(answer["checked"]),
            "input_sets": int(answer["sets"]),
            **self._circumstances(),
        }
        best, against = "", None
        for name in ("eager", "compile"):
            if name not in samples:
                continue
            median = timing.summary(samples[name])["median"]
            facts[f"{name}_us"] = median
            if against is None or median < against:
                best, against = name, median
        if answer["compile_failure"]:
            facts["compile_failure"] = str(answer["compile_failure"])
        ratio = timing.compare(samples["candidate"], samples[best])
        return facts | {
            "baseline": best,
            "speedup": 1 / ratio.ratio,
            "speedup_low": 1 / ratio.interval[1],
            "speedup_high": 1 / ratio.interval[0],
            "ratio_half_width": ratio.half_width,
        }

    def _circumstances(self) -> Facts:
        missing = "; ".join(self._worker.hello().get("isolation_missing", ()))
        return {"isolation_missing": missing} if missing else {}

    def _ask(self, task: Task, request: dict[str, Any]) -> dict[str, Any] | StageResult:
        """Return the worker's answer, or the failure of a candidate that ended it.

        Raises UserError for faults of the task or the machine.
        """
        body = {**request, "task": task.model_dump(mode="json")}
        fresh, self._fresh = self._fresh, False
        try:
            answer = self._request(body, fresh)
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

    def _request(self, body: dict[str, Any], fresh: bool) -> dict[str, Any]:
        """Ask; once more in a new process where trusted work failed in a used one.

        An earlier candidate may have damaged that process: nobody else pays for it.
        """
        starts = self._worker.starts
        try:
            answer = self._worker.request(body, **self._limits, fresh=fresh)
        except WorkerEnded as error:
            if error.stage == "candidate" or fresh or self._worker.starts != starts:
                raise
            return self._worker.request(body, **self._limits, fresh=True)
        suspicious = "worker_error" in answer or (answer.get("broken") and not _explained(answer))
        if suspicious and not fresh and self._worker.starts == starts:
            return self._worker.request(body, **self._limits, fresh=True)
        return answer

    def _build(self, task: Task, source: str) -> Build:
        return build_now(self._toolchain, source, header(task.full), self.gpu.arch)


def _chosen(index: int, gpus: Sequence[FoundGpu]) -> FoundGpu:
    if not 0 <= index < len(gpus):
        listed = ", ".join(f"{number}: {gpu.name}" for number, gpu in enumerate(gpus))
        raise UserError(f"there is no GPU {index}; this machine has {listed}")
    return gpus[index]


def _explained(answer: dict[str, Any]) -> bool:
    """Whether the candidate's own work is what broke the context."""
    cases = [*answer.get("cases", ()), *([answer["case"]] if "case" in answer else [])]
    return any(case["faults"] for case in cases)


def _failure(outcome: Outcome, reason: str) -> StageResult:
    return StageResult(
        outcome=outcome, reason=reason,
        diagnostics=(Diagnostic(kind=str(outcome), message=reason),),
    )  # fmt: skip


def _timing(samples: Sequence[float]) -> Timing:
    found = timing.summary(samples)
    return Timing(
        microseconds=found["median"], samples=tuple(samples),
        interval=(found["low"], found["high"]), method=METHOD, provenance=Provenance.EVENTS,
    )  # fmt: skip


def _library(built: Build) -> str:
    return str(Path(built.directory, "candidate.so"))
