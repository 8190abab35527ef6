"""A GPU that is elsewhere: candidates compile and are planned here, the rest is the host's job."""

from __future__ import annotations

from functools import partial

from ..build.toolchain import Toolchain, build_now, find_toolchain
from ..cuda.present_gpus import architecture
from ..errors import UserError
from ..gpus import GPUS, Gpu, find_gpu, is_called
from ..host.plan import Plan
from ..host.planning import Asked, plan_launch
from ..host.process import host_program
from ..host.properties import properties_of
from ..judge.findings import judge_build
from ..process.children import off_loop, together
from ..records.builds import Build
from ..records.evaluations import DeviceIdentity, StageResult, evaluation_key
from ..records.identity import source_sha256
from ..records.outcomes import Outcome
from ..records.tasks import Task, TaskVariant
from ..records.versions import harness_version
from ..task.contract import header
from .job_records import Executor, Job, JobKind, JobTask
from .protocol import Capability, Device, Measurement


class ResultAwaited(UserError):
    """A stage's result must come from another machine: `job` says what is to be done there.

    A graph's nodes catch it and interrupt the run. Where nothing does, it is one clear line.
    """

    def __init__(self, job: Job) -> None:
        super().__init__(
            f"{job.task.name}: device deferred gives no result at once; run `kernelblaster "
            "optimize` with it, or choose the device simulated or cuda"
        )
        self.job = job


class DeferredDevice(Device):
    """Compiles candidates for a named GPU and asks their host halves what they would launch there.

    What a GPU must run raises ResultAwaited.

    Args:
        gpu: a name of harness/gpus.py.
        executor: the kind of device that shall answer: `cuda`, or `simulated` for trying out a
            deferred run without a GPU.
        toolchain: the CUDA compiler; found on this machine when not given.

    Raises:
        UserError: no or an unknown GPU, or no compiler.
    """

    def __init__(
        self, gpu: str, executor: Executor = "cuda", toolchain: Toolchain | None = None
    ) -> None:
        if not gpu:
            raise UserError(
                "--device deferred: name the GPU that results come from with --gpu, one of "
                f"{', '.join(GPUS)}"
            )
        self.gpu: Gpu = find_gpu(gpu)
        self.executor = executor
        self._toolchain = toolchain or find_toolchain()

    @property
    def identity(self) -> DeviceIdentity:
        """What this device is: a part of every evaluation's key.

        The kind that answers is in it, so that measured and simulated results never meet under
        one key. Who really answered is on every result.
        """
        measured = self.executor == "cuda"
        return DeviceIdentity(
            kind="deferred",
            gpu=self.gpu.name,
            arch=architecture(self.gpu.limits.capability) if measured else self.gpu.arch,
            toolchain=f"{self._toolchain.identity}; results from {self.executor}",
            harness=harness_version(self.executor),
        )

    @property
    def capabilities(self) -> frozenset[Capability]:
        """Those of whatever answers, but for what takes two sources: a job has one."""
        return frozenset({Capability.CONFIRM, Capability.FRESH, Capability.COUNTERS})

    async def compile(self, task: Task, source: str) -> StageResult:
        """Compile the source for the GPU's architecture and check its undefined symbols."""
        return await off_loop(self._compile, task, source)

    async def verify(self, task: Task, source: str, sample: int = 0) -> StageResult:
        """Return how launch() fails before anything runs; else raise ResultAwaited.

        A grid that the GPU does not take, too much shared memory or workspace, a host half that
        works itself or never ends: that shows here, and such a candidate never travels.
        """
        refused = await off_loop(self._unplanned, task, source)
        if refused is not None:
            return refused
        raise ResultAwaited(self._job(task, source))

    async def profile(self, task: Task, source: str, sample: int = 0) -> Measurement:
        """Raise ResultAwaited: nothing runs here."""
        raise ResultAwaited(self._job(task, source))

    async def confirm(self, task: Task, source: str, sample: int = 0) -> StageResult:
        """Raise ResultAwaited: nothing runs here."""
        raise ResultAwaited(self._job(task, source, "confirm"))

    async def time_fresh(self, task: Task, source: str) -> Measurement:
        """Raise ResultAwaited: nothing runs here."""
        raise ResultAwaited(self._job(task, source, "confirm"))

    def _job(self, task: Task, source: str, kind: JobKind = "evaluate") -> Job:
        return Job(
            kind=kind,
            key=evaluation_key(source_sha256(source), task.id, self.identity),
            task=JobTask.of(task),
            source=source,
            device=self.identity,
            executor=self.executor,
        )

    def _compile(self, task: Task, source: str) -> StageResult:
        variants = [task.full] if self.executor == "cuda" else [task.full, task.verify]
        builds = together(*(partial(self._build, source, variant) for variant in variants))
        for built in builds:
            if refused := judge_build(built, source):
                return refused
        return StageResult(outcome=Outcome.PASSED, build=builds[0])

    def _unplanned(self, task: Task, source: str) -> StageResult | None:
        """Return how the host half fails at full dimensions; None where it can be planned."""
        built = self._build(source, task.full)
        if refused := judge_build(built, source):
            return refused
        gpu = properties_of(self.gpu)
        asked = Asked(built, task.full.tensors, gpu, gpu.memory_bytes // 2)
        plan = plan_launch(host_program(self._toolchain.cuda_headers()), asked)
        return None if isinstance(plan, Plan) else plan

    def _build(self, source: str, variant: TaskVariant) -> Build:
        return build_now(self._toolchain, source, header(variant), self.identity.arch)


def mismatch(asked: DeviceIdentity, executor: Executor, device: DeviceIdentity) -> str:
    """Return why a device may not answer what was asked for, empty where it may."""
    if device.kind != executor:
        return f"results from {executor} are asked for, this is device {device.kind}"
    if device.harness != asked.harness:
        return f"harness version {asked.harness} is asked for, this is {device.harness}"
    if not is_called(device.gpu, asked.gpu):
        return f"the GPU {asked.gpu} is asked for, this is {device.gpu}"
    if device.arch != asked.arch:
        return f"architecture {asked.arch} is asked for, this is {device.arch}"
    return ""
