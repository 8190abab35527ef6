"""What the CUDA device makes of its worker's answers and deaths, with a worker that is scripted."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pytest
import simulated_kernels as kernels

from kernelblaster.harness.build.toolchain import Toolchain, find_toolchain
from kernelblaster.harness.cuda.parent import held_gpu
from kernelblaster.harness.cuda.parent.client import WorkerEnded, WorkerTimedOut
from kernelblaster.harness.cuda.parent.inspection import Stage
from kernelblaster.harness.cuda.present_gpus import FoundGpu
from kernelblaster.harness.cuda.reports import LaunchAnswer
from kernelblaster.harness.devices import cuda
from kernelblaster.harness.devices.cuda import CudaDevice
from kernelblaster.harness.devices.protocol import Capability
from kernelblaster.harness.errors import UserError
from kernelblaster.harness.gpus import find_gpu
from kernelblaster.harness.host.plan import Plan
from kernelblaster.harness.host.properties import properties_of
from kernelblaster.harness.nsight.profile import NcuResult, unavailable
from kernelblaster.harness.records.builds import Build
from kernelblaster.harness.records.evaluations import StageResult
from kernelblaster.harness.records.outcomes import Outcome
from kernelblaster.harness.records.profiles import LaunchProfile, Profile
from kernelblaster.harness.records.tasks import Task
from kernelblaster.harness.records.timings import Provenance
from kernelblaster.harness.task.loading import load_task
from kernelblaster.harness.task.pytorch import require_matching_torch

HERE = FoundGpu(index=0, uuid="GPU-0", name="NVIDIA H200", capability=(9, 0),
                memory_bytes=1 << 37, driver="580.1")  # fmt: skip
WHOLE = {"broken": False, "candidate_loaded": True}
FACTS = {"cases": 7, "launches": 1, "max_abs_error": 0.0, "precision_ratio": 1.0}
RIGHT = {"cases": [], "mismatches": [], "repeat": None, "facts": FACTS, **WHOLE}
TOLD = asdict(properties_of(find_gpu("H200")))
HELLO = {"isolation_missing": ["a network of its own (EPERM)"], "sms": 132,
         "told": TOLD}  # fmt: skip


class ScriptedWorker:
    """Gives prepared answers, or raises prepared deaths, one a request."""

    def __init__(self, *answers: Any) -> None:
        self.answers = list(answers)
        self.requests: list[dict[str, Any]] = []
        self.fresh: list[bool] = []
        self.alone: list[bool] = []
        self.prepared = 0
        self._prepared_fresh = False
        self.starts = 1
        self.reservation = threading.Lock()

    def hello(self) -> dict[str, Any]:
        return HELLO

    def request(
        self, body: dict[str, Any], *, fresh: bool, alone: bool = True, **limits: float
    ) -> dict[str, Any]:
        if body["op"] == "prepare":
            self._prepared_fresh = fresh
            self.prepared += 1
            return {}
        self.requests.append(body)
        self.fresh.append(fresh or self._prepared_fresh)
        self._prepared_fresh = False
        self.alone.append(alone)
        answer = self.answers.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return dict(answer)


@pytest.fixture(scope="module")
def task(tmp_path_factory: pytest.TempPathFactory) -> Task:
    path = tmp_path_factory.mktemp("tasks") / "scale.py"
    path.write_text(kernels.SCALE_TASK)
    return asyncio.run(load_task(path))


@pytest.fixture
def device(monkeypatch: pytest.MonkeyPatch) -> Callable[..., CudaDevice]:
    monkeypatch.setattr(cuda, "require_matching_torch", lambda toolchain: None)

    def made(*answers: Any, with_counters: bool = False) -> CudaDevice:
        worker: Any = ScriptedWorker(*answers)
        return CudaDevice(gpus=[HERE], workers=[worker], with_counters=with_counters)

    return made


def case(**found: Any) -> dict[str, Any]:
    empty = {"name": "seed0-normal", "faults": [], "reports": [], "guards": [], "modified": []}
    return {**RIGHT, "cases": [empty | found]}


VERDICTS: list[tuple[Any, Outcome, str]] = [
    (RIGHT, Outcome.PASSED, ""),
    (
        case(faults=[["out_of_bounds", "an illegal memory access"]]),
        Outcome.OUT_OF_BOUNDS,
        "illegal",
    ),
    (case(faults=[["misaligned", "misaligned address"]]), Outcome.MISALIGNED, "misaligned"),
    (case(faults=[["assert", "device-side assert"]]), Outcome.CRASHED, "assert"),
    (case(faults=[["cuda_error", "odd"]]), Outcome.CRASHED, "odd"),
    (case(faults=[["forbidden", "on the default stream"]]), Outcome.FORBIDDEN, "default stream"),
    (case(guards=["4 bytes past the end of out0"]), Outcome.OUT_OF_BOUNDS, "guard band"),
    (case(modified=["x"]), Outcome.WRONG_ANSWER, "modified its input x"),
    ({**RIGHT, "mismatches": [["seed0-normal", "out0[3]: differs"]]}, Outcome.WRONG_ANSWER, "out0"),
    ({**RIGHT, "repeat": ["seed0-normal", "out0[3]: differs"]}, Outcome.NONDETERMINISTIC, "two"),
    ({"degenerate": "zeros pass", **WHOLE}, Outcome.DEGENERATE_TASK, "zeros"),
    (WorkerTimedOut("did not finish within 3 s", "candidate", True), Outcome.TIMED_OUT, "3 s"),
    (WorkerEnded("killed by SIGSEGV", "candidate", True), Outcome.CRASHED, "SIGSEGV"),
    (
        {"task_error": "forward() raises", "broken": True, "candidate_loaded": True},
        Outcome.CRASHED,
        "context is lost",
    ),
]


@pytest.mark.parametrize(("answer", "outcome", "words"), VERDICTS)
async def test_each_answer_has_its_verdict(
    device: Callable[..., CudaDevice], task: Task, answer: Any, outcome: Outcome, words: str
) -> None:
    result = await device(answer, answer).verify(task, kernels.SCALE)
    assert result.outcome is outcome and words in result.reason
    assert result.build is not None and result.build.arch == "sm_90a"
    if outcome is Outcome.PASSED:
        assert result.facts["isolation_missing"] == HELLO["isolation_missing"][0]
    elif outcome is not Outcome.DEGENERATE_TASK:
        assert result.diagnostics


async def test_lost_precision_is_told_of_a_pass(
    device: Callable[..., CudaDevice], task: Task
) -> None:
    answer = {**RIGHT, "facts": {**FACTS, "precision_ratio": 4096.0}}
    result = await device(answer).verify(task, kernels.SCALE)
    assert result.outcome is Outcome.PASSED
    assert result.diagnostics[0].kind == "precision_loss"


@pytest.mark.parametrize(
    "first",
    [
        WorkerEnded("killed by SIGSEGV", "reference", False),
        WorkerTimedOut("did not finish", "reference", False),
        {"worker_error": "RuntimeError: odd", "broken": False, "candidate_loaded": False},
        {"task_error": "forward() raises", "broken": True, "candidate_loaded": False},
        {"task_error": "needs more memory", "out_of_memory": True, **WHOLE},
    ],
)
async def test_damage_of_an_earlier_candidate_costs_nobody_else(
    device: Callable[..., CudaDevice], task: Task, first: Any
) -> None:
    made = device(first, RIGHT)
    assert (await made.verify(task, kernels.SCALE)).outcome is Outcome.PASSED
    assert made.workers[0].fresh == [False, True]  # type: ignore[attr-defined]


@pytest.mark.parametrize(
    ("answer", "words"),
    [
        ({"task_error": "needs more memory", "broken": False, "candidate_loaded": False}, "memory"),
        (WorkerEnded("killed by SIGSEGV", "reference", False), "reference ended the worker"),
        (WorkerTimedOut("did not finish", "reference", False), "reference did not finish"),
    ],
)
async def test_faults_of_the_task_are_the_users(
    device: Callable[..., CudaDevice], task: Task, answer: Any, words: str
) -> None:
    with pytest.raises(UserError, match=words):
        await device(answer, answer).verify(task, kernels.SCALE)


FULL = {"task_error": "needs more memory", "out_of_memory": True, **WHOLE}
FITS = {"broken": False, "candidate_loaded": False}


async def test_a_candidate_that_takes_the_references_memory_is_blamed(
    device: Callable[..., CudaDevice], task: Task
) -> None:
    made = device(FULL, FULL, FITS, FULL)
    result = await made.verify(task, kernels.SCALE)
    assert result.outcome is Outcome.CRASHED and "memory does not suffice beside" in result.reason
    worker: Any = made.workers[0]
    assert worker.fresh == [False, True, True, True]
    asked = [request["op"] for request in worker.requests]
    assert asked == ["verify", "verify", "rehearse", "verify"]
    assert worker.requests[2]["of"] == "verify" and "library" not in worker.requests[2]
    measured = await device(FULL, FULL, FITS, FULL).profile(task, kernels.SCALE)
    assert measured.stage.outcome is Outcome.CRASHED and measured.timing is None


async def test_a_candidate_is_not_blamed_for_memory_that_others_had(
    device: Callable[..., CudaDevice], task: Task
) -> None:
    result = await device(FULL, FULL, FITS, RIGHT).verify(task, kernels.SCALE)
    assert result.outcome is Outcome.PASSED


@pytest.mark.parametrize(
    "answers",
    [
        # With the candidate and without it.
        (FULL, FULL, FULL | {"candidate_loaded": False}),
        # Before any candidate was loaded, in a new process too.
        (FULL, FULL | {"candidate_loaded": False}),
        (FULL, FULL, WorkerEnded("killed by SIGKILL", "reference", False)),
    ],
)
async def test_a_task_too_large_for_the_gpu_is_no_candidates_fault(
    device: Callable[..., CudaDevice], task: Task, answers: tuple[Any, ...]
) -> None:
    made = device(*answers)
    with pytest.raises(UserError, match="needs more memory|reference ended the worker"):
        await made.verify(task, kernels.SCALE)
    assert not made.workers[0].answers  # type: ignore[attr-defined]


MEASURED = {
    "samples": {
        "candidate": [10.0, 10.1, 10.2], "eager": [20.0, 20.2, 20.4], "compile": [15.0, 15.1, 15.3],
    },
    "launches": [
        {"kernel": "_Z5scalePKfPfx", "grid": [16384, 1, 1], "block": [256, 1, 1],
         "shared_bytes": 0, "microseconds": 9.5},
    ],
    "checked": 6, "sets": 3, "compile_failure": "", "copy_bytes_per_second": 4e12, **WHOLE,
}  # fmt: skip


async def test_a_measurement_holds_time_baselines_and_launches(
    device: Callable[..., CudaDevice], task: Task
) -> None:
    measured = await device(MEASURED).profile(task, kernels.SCALE)
    assert measured.stage.outcome is Outcome.PASSED
    assert measured.timing is not None and measured.timing.microseconds == 10.1
    assert measured.timing.provenance is Provenance.EVENTS
    facts = measured.stage.facts
    assert facts["eager_us"] == 20.2 and facts["compile_us"] == 15.1
    assert facts["baseline"] == "compile" and facts["speedup"] == pytest.approx(1.5, rel=0.01)
    assert facts["speedup_low"] <= facts["speedup"] <= facts["speedup_high"]
    assert measured.profile is not None and measured.profile.provenance is Provenance.EVENTS
    launch = measured.profile.launches[0]
    assert launch.kernel == "scale" and launch.metrics["gpu__time_duration.sum"] == 9500
    assert launch.metrics["launch__registers_per_thread"] > 0
    # 32 MB in 9.5 us are 3.5 TB/s: most of what a copy reaches.
    assert launch.bottleneck == "dram"


async def test_counters_come_from_the_profiler_and_from_the_workers_own_inputs(
    device: Callable[..., CudaDevice], task: Task, monkeypatch: pytest.MonkeyPatch
) -> None:
    launch = LaunchProfile(
        kernel="scale", grid=(1, 1, 1), block=(256, 1, 1), microseconds=9.0,
        metrics={"gpc__cycles_elapsed.max": 17000.0}, bottleneck="dram",
    )  # fmt: skip
    profile = Profile(launches=(launch,), gpu=HERE.name, provenance=Provenance.NCU)
    stages: list[Stage] = []

    def profiled(
        task: Task, built: Build, plan: Plan, stage: Stage, launches: list[LaunchAnswer]
    ) -> NcuResult:
        stages.append(stage)
        assert [launch.microseconds for launch in launches] == [9.5]
        return NcuResult(outcome=Outcome.PASSED, profile=profile)

    monkeypatch.setattr(cuda, "profile_candidate", profiled)
    made = device(MEASURED, {"inputs": {"x": "x.bin"}, **WHOLE}, with_counters=True)
    measured = await made.profile(task, kernels.SCALE)
    assert measured.profile == profile
    assert measured.timing is not None and measured.timing.provenance is Provenance.EVENTS
    assert measured.timing.elapsed_cycles == 17000.0
    assert stages == [
        Stage(
            gpu_uuid="GPU-0", gpu=HERE.name, memory_bytes=HERE.memory_bytes, inputs={"x": "x.bin"}
        )
    ]


@pytest.mark.parametrize("answer", [{"inputs": {"x": "x.bin"}}, {"no_inputs": "disk full"}])
async def test_without_counters_events_stand_in_and_the_reason_is_told(
    device: Callable[..., CudaDevice],
    task: Task,
    monkeypatch: pytest.MonkeyPatch,
    answer: dict[str, Any],
) -> None:
    refused = unavailable("ERR_NVGPUCTRPERM", "run as root")
    monkeypatch.setattr(cuda, "profile_candidate", lambda *given: refused)
    measured = await device(MEASURED, {**answer, **WHOLE}, with_counters=True).profile(
        task, kernels.SCALE
    )
    assert measured.stage.outcome is Outcome.PASSED
    assert measured.profile is not None and measured.profile.provenance is Provenance.EVENTS
    told = str(measured.stage.facts["profiler_unavailable"])
    assert told == answer.get("no_inputs", "ERR_NVGPUCTRPERM: run as root")


SMALL, LARGE = "at small dimensions", "at full dimensions"


class Sanitizer:
    """In place of sanitize_candidate: notes what it is run on, and finds what it is told to."""

    def __init__(self, **found: StageResult) -> None:
        self.ran: list[tuple[str, float, int]] = []
        self._found = found

    def __call__(
        self, task: Task, built: Build, plan: Plan, stage: Stage, *, seconds: float, where: str
    ) -> StageResult:
        self.ran.append((where, seconds, task.full.tensors[0].numel))
        clean = StageResult(outcome=Outcome.PASSED, facts={"sanitizer": f"memcheck {where}"})
        return self._found.get(where.split()[1], clean)


INPUTS = {"inputs": {"x": "x.bin"}, **WHOLE}


async def test_a_winner_is_verified_in_a_fresh_process_and_sanitized(
    device: Callable[..., CudaDevice], task: Task, monkeypatch: pytest.MonkeyPatch
) -> None:
    sanitizer = Sanitizer()
    monkeypatch.setattr(cuda, "sanitize_candidate", sanitizer)
    made = device(RIGHT, RIGHT, INPUTS, INPUTS)
    confirmed = await made.confirm(task, kernels.SCALE)
    assert confirmed.outcome is Outcome.PASSED
    assert confirmed.facts["sanitizer"] == f"memcheck {SMALL}; memcheck {LARGE}"
    assert "sanitizer_missing" not in confirmed.facts
    assert made.workers[0].fresh == [True, False, False, False]  # type: ignore[attr-defined]
    small, full = task.verify.tensors[0].numel, task.full.tensors[0].numel
    assert sanitizer.ran == [(SMALL, 60.0, small), (LARGE, 30.0, full)] and small < full


@pytest.mark.parametrize("where", ["small", "full"])
async def test_what_the_sanitizer_finds_at_either_dimensions_is_the_verdict(
    device: Callable[..., CudaDevice], task: Task, monkeypatch: pytest.MonkeyPatch, where: str
) -> None:
    race = StageResult(outcome=Outcome.RACE, reason="a race")
    monkeypatch.setattr(cuda, "sanitize_candidate", Sanitizer(**{where: race}))
    refused = await device(RIGHT, RIGHT, INPUTS, INPUTS).confirm(task, kernels.SCALE)
    assert refused.outcome is Outcome.RACE and refused.build is not None


async def test_a_kernel_for_full_dimensions_alone_is_not_blamed_for_small_ones(
    device: Callable[..., CudaDevice], task: Task, monkeypatch: pytest.MonkeyPatch
) -> None:
    sanitizer = Sanitizer()
    monkeypatch.setattr(cuda, "sanitize_candidate", sanitizer)
    wrong = {**RIGHT, "mismatches": [["seed0-normal", "out0[3]: differs"]]}
    confirmed = await device(RIGHT, wrong, INPUTS).confirm(task, kernels.SCALE)
    assert confirmed.outcome is Outcome.PASSED
    assert [ran[0] for ran in sanitizer.ran] == [LARGE]
    missing = str(confirmed.facts["sanitizer_missing"])
    assert missing.startswith(f"{SMALL}: the kernel is not right there") and "out0[3]" in missing


async def test_without_a_budget_small_dimensions_are_sanitized_alone(
    device: Callable[..., CudaDevice], task: Task, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cuda, "sanitize_candidate", Sanitizer())
    made = device(RIGHT, RIGHT, INPUTS).confirming_for(0.0)
    confirmed = await made.confirm(task, kernels.SCALE)
    assert confirmed.facts["sanitizer"] == f"memcheck {SMALL}"
    assert confirmed.facts["sanitizer_missing"] == f"{LARGE}: not asked for (0 s)"


async def test_a_task_of_one_size_is_sanitized_once(
    device: Callable[..., CudaDevice], task: Task, monkeypatch: pytest.MonkeyPatch
) -> None:
    sanitizer = Sanitizer()
    monkeypatch.setattr(cuda, "sanitize_candidate", sanitizer)
    whole = task.model_copy(update={"verify": task.full})
    await device(RIGHT, INPUTS).confirm(whole, kernels.SCALE)
    assert [ran[0] for ran in sanitizer.ran] == [LARGE]


async def test_a_fresh_process_is_for_the_stage_that_asks_for_it(
    device: Callable[..., CudaDevice], task: Task
) -> None:
    made = device(MEASURED, MEASURED, RIGHT)
    await made.time_fresh(task, kernels.SCALE)
    await made.profile(task, kernels.SCALE)
    await made.verify(task, kernels.SCALE)
    assert made.workers[0].fresh == [True, False, False]  # type: ignore[attr-defined]


async def test_the_device_without_counters_times_alone_in_the_same_workers(
    device: Callable[..., CudaDevice], task: Task
) -> None:
    made = device(MEASURED, MEASURED, with_counters=True).without_counters()
    measured = await made.profile(task, kernels.SCALE)
    assert measured.timing is not None
    assert measured.stage.facts["profiler_unavailable"] == "not asked for"
    assert Capability.COUNTERS not in made.capabilities


async def test_stages_share_several_gpus_of_one_model(
    task: Task, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cuda, "require_matching_torch", lambda toolchain: None)
    both = threading.Barrier(2, timeout=30)

    class Meeting(ScriptedWorker):
        def request(self, body: dict[str, Any], *, fresh: bool, **limits: float) -> dict[str, Any]:
            both.wait()  # Broken where one GPU gets both stages.
            return super().request(body, fresh=fresh, **limits)

    workers: list[Any] = [Meeting(RIGHT), Meeting(RIGHT)]
    twins = [HERE, HERE.model_copy(update={"index": 1, "uuid": "GPU-1"})]
    made = CudaDevice((0, 1), gpus=twins, workers=workers)
    results = await asyncio.gather(
        made.verify(task, kernels.SCALE), made.verify(task, kernels.SCALE_VECTOR)
    )
    assert [result.outcome for result in results] == [Outcome.PASSED, Outcome.PASSED]
    assert [len(worker.requests) for worker in workers] == [1, 1]


@pytest.mark.parametrize(
    ("indexes", "words"), [((2,), "no GPU 2"), ((0, 0), "each GPU once"), ((0, 1), "one model")]
)
def test_gpus_that_cannot_work_together_are_refused(
    monkeypatch: pytest.MonkeyPatch, indexes: tuple[int, ...], words: str
) -> None:
    monkeypatch.setattr(cuda, "require_matching_torch", lambda toolchain: None)
    other = HERE.model_copy(update={"index": 1, "uuid": "GPU-1", "name": "NVIDIA A100"})
    with pytest.raises(UserError, match=words):
        CudaDevice(indexes, gpus=[HERE, other])


@pytest.mark.parametrize(
    ("answer", "outcome"),
    [
        ({"failed": "candidate", "case": case()["cases"][0], "mismatch": "out0[0] differs",
          **WHOLE}, Outcome.WRONG_ANSWER),
        ({"failed": "candidate", "case": case(guards=["past"])["cases"][0], "mismatch": "",
          **WHOLE}, Outcome.OUT_OF_BOUNDS),
        ({**MEASURED, "launches": []}, Outcome.PROFILER_UNAVAILABLE),
    ],
)  # fmt: skip
async def test_a_failed_measurement_is_no_number(
    device: Callable[..., CudaDevice], task: Task, answer: Any, outcome: Outcome
) -> None:
    measured = await device(answer).profile(task, kernels.SCALE)
    assert measured.stage.outcome is outcome and measured.stage.reason
    assert measured.timing is None and measured.profile is None


async def test_two_sources_are_compared(device: Callable[..., CudaDevice], task: Task) -> None:
    samples = {"first": [1.0, 1.0, 1.1], "second": [2.0, 2.0, 2.2]}
    made = device({**MEASURED, "samples": samples})
    compared = await made.compare(task, kernels.SCALE, kernels.SCALE_VECTOR)
    assert compared.ratio is not None and compared.ratio.is_faster
    assert compared.first is not None and compared.first.microseconds == 1.0
    request = made.workers[0].requests[0]  # type: ignore[attr-defined]
    assert not request["with_compile"] and not request["with_eager"]


async def test_a_candidate_that_may_not_run_never_reaches_the_worker(
    device: Callable[..., CudaDevice], task: Task
) -> None:
    made = device()
    results: list[StageResult] = []
    for name in ("does not compile", "getenv", "no launch"):
        source = kernels.WRONG[name][0]
        results += [await made.compile(task, source), await made.verify(task, source),
                    (await made.profile(task, source)).stage]  # fmt: skip
    assert all(result.outcome is not Outcome.PASSED for result in results)


async def test_what_only_hopper_has_compiles(device: Callable[..., CudaDevice], task: Task) -> None:
    source = kernels.scale_with('asm volatile("wgmma.fence.sync.aligned;"); ' + kernels.RIGHT)
    stage = await device().compile(task, source)
    assert stage.outcome is Outcome.PASSED, stage.reason
    assert stage.build is not None and Path(stage.build.directory, "candidate.cubin").is_file()


def test_a_pytorch_of_another_cuda_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    package = tmp_path / "torch"
    package.mkdir()
    (package / "__init__.py").write_text("")
    spec = type("Spec", (), {"origin": str(package / "__init__.py")})
    monkeypatch.setattr("importlib.util.find_spec", lambda name: spec)
    toolchain = Toolchain.model_construct(version="13.0.88")
    for text, words in [("cuda: Optional[str] = None", "without CUDA"), ("cuda = '12.8'", "12.8")]:
        (package / "version.py").write_text(f"__version__ = '2.11'\n{text}\n")
        with pytest.raises(UserError, match=words):
            require_matching_torch(toolchain)
    (package / "version.py").write_text("cuda: Optional[str] = '13.0'\n")
    require_matching_torch(toolchain)


def test_the_identity_is_the_real_gpu(device: Callable[..., CudaDevice]) -> None:
    identity = device().identity
    assert (identity.kind, identity.gpu, identity.arch) == ("cuda", "NVIDIA H200", "sm_90a")
    assert "driver 580.1" in identity.toolchain and find_toolchain().identity in identity.toolchain


FORGED: list[dict[str, Any]] = [
    case(faults=["out_of_bounds"]),
    case(reports=[{"kind": "race"}]),
    case(guards="none"),
    {**RIGHT, "mismatches": 3},
    {**RIGHT, "repeat": ["one"]},
    {**RIGHT, "facts": {"max_abs_error": float("nan")}},
    {**RIGHT, "facts": {"cases": -1}},
    {**RIGHT, "verdict": "passed"},
    {**RIGHT, "broken": "x" * 100_000},
    {"cases": None},
]


@pytest.mark.parametrize("answer", FORGED)
async def test_a_forged_answer_is_the_candidates_failure(
    device: Callable[..., CudaDevice], task: Task, answer: dict[str, Any]
) -> None:
    made = device(answer, answer)
    result = await made.verify(task, kernels.SCALE)
    assert result.outcome is Outcome.CRASHED and "a report that cannot be" in result.reason
    # An earlier candidate may have damaged the process: a new one is asked first.
    assert made.workers[0].fresh == [False, True]  # type: ignore[attr-defined]
    assert (await device(answer, RIGHT).verify(task, kernels.SCALE)).outcome is Outcome.PASSED


@pytest.mark.parametrize(
    "samples",
    [{}, {"candidate": [1.0]}, {"candidate": [], "eager": []}, {"candidate": [0.0], "eager": [1.0]},
     {"candidate": [1.0, 2.0], "eager": [1.0]}, {"candidate": ["fast"], "eager": [1.0]}],
)  # fmt: skip
async def test_times_that_cannot_be_are_no_measurement(
    device: Callable[..., CudaDevice], task: Task, samples: Any
) -> None:
    answer = {**MEASURED, "samples": samples}
    measured = await device(answer, answer).profile(task, kernels.SCALE)
    assert measured.stage.outcome is Outcome.CRASHED and measured.timing is None


async def test_memory_given_back_is_no_odd_answer(
    device: Callable[..., CudaDevice], task: Task
) -> None:
    answer = {**RIGHT, "leaked_bytes": -4096}
    assert (await device(answer).verify(task, kernels.SCALE)).outcome is Outcome.PASSED


def crowded(error: WorkerTimedOut) -> WorkerTimedOut:
    error.crowded = True
    return error


NO_ROOM = case(faults=[["invalid_launch", "workspace_bytes() asks for 9 bytes; 8 are allowed"]])
CROWDED: list[tuple[Any, int]] = [
    # What trusted work does not do it is asked in a fresh process first: twice.
    (crowded(WorkerTimedOut("did not finish within 3 s", "candidate", True)), 1),
    (crowded(WorkerTimedOut("did not finish within 600 s", "reference", False)), 2),
    ({**NO_ROOM, "crowded": True}, 1),
    ({"task_error": "no memory", "out_of_memory": True, "crowded": True, **WHOLE}, 2),
]


@pytest.mark.parametrize(("answer", "times"), CROWDED)
async def test_what_others_on_the_gpu_may_have_caused_is_asked_again_alone(
    device: Callable[..., CudaDevice], task: Task, answer: Any, times: int
) -> None:
    made = device(*[answer] * times, RIGHT)
    assert (await made.verify(task, kernels.SCALE)).outcome is Outcome.PASSED
    worker: Any = made.workers[0]
    assert (worker.alone[0], worker.alone[-1], worker.fresh[-1]) == (False, True, True)


async def test_only_what_is_timed_or_large_has_the_gpu_alone(
    device: Callable[..., CudaDevice], task: Task, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = device(RIGHT, MEASURED)
    await made.verify(task, kernels.SCALE)
    await made.profile(task, kernels.SCALE)
    worker: Any = made.workers[0]
    assert worker.alone == [False, True]
    monkeypatch.setattr(held_gpu, "SHARED_PART", 0.0)
    worker.answers += [RIGHT, MEASURED]
    await made.verify(task, kernels.SCALE)
    assert worker.alone[-1]
    await made.profile(task, kernels.SCALE)
    assert worker.prepared == 1, "what is large lies prepared in memory while others need it"
