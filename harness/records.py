"""The words everyone uses: frozen records of tasks, candidates, builds, profiles and evaluations.

A record cannot be changed after it is made, refuses fields it does not know, and a validator ties
its fields together, so that a wrong result cannot carry a time.
"""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass
from enum import StrEnum
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, model_validator

JUDGE_VERSION = "23"
"""Raised when a change of what all devices share (tasks, cases, judging, vetting, building) could
change an evaluation: part of every cache key."""

DEVICE_VERSIONS: dict[str, str] = {"simulated": "19", "cuda": "13"}
"""Raised when a change of one kind of device alone could change what it says: part of the keys of
its results, and of no others."""


class Record(BaseModel):
    """Base of every record: frozen, no unknown fields, field docstrings as descriptions."""

    model_config = ConfigDict(frozen=True, extra="forbid", use_attribute_docstrings=True)


Integer = Annotated[int, Field(ge=-(2**63), lt=2**63)]
"""One that a database and a checkpoint can hold."""


def sha256_of(*parts: str | bytes) -> str:
    """Return the hexadecimal sha256 of the parts, each preceded by its length."""
    digest = hashlib.sha256()
    for part in parts:
        data = part.encode() if isinstance(part, str) else part
        digest.update(len(data).to_bytes(8, "little"))
        digest.update(data)
    return digest.hexdigest()


def sha256_of_json(value: Any) -> str:
    """Return the sha256 of a JSON value in canonical form (sorted keys, no spaces)."""
    return sha256_of(json.dumps(value, sort_keys=True, separators=(",", ":")))


def harness_version(measures: str) -> str:
    """Return the version of all that has a part in results of a kind of device.

    A deferred device's results come from another kind, by default from a GPU.
    """
    return f"{JUDGE_VERSION}.{DEVICE_VERSIONS.get(measures, DEVICE_VERSIONS['cuda'])}"


class Outcome(StrEnum):
    """What came of a candidate. Only `passed` is a success; each other names the first reason.

    The last two say why there is no candidate: an Evaluation never has them.
    """

    PASSED = "passed"
    COMPILE_ERROR = "compile_error"
    FORBIDDEN = "forbidden"
    CRASHED = "crashed"
    TIMED_OUT = "timed_out"
    OUT_OF_BOUNDS = "out_of_bounds"
    MISALIGNED = "misaligned"
    RACE = "race"
    UNINITIALIZED_READ = "uninitialized_read"
    WRONG_ANSWER = "wrong_answer"
    NONDETERMINISTIC = "nondeterministic"
    UNSUPPORTED = "unsupported"
    """The simulated device does not know an instruction: this candidate needs a real GPU."""
    DEGENERATE_TASK = "degenerate_task"
    PROFILER_UNAVAILABLE = "profiler_unavailable"
    NOT_APPLICABLE = "not_applicable"
    """The technique found nothing to rewrite in the source."""
    NO_ANSWER = "no_answer"
    """The writer, a model, gave nothing that could be read."""

    @property
    def is_verdict(self) -> bool:
        """Whether it says anything of the candidate and of the technique that made it.

        Where not, the task, the machine or a model without an answer is the reason: no other
        source would have changed it.
        """
        return self not in (
            Outcome.DEGENERATE_TASK, Outcome.PROFILER_UNAVAILABLE, Outcome.NO_ANSWER
        )  # fmt: skip

    @property
    def breaks_kernel(self) -> bool:
        """Whether the kernel no longer compiles, or crashes, or answers wrongly.

        Running out of time does not say so, nor do a forbidden call or what a device cannot do.
        """
        return self in (
            Outcome.COMPILE_ERROR, Outcome.CRASHED, Outcome.OUT_OF_BOUNDS, Outcome.MISALIGNED,
            Outcome.RACE, Outcome.UNINITIALIZED_READ, Outcome.WRONG_ANSWER,
            Outcome.NONDETERMINISTIC,
        )  # fmt: skip

    @property
    def has_candidate(self) -> bool:
        """Whether a source was written of which it can be the verdict."""
        return self not in (Outcome.NOT_APPLICABLE, Outcome.NO_ANSWER)


class Provenance(StrEnum):
    """Where a number comes from. Numbers of different provenance are never compared or averaged."""

    NCU = "ncu"
    SIMULATED = "simulated"
    EVENTS = "events"


