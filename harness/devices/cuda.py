"""A real NVIDIA GPU as a device: candidates run in its worker process, at full dimensions."""

from __future__ import annotations

import copy
import secrets
import time
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import asdict
from pathlib import Path
from typing import Any

from pydantic import TypeAdapter

from ..build.toolchain import Toolchain, build_now, find_toolchain
from ..cuda.parent.answers import (
    Facts,
    baseline_facts,
    in_seconds,
    timing_failure,
    timing_of,
    verdict,
)
from ..cuda.parent.client import CANDIDATE_SECONDS, REFERENCE_SECONDS, GpuWorker, shared_worker
from ..cuda.parent.event_profile import event_profile
from ..cuda.parent.held_gpu import HeldGpu, hold_one
from ..cuda.parent.inspection import SMALL_SECONDS, profile_candidate, sanitize_candidate
from ..cuda.present_gpus import FoundGpu, find_gpus
from ..cuda.reports import LaunchAnswer, MeasureAnswer, NoAnswer, VerifyAnswer
from ..errors import UserError
from ..host.plan import Plan
from ..host.planning import Asked, plan_launch
from ..host.process import host_program
from ..host.properties import GpuProperties
from ..judge import timing
from ..judge.border import Malformed
from ..judge.findings import judge_build, no_launch
from ..judge.timing import Stopping
from ..process.children import off_loop
from ..records.builds import Build
from ..records.evaluations import DeviceIdentity, StageResult
from ..records.outcomes import Outcome
from ..records.profiles import Profile
from ..records.tasks import Task
from ..task.claims import ClaimedInput
from ..task.contract import header
from ..task.pytorch import require_matching_torch, torch_version
from .protocol import CONFIRM_SECONDS, Capability, Comparison, Device, Measurement