DType = Literal[
    "float64", "float32", "float16", "bfloat16", "int64", "int32", "int8", "uint8", "bool"
]
DTYPE_BYTES: dict[str, int] = {
    "float64": 8, "float32": 4, "float16": 2, "bfloat16": 2,
    "int64": 8, "int32": 4, "int8": 1, "uint8": 1, "bool": 1,
}  # fmt: skip


class TensorSpec(Record):
    """One tensor that crosses the boundary of `launch`, contiguous and row-major."""

    name: str
    """Identifier in the launch signature and, upper-cased, in task.cuh."""
    shape: tuple[int, ...]
    dtype: DType
    role: Literal["input", "parameter", "buffer", "output"]
    constant: bool = False
    """Whether it is a buffer that does not depend on the seed: a kernel may rely on its values."""

    @property
    def numel(self) -> int:
        """Number of elements (1 for a scalar tensor)."""
        count = 1
        for size in self.shape:
            count *= size
        return count

    @property
    def nbytes(self) -> int:
        """Size in bytes."""
        return self.numel * DTYPE_BYTES[self.dtype]


class Tolerance(Record):
    """Largest accepted difference: |got - expected| <= absolute + relative * |expected|."""

    absolute: float
    relative: float


TOLERANCES: dict[str, Tolerance] = {
    "float64": Tolerance(absolute=1e-6, relative=1e-6),
    "float32": Tolerance(absolute=1e-4, relative=1e-4),
    "float16": Tolerance(absolute=1e-2, relative=1e-2),
    "bfloat16": Tolerance(absolute=1e-2, relative=1e-2),
}
"""KernelBench's tolerance for each dtype (fp32 1e-4, half types 1e-2); integers must be equal."""


class ProgramNode(Record):
    """One ATen operation of the exported reference."""

    name: str
    op: str
    """ATen overload as printed by torch.export, for example `aten.softmax.int`."""
    args: tuple[Any, ...] = ()
    """JSON values; a reference to another value is {"ref": NAME}."""
    kwargs: dict[str, Any] = Field(default_factory=dict)
    shape: tuple[int, ...] | None = None
    """Shape of the (first) result; None where the result is no tensor."""
    dtype: str | None = None
    line: int | None = None
    """1-based line of the reference that it comes from; None where that is not known."""


class Program(Record):
    """The reference as a straight list of ATen operations; tensor names are those of TensorSpec."""

    nodes: tuple[ProgramNode, ...]
    outputs: tuple[str, ...]
    """Names of the values returned, in order; output tensor i is `out<i>`."""


MOST_ELEMENTS = 48 << 20
"""Of all tensors of a variant of which cases are kept: inputs and answers, several times."""
MOST_WORK = 1 << 33
"""Multiply-adds, and elements of all results, of such a variant."""


class TaskVariant(Record):
    """The task at one set of dimensions: `full` as written, `verify` shrunk to be quick."""

    name: Literal["full", "verify"]
    dimensions: dict[str, int]
    """Sizes of the reference by name (task/dimensions.py), with the values of this variant."""
    tensors: tuple[TensorSpec, ...]
    """Outputs, inputs, parameters, buffers: the order of the launch signature."""
    scalars: dict[str, float | int | bool] = Field(default_factory=dict)
    """Inputs of the reference that are plain numbers: constexpr in task.cuh."""
    work: int = Field(default=0, ge=0)
    """Multiply-adds that answering takes, and elements of all results on the way."""

    @property
    def is_large(self) -> bool:
        """Whether no cases are kept: without a GPU it is verified by a sample of its blocks."""
        elements = sum(tensor.numel for tensor in self.tensors)
        return elements > MOST_ELEMENTS or self.work > MOST_WORK

    def of_role(self, *roles: str) -> tuple[TensorSpec, ...]:
        """Return the tensors of the given roles, in signature order."""
        return tuple(tensor for tensor in self.tensors if tensor.role in roles)


Level = Literal["any", "positive", "scaled", "some", "below", "range", "order", "own"]
"""How far the values of a tensor may be changed, the freest first; see reference/draws.py."""


class Variation(Record):
    """What may differ from case to case, as far as forward() survives it at small dimensions.

    Found on the CPU, where an index out of range is an error and costs nothing, and the same on
    every device. A kernel may rely on shapes, dtypes and the constants, and on no other value.
    """

    levels: dict[str, Level] = Field(default_factory=dict)
    """By name, of each input and parameter, and of each buffer that is no constant."""
    fixed: tuple[str, ...] = ()
    """Inputs and parameters that are the same, in part or as a whole, under every seed."""
    constants: tuple[str, ...] = ()
    """Buffers that do not depend on the seed: constants of the task, never changed."""
    unread: tuple[str, ...] = ()
    """Parameters and buffers on whose values no output depends: `launch` is not given them."""
    uniform_width: float = 1.0
    """How far from zero inputs of the distribution `uniform` lie: so little that what forward()
    adds to keep a root or a quotient finite shows, where it adds any."""
    updated: tuple[str, ...] = ()
    """Buffers that forward() changes. A kernel does not: each call begins with the same ones."""

    @property
    def not_varied(self) -> tuple[str, ...]:
        """Names of the tensors that a case could not vary: what a kernel makes of others is not
        known."""
        return tuple(name for name in self.fixed if self.levels.get(name) == "own")


Mode = Literal["file", "eval", "train"]
Precision = Literal["file", "fp16", "bf16", "fp32"]


class Reading(Record):
    """How a reference is read: what is asked of it that its file does not say."""

    mode: Mode = "file"
    """Whether the model is set to evaluate or to train; by default as the file leaves it."""
    dtype: Precision = "file"
    """Type of its floating inputs, parameters and buffers; by default as the file has them."""
    allow_degenerate: bool = False
    """Whether a task is gone on with whose answer is known without computing anything."""


AS_WRITTEN = Reading()
"""Nothing is asked of a reference that its file does not say."""


REFERENCE_SECONDS = 600.0
"""How long PyTorch may take for a task's answers, where nobody says otherwise."""


class Task(Record):
    """A PyTorch reference in KernelBench form (`Model`, `get_inputs`, `get_init_inputs`)."""

    name: str
    """File stem of the reference."""
    path: str
    """Where the reference was read; not part of the identity."""
    reference_sha256: str
    source: str
    """Text of the reference."""
    op_class: str
    """elementwise, reduction, softmax, normalization, matmul, transpose, or mixed."""
    dtype: DType
    """Type of the first output."""
    tolerance: Tolerance
    full: TaskVariant
    verify: TaskVariant
    program: Program | None = None
    """None where torch.export cannot trace the reference: then a model or --start must write it."""
    program_failure: str = ""
    """Why there is no program; empty where there is one."""
    verify_program: Program | None = None
    """The program at the dimensions of `verify`; None where it is not known."""
    variation: Variation = Field(default_factory=Variation)
    reading: Reading = AS_WRITTEN
    reference_seconds: float = Field(default=REFERENCE_SECONDS, gt=0)
    """How long PyTorch may take for its answers on the CPU; not part of the identity."""
    notes: tuple[str, ...] = ()
    """What whoever brings the task should know of how it was read, a sentence each."""

    @property
    def id(self) -> str:
        """Identity of the task: reference text, the dimensions of both variants, how it is read."""
        return sha256_of_json(
            [self.reference_sha256, self.full.dimensions, self.verify.dimensions,
             self.tolerance.model_dump(), self.reading.model_dump()]
        )  # fmt: skip


class Diagnostic(Record):
    """One fact about a candidate's failure, as a person or a model can act on it."""

    kind: str
    """Machine-readable kind: compile_error, out_of_bounds, race, mismatch, forbidden_symbol, ..."""
    message: str
    kernel: str | None = None
    line: int | None = None
    """1-based line of the candidate's source."""
    count: int = 1


class KernelResources(Record):
    """What ptxas says of one kernel (`-Xptxas -v`)."""

    kernel: str
    registers: int
    """Registers per thread."""
    static_shared_bytes: int = 0
    stack_bytes: int = 0
    spill_store_bytes: int = 0
    spill_load_bytes: int = 0
    barriers: int = 0


class Build(Record):
    """The result of compiling one source for one variant and architecture."""

    key: str
    """sha256 of source, task.cuh, flags, architecture and compiler version."""
    succeeded: bool
    arch: str
    """For example sm_90."""
    compiler: str
    """Versions of nvcc and its host compiler, and why that one was taken."""
    kernels: tuple[KernelResources, ...] = ()
    undefined_symbols: tuple[str, ...] = ()
    directory: str = ""
    """Folder of the build cache: candidate.cu, candidate.so, candidate.ptx, candidate.cubin."""
    diagnostics: tuple[Diagnostic, ...] = ()