class CudaDevice(Device):
    """Evaluates candidates on GPUs of this machine.

    Each stage goes to the first GPU that is free, and stays there.

    Args:
        indexes: which of the GPUs that CUDA_VISIBLE_DEVICES leaves, counted from 0; of one model.
        toolchain: the CUDA compiler; found on this machine when not given.
        candidate_seconds: wall-clock limit of one stage of a candidate (a case's two runs, or one
            timed round).
        reference_seconds: limit of each stage of PyTorch's own work.
        stopping: when a measurement is precise enough.
        with_compile: whether torch.compile is measured beside eager. Compiling takes seconds;
            once it was timed on this machine, its time is told from eager's.
        with_counters: whether Nsight Compute is asked for hardware counters. Where it is not, or
            cannot give them, the profile holds event times and static facts.
        workers: processes beside the GPUs; by default those that this process shares.

    Raises:
        UserError: no such GPU, GPUs of different models, no driver, no compiler.
    """

    def __init__(
        self,
        indexes: Sequence[int] = (0,),
        *,
        toolchain: Toolchain | None = None,
        candidate_seconds: float = CANDIDATE_SECONDS,
        reference_seconds: float = REFERENCE_SECONDS,
        stopping: Stopping | None = None,
        with_compile: bool = True,
        with_counters: bool = True,
        workers: Sequence[GpuWorker] | None = None,
        gpus: Sequence[FoundGpu] | None = None,
    ) -> None:
        self.gpus = _chosen(indexes, find_gpus() if gpus is None else gpus)
        self._toolchain = toolchain or find_toolchain()
        require_matching_torch(self._toolchain)
        self._limits = {
            "candidate_seconds": candidate_seconds,
            "reference_seconds": reference_seconds,
        }
        self._stopping = stopping or Stopping()
        self._with_compile = with_compile
        self._with_counters = with_counters
        self.confirm_seconds = CONFIRM_SECONDS
        """Limit of Compute Sanitizer at full dimensions; 0: not there. At small ones it is run in
        any case."""
        self.workers = tuple(workers or (shared_worker(gpu.uuid) for gpu in self.gpus))
        """The processes beside the GPUs."""

    @property
    def identity(self) -> DeviceIdentity:
        """What this device is: part of every evaluation's key."""
        return DeviceIdentity(
            kind="cuda",
            gpu=self.gpus[0].name,
            arch=self.gpus[0].arch,
            toolchain=f"{self._toolchain.identity}, driver {self.gpus[0].driver}, "
            f"PyTorch {torch_version()}",
        )

    @property
    def capabilities(self) -> frozenset[Capability]:
        """All; counters where they are asked for."""
        able = {Capability.CONFIRM, Capability.FRESH, Capability.COMPARE, Capability.CLAIMS}
        return frozenset(able | {Capability.COUNTERS} if self._with_counters else able)

    async def compile(self, task: Task, source: str) -> StageResult:
        """Compile the source for this GPU and check what its host half asks for."""
        return await off_loop(self._compile, task, source)

    async def verify(self, task: Task, source: str, sample: int = 0) -> StageResult:
        """Run every case at full dimensions, twice, and compare with PyTorch on the GPU."""
        return await off_loop(self._verify, task, source, sample)

    async def profile(self, task: Task, source: str, sample: int = 0) -> Measurement:
        """Time the candidate in the same rounds as PyTorch, and profile its launches.

        All of the work is measured: `sample` makes no difference.
        """
        return await off_loop(self._profile, task, source)

    async def time_fresh(self, task: Task, source: str) -> Measurement:
        """Time it beside PyTorch in a process that has run no candidate before, without counters.
        """
        return await off_loop(self._profile, task, source, fresh=True)

    async def confirm(self, task: Task, source: str, sample: int = 0) -> StageResult:
        """Verify in a process that has run no candidate before, then under Compute Sanitizer.

        At small dimensions always, and at full ones for as long as `confirm_seconds`.
        """
        return await off_loop(self._confirm, task, source, sample)

    async def verify_claim(self, task: Task, source: str, claim: ClaimedInput) -> StageResult:
        """Run a claimed input at full dimensions, twice, and compare with PyTorch on the GPU."""
        return await off_loop(self._verify, task, source, 0, claim)

    def confirming_for(self, seconds: float) -> CudaDevice:
        """Return this device, with its workers, that sanitizes so long at full dimensions."""
        other = copy.copy(self)
        other.confirm_seconds = seconds
        return other

    def without_counters(self) -> CudaDevice:
        """Return this device, with its workers, that does not ask Nsight Compute."""
        other = copy.copy(self)
        other._with_counters = False
        return other

    async def compare(self, task: Task, first: str, second: str) -> Comparison:
        """Time two sources in the same rounds: the way to know which is faster."""
        return await off_loop(self._compare, task, first, second)

    def close(self) -> None:
        """End the worker processes; the next request starts them again."""
        for worker in self.workers:
            worker.close()

    def _compile(self, task: Task, source: str) -> StageResult:
        built = self._build(task, source)
        return judge_build(built) or StageResult(outcome=Outcome.PASSED, build=built)

    def _verify(
        self, task: Task, source: str, sample: int, claim: ClaimedInput | None = None
    ) -> StageResult:
        built = self._build(task, source)
        refused = judge_build(built)
        if refused:
            return refused
        with self._one_gpu() as held:
            plan = self._plan(held, task, built)
            if isinstance(plan, StageResult):
                return plan
            return _verified(held, task, built, plan, sample, claim)

    def _confirm(self, task: Task, source: str, sample: int) -> StageResult:
        built = self._build(task, source)
        refused = judge_build(built)
        if refused:
            return refused
        # Beside others the blocks of a launch do not surely run in order (launching/crowd.py).
        with self._one_gpu(fresh=True, alone=True) as held:
            plan = self._plan(held, task, built)
            if isinstance(plan, StageResult):
                return plan
            found = _verified(held, task, built, plan, sample)
            if found.outcome is not Outcome.PASSED:
                return found
            began = time.monotonic()
            inspected = self._sanitized(held, task, source, built, plan)
        if inspected.outcome is not Outcome.PASSED:
            return inspected.model_copy(update={"build": built})
        facts = found.facts | inspected.facts | {"sanitizer_seconds": time.monotonic() - began}
        return found.model_copy(update={"facts": facts})

    def _sanitized(
        self, held: HeldGpu, task: Task, source: str, built: Build, plan: Plan
    ) -> StageResult:
        """Return what Compute Sanitizer finds at small dimensions, and within its budget at full.

        Facts of a pass: which tools found nothing and at which dimensions, and which are missing.
        """
        found: list[StageResult] = []
        if task.verify.dimensions != task.full.dimensions:
            found.append(self._sanitized_small(held, task, source))
        if found and found[0].outcome is not Outcome.PASSED:
            return found[0]
        where = "at full dimensions"
        if self.confirm_seconds > 0:
            stage = held.inspection_stage(task)
            found.append(
                _not_sanitized(where, stage) if isinstance(stage, str) else
                sanitize_candidate(
                    task, built, plan, stage, seconds=self.confirm_seconds, where=where
                )
            )  # fmt: skip
        else:
            found.append(_not_sanitized(where, "not asked for (0 s)"))
        if found[-1].outcome is not Outcome.PASSED:
            return found[-1]
        told: Facts = {}
        for name in ("sanitizer", "sanitizer_missing"):
            if words := [str(each.facts[name]) for each in found if name in each.facts]:
                told[name] = "; ".join(words)
        return StageResult(outcome=Outcome.PASSED, facts=told)

    def _sanitized_small(self, held: HeldGpu, task: Task, source: str) -> StageResult:
        """Return what the sanitizer finds at small dimensions.

        A kernel that is right at its full dimensions alone is not blamed for what it does at
        others: it is said that it was not looked at there.
        """
        where = "at small dimensions"
        small = task.model_copy(update={"full": task.verify})
        built = self._build(small, source)
        refused = judge_build(built)
        plan = refused or self._plan(held, small, built)
        if isinstance(plan, StageResult):
            return _not_sanitized(where, f"the kernel does not run there ({plan.reason})")
        try:
            right = _verified(held, small, built, plan, 0)
            if right.outcome is not Outcome.PASSED:
                return _not_sanitized(where, f"the kernel is not right there ({right.reason})")
            stage = held.inspection_stage(small)
        except UserError as error:
            return _not_sanitized(where, str(error))
        if isinstance(stage, str):
            return _not_sanitized(where, stage)
        return sanitize_candidate(
            small, built, plan, stage, seconds=SMALL_SECONDS, where=where
        )  # fmt: skip

    def _profile(self, task: Task, source: str, fresh: bool = False) -> Measurement:
        built = self._build(task, source)
        refused = judge_build(built)
        if refused:
            return Measurement(stage=refused)
        began = time.monotonic()
        with self._one_gpu(fresh) as held:
            plan = self._plan(held, task, built)
            if isinstance(plan, StageResult):
                return Measurement(stage=plan)
            answer = self._measure(held, task, {"candidate": _program(built, plan)}, fresh)
            if isinstance(answer, StageResult):
                return Measurement(stage=answer.model_copy(update={"build": built}))
            if not answer.launches:
                return Measurement(stage=no_launch(built))
            facts = baseline_facts(answer) | held.circumstances(plan)
            facts["measure_seconds"] = time.monotonic() - began
            facts["host_microseconds"] = round(plan.host_microseconds, 1)
            profile, told = (
                (None, {}) if fresh else self._counters(held, task, built, plan, answer.launches)
            )
            return Measurement(
                stage=StageResult(outcome=Outcome.PASSED, build=built, facts=facts | told),
                timing=timing_of(answer.samples["candidate"]).model_copy(
                    update={"elapsed_cycles": profile and profile.elapsed_cycles}
                ),
                profile=(
                    profile
                    or event_profile(
                        task, built, answer.launches, held.gpu.name,
                        int(held.worker.hello()["sms"]), answer.copy_bytes_per_second,
                    )
                ).focused(),
            )

    def _counters(
        self, held: HeldGpu, task: Task, built: Build, plan: Plan, launches: list[LaunchAnswer]
    ) -> tuple[Profile | None, Facts]:
        """Return what Nsight Compute counts, or None; and what is to be told of it."""
        if not self._with_counters:
            return None, {"profiler_unavailable": "not asked for"}
        began = time.monotonic()
        stage = held.inspection_stage(task)
        if isinstance(stage, str):
            return None, {"profiler_unavailable": stage}
        found = profile_candidate(task, built, plan, stage, launches)
        if found.profile is None:
            return None, {"profiler_unavailable": f"{found.reason}: {found.remedy}"}
        told: Facts = {
            "profile_seconds": time.monotonic() - began, "profile_collection": found.collection,
        }  # fmt: skip
        if found.counted:
            told["profile_counted"] = found.counted
        return found.profile, told

    def _compare(self, task: Task, first: str, second: str) -> Comparison:
        builds = {"first": self._build(task, first), "second": self._build(task, second)}
        for built in builds.values():
            refused = judge_build(built)
            if refused:
                return Comparison(stage=refused)
        with self._one_gpu() as held:
            programs, plans = {}, []
            for name, built in builds.items():
                plan = self._plan(held, task, built)
                if isinstance(plan, StageResult):
                    return Comparison(stage=plan)
                plans.append(plan)
                programs[name] = _program(built, plan)
            answer = self._measure(held, task, programs)
            if isinstance(answer, StageResult):
                return Comparison(stage=answer)
            facts = held.circumstances(*plans)
        samples = answer.samples
        return Comparison(
            stage=StageResult(outcome=Outcome.PASSED, facts=facts),
            ratio=timing.compare(samples["first"], samples["second"]),
            first=timing_of(samples["first"]),
            second=timing_of(samples["second"]),
        )

    def _plan(self, held: HeldGpu, task: Task, built: Build) -> Plan | StageResult:
        """Return what launch() does at full dimensions, or how its host half fails."""
        gpu = TypeAdapter(GpuProperties).validate_python(held.worker.hello()["told"])
        asked = Asked(built, task.full.tensors, gpu, gpu.memory_bytes // 2)
        return plan_launch(host_program(self._toolchain.cuda_headers()), asked)

    def _measure(
        self,
        held: HeldGpu,
        task: Task,
        programs: Mapping[str, dict[str, Any]],
        compile_anew: bool = False,
    ) -> MeasureAnswer | StageResult:
        """Return the worker's samples, or why a candidate could not be timed."""
        alone = len(programs) == 1
        # Of two candidates the ratio is announced: it is as precise however far they are apart.
        stopping = self._stopping.model_copy(update={} if alone else {"slack": 0.0})
        request = {
            "op": "measure",
            "programs": dict(programs),
            "stopping": stopping.model_dump(),
            "seed": secrets.randbelow(1 << 31),
            "with_compile": self._with_compile and alone,
            "compile_anew": compile_anew,
            "with_eager": alone,
        }
        # What is timed has the GPU alone; what can be done before that leaves room for others. Of a
        # task that is alone anyway nothing lies prepared in memory while it waits its turn again.
        if held.shares(task):
            prepared = held.ask(task, {**request, "op": "prepare"}, NoAnswer)
            if isinstance(prepared, StageResult):
                return prepared
        answer = held.ask(task, request, MeasureAnswer)
        if isinstance(answer, StageResult):
            return answer
        if answer.failed:
            return timing_failure(answer)
        if not answer.has_times_of({*programs, *(["eager"] if alone else [])}):
            return Malformed("times are missing, or are none").failure()
        return answer

    def _one_gpu(
        self, fresh: bool = False, alone: bool = False
    ) -> AbstractContextManager[HeldGpu]:
        gpus = list(zip(self.gpus, self.workers, strict=True))
        return hold_one(gpus, self._limits, fresh, alone)

    def _build(self, task: Task, source: str) -> Build:
        return build_now(self._toolchain, source, header(task.full), self.gpus[0].arch)


def _chosen(indexes: Sequence[int], gpus: Sequence[FoundGpu]) -> tuple[FoundGpu, ...]:
    listed = ", ".join(f"{number}: {gpu.name}" for number, gpu in enumerate(gpus))
    for index in indexes:
        if not 0 <= index < len(gpus):
            raise UserError(f"there is no GPU {index}; this machine has {listed}")
    if not indexes or len(set(indexes)) < len(indexes):
        raise UserError("name each GPU once, for example --gpus 0,1")
    chosen = tuple(gpus[index] for index in indexes)
    if len({(gpu.name, gpu.arch) for gpu in chosen}) > 1:
        raise UserError(
            f"the GPUs of one run must be of one model, for their times are compared; here are "
            f"{listed}: choose with --gpus"
        )
    return chosen


def _not_sanitized(where: str, reason: str) -> StageResult:
    return StageResult(
        outcome=Outcome.PASSED, facts={"sanitizer_missing": f"{where}: {reason}"}
    )


def _verified(
    held: HeldGpu,
    task: Task,
    built: Build,
    plan: Plan,
    sample: int,
    claim: ClaimedInput | None = None,
) -> StageResult:
    began = time.monotonic()
    request = {"op": "verify", "program": _program(built, plan), "secret": sample}
    if claim is not None:
        request["claim"] = claim.model_dump(mode="json")
    answer = held.ask(task, request, VerifyAnswer)
    if isinstance(answer, StageResult):
        return answer.model_copy(update={"build": built})
    found = verdict(answer)
    facts = found.facts
    if found.outcome is Outcome.PASSED:
        seconds: Facts = {
            "verify_seconds": time.monotonic() - began, "verify_parts": in_seconds(answer.parts),
        }  # fmt: skip
        facts = facts | held.circumstances(plan) | seconds
    return found.model_copy(update={"build": built, "facts": facts})


def _program(built: Build, plan: Plan) -> dict[str, Any]:
    """Return what a worker is told of a candidate: its machine code, and what to do with it."""
    return {"image": str(Path(built.directory, "candidate.cubin")), "plan": asdict(plan)}