def outcome_in_words(outcome: str, reason: str) -> str:
    """Return an outcome and its reason as one line; a reason often begins with its outcome."""
    words = outcome.replace("_", " ")
    return reason if reason.startswith(f"{words}: ") else f"{words}: {reason}"


class StageResult(Record):
    """What one stage (compile, verify) says: a pass, or the outcome and why."""

    outcome: Outcome
    reason: str = ""
    """One line; empty for a pass."""
    diagnostics: tuple[Diagnostic, ...] = ()
    build: Build | None = None
    facts: dict[str, float | int | str] = Field(default_factory=dict)
    """Numbers of a pass worth keeping: cases run, largest error, tolerance used."""


SIMULATED_RESOLUTION = 0.01
"""What the quotient of two simulated times may be off by, relative, where each is exact: a gain
within it is none. Two kernels that a GPU takes the same time for differ so in the time model."""


class Timing(Record):
    """How long one call of `launch` takes, and how that is known."""

    microseconds: float
    """Best single estimate (median of the samples)."""
    samples: tuple[float, ...]
    """Microseconds each; for the simulated device one estimate per disjoint sample of blocks."""
    interval: tuple[float, float]
    """Microseconds: a 95 % interval where it was measured; for the simulated device the range over
    the samples and what these leave open, in which the time model's own error is not contained."""
    method: str
    """For example `time model`, `cuda events`."""
    provenance: Provenance
    """Whose number it is: ncu, events or simulated; two kinds are never compared."""
    elapsed_cycles: float | None = None
    """GPU clock cycles of all launches together (ncu's gpc__cycles_elapsed.max); the time model's
    on the simulated device; None where they were not counted."""

    @model_validator(mode="after")
    def _is_a_measurement(self) -> Timing:
        if not (self.samples and self.microseconds > 0 and min(self.samples) > 0):
            raise ValueError("a timing needs positive samples: a failed measurement is no number")
        if not self.interval[0] <= self.microseconds <= self.interval[1]:
            raise ValueError("the estimate lies outside its own interval")
        return self


class LineProfile(Record):
    """Counters of one source line of one kernel."""

    line: int
    instructions: float
    """Warp instructions executed, whole grid."""
    sectors: float = 0.0
    """Global 32-byte sectors requested, whole grid."""
    shared_wavefronts: float = 0.0


Bottleneck = Literal[
    "dram", "l2", "lsu", "shared_memory", "compute", "tensor", "latency", "launch", "atomic"
]


ELAPSED_CYCLES = "gpc__cycles_elapsed.max"
"""The paper's measure of a launch, by its name in Nsight Compute."""
ALWAYS_KEPT = frozenset(
    {"gpu__time_duration.sum", ELAPSED_CYCLES, "dram__bytes_read.sum", "dram__bytes_write.sum"}
)
"""Metrics that every launch of a profile has, however many there are."""
MOST_DETAILED = 48
"""Launches of a profile that keep all of their metrics."""


class LaunchProfile(Record):
    """One kernel launch: Nsight Compute's metric names and the time model's terms."""

    kernel: str
    grid: tuple[int, int, int]
    block: tuple[int, int, int]
    dynamic_shared_bytes: int = 0
    microseconds: float
    metrics: dict[str, float]
    """By Nsight Compute's own names, in its base units (ns, bytes, %, counts)."""
    terms: dict[str, float] = Field(default_factory=dict)
    """Time model only: microseconds that each resource alone would need."""
    bottleneck: Bottleneck
    bottleneck_ties: tuple[Bottleneck, ...] = ()
    """Other resources within 15 % of the first."""
    lines: tuple[LineProfile, ...] = ()
    """Hottest source lines first."""
    advice: tuple[str, ...] = ()
    """Rules that fired, in words."""
    like: int | None = None
    """Place among the profile's launches of an earlier one that was the same but for addresses:
    its metrics are this one's, and so is its time where this one's was not taken."""


@dataclass(frozen=True)
class KernelShare:
    """All launches of one kernel in a profile."""

    kernel: str
    launches: tuple[LaunchProfile, ...]
    """In order."""

    @property
    def microseconds(self) -> float:
        """Of all of them together."""
        return sum(launch.microseconds for launch in self.launches)

    @property
    def longest(self) -> LaunchProfile:
        """The launch that takes most of it."""
        return max(self.launches, key=lambda launch: launch.microseconds)


class Profile(Record):
    """All launches of one call of `launch`, in order.

    Where there are many, the costliest have all of their metrics and the others those of
    `ALWAYS_KEPT`.
    """

    launches: tuple[LaunchProfile, ...]
    gpu: str
    provenance: Provenance

    @property
    def microseconds(self) -> float:
        """Of all launches together."""
        return sum(launch.microseconds for launch in self.launches)

    @property
    def by_kernel(self) -> tuple[KernelShare, ...]:
        """The launches of each kernel, those first that take most of the time together."""
        found: dict[str, list[LaunchProfile]] = {}
        for launch in self.launches:
            found.setdefault(launch.kernel, []).append(launch)
        shares = [KernelShare(kernel, tuple(launches)) for kernel, launches in found.items()]
        return tuple(sorted(shares, key=lambda share: -share.microseconds))

    @property
    def dominant(self) -> LaunchProfile:
        """The longest launch of the kernel whose launches take most of the time together."""
        return self.by_kernel[0].longest

    @property
    def elapsed_cycles(self) -> float | None:
        """GPU clock cycles of all launches together, or None where one has no count."""
        cycles = [launch.metrics.get(ELAPSED_CYCLES) for launch in self.launches]
        known = [count for count in cycles if count]
        return sum(known) if len(known) == len(cycles) else None

    def focused(self) -> Profile:
        """Return the profile with all metrics of the launches that matter alone.

        Those are the longest of each of the costliest kernels and the longest of all that are like
        no other, `MOST_DETAILED` together.
        """
        shares = self.by_kernel
        ranked = sorted(
            (launch for launch in self.launches if launch.like is None),
            key=lambda launch: -launch.microseconds,
        )
        chosen = [*(share.longest for share in shares[: MOST_DETAILED // 2]), *ranked]
        kept = set(list(dict.fromkeys(map(id, chosen)))[:MOST_DETAILED])
        return self.model_copy(update={"launches": tuple(
            launch if id(launch) in kept else launch.model_copy(update={
                "metrics": {name: value for name, value in launch.metrics.items()
                            if name in ALWAYS_KEPT},
                "terms": {}, "lines": (), "advice": (),
            })
            for launch in self.launches
        )})  # fmt: skip


class DeviceIdentity(Record):
    """What evaluated: two evaluations compare only when this is equal."""

    kind: Literal["simulated", "cuda", "deferred"]
    """Whose numbers its own may be compared with."""
    gpu: str
    """Its name: H100."""
    arch: str
    """Compute capability: sm_90."""
    toolchain: str
    """Compiler and its version."""
    harness: str = Field(default_factory=lambda known: harness_version(known.get("kind", "")))
    """Versions of the judge and of the device that measures: see `harness_version`."""

    def __str__(self) -> str:
        return f"{self.kind} {self.gpu} ({self.arch}, {self.toolchain})"


class Evaluation(Record):
    """The verdict on one source for one task on one device.

    Example:
        found: kernelblaster.Evaluation = kernelblaster.evaluate("kernel.cu", "examples/softmax.py")
        print(found.outcome, found.reason, found.timing)
    """

    key: str
    """Identity of what was evaluated: source, task, device."""
    source_sha256: str
    task_id: str
    device: DeviceIdentity
    outcome: Outcome
    reason: str = ""
    """One line; empty for a pass."""
    diagnostics: tuple[Diagnostic, ...] = ()
    build: Build | None = None
    facts: dict[str, float | int | str] = Field(default_factory=dict)
    timing: Timing | None = None
    profile: Profile | None = None

    @model_validator(mode="after")
    def _only_a_pass_carries_a_time(self) -> Evaluation:
        if self.outcome is Outcome.PASSED:
            if self.timing is None:
                raise ValueError("a passed evaluation carries a timing")
        elif self.timing is not None or self.profile is not None:
            raise ValueError(f"an evaluation that is {self.outcome} carries no time and no profile")
        elif not self.reason:
            raise ValueError("a failed evaluation says why")
        elif not self.outcome.has_candidate:
            raise ValueError(f"{self.outcome} is no verdict on a source")
        return self


def evaluation_key(source_sha256: str, task_id: str, device: DeviceIdentity) -> str:
    """Return the key under which an evaluation is stored: nothing is evaluated twice."""
    return sha256_of_json([source_sha256, task_id, device.model_dump()])


def source_sha256(source: str) -> str:
    """Return the sha256 by which a source is known: that of its artifact."""
    return hashlib.sha256(source.encode()).hexdigest()
