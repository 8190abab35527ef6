"""The agents' words: frozen records that travel in graph state, small and free of source text.

Sources, profiles and tasks live in the artifact store of the run; state holds their sha256.
"""

from __future__ import annotations

from typing import Any, TypeVar

from pydantic import (
    BaseModel,
    ConfigDict,
    Field,
    GetJsonSchemaHandler,
    TypeAdapter,
    ValidationError,
)
from pydantic.json_schema import JsonSchemaValue
from pydantic_core import CoreSchema

from ..harness.errors import UserError, told_of
from ..harness.records import (
    Bottleneck,
    DeviceIdentity,
    Integer,
    Outcome,
    Provenance,
    Record,
    Timing,
)
from ..memory.records import ExpectedGain, Optimization, PerformanceState, Step
from ..tools.models.records import Budgets, ModelPlan

LONGEST_LOOP = 1000
"""Of a run's loops, each: what comes of more is over the graph's limit of steps."""


class OptimizeRequest(Record):
    """Input of `optimize`: the task, and what to start from.

    Example:
        request = kernelblaster.OptimizeRequest(task="examples/softmax.py")
    """

    task: str
    """PyTorch reference in KernelBench form: the path of the file, or its text."""
    start: str | None = None
    """First CUDA kernel: the path of the file, or its text; without it one is written."""
    run: str | None = None
    """Run directory; by default runs/TASK-N."""
    dimensions: dict[str, Integer] = Field(default_factory=dict)
    """Dimensions at which candidates are verified, by name in the reference."""


class RunContext(Record):
    """How a run is done, whatever its task: settings of an assistant in Studio.

    Example:
        context = kernelblaster.RunContext(gpu="A100", iterations=4, model="builtin")
    """

    gpu: str = ""
    """GPU to optimise for; by default the one here, an H100 where one is simulated."""
    device: str = "auto"
    """auto, cuda (cuda:0,1 for several GPUs), simulated, deferred, or one that a package brings."""
    model: str = "builtin"
    """Who reasons: `builtin` (needs no key), `openai:NAME`, or ROLE=MODEL,ROLE=MODEL."""
    models: ModelPlan = ModelPlan()
    """How models are asked; `model` says who answers in which role."""
    budgets: Budgets = Budgets()
    """Caps on what the run may use."""
    iterations: int = Field(default=2, ge=1, le=LONGEST_LOOP)
    """Policy updates: the outer loop."""
    rollouts: int = Field(default=2, ge=1, le=LONGEST_LOOP)
    """Trajectories of an iteration (breadth)."""
    steps: int = Field(default=4, ge=1, le=LONGEST_LOOP)
    """Techniques tried in a trajectory (depth)."""
    repairs: int | None = Field(default=None, ge=0, le=LONGEST_LOOP)
    """How often the kernel writer may mend a candidate that failed; by default twice where a model
    writes it, else once."""
    seed: Integer = 0
    """Same seed, same knowledge base: same run."""
    knowledge: str | None = None
    """Knowledge base directory; by default the user's."""


class Settings(BaseModel):
    """A `RunContext` as a client of a graph gives it: `load_task` says what of it cannot be.

    LangGraph makes it before any node runs, where a fault would be no sentence to the client.
    """

    model_config = ConfigDict(extra="allow")

    @classmethod
    def __get_pydantic_json_schema__(
        cls, core_schema: CoreSchema, handler: GetJsonSchemaHandler
    ) -> JsonSchemaValue:
        """Return the JSON schema of a `RunContext`: what Studio shows as an assistant's settings."""
        return handler.resolve_ref_schema(handler(RunContext.__pydantic_core_schema__))


class RunPlan(OptimizeRequest, RunContext):
    """A request under its context, resolved once: what run.json holds, and never changed.

    Paths are absolute, `auto` and defaults are replaced by what they stand for.
    """

    run_id: str
    """Name of the run directory and a random part: whose evidence and lessons they are."""
    run: str
    knowledge: str
    repairs: int = Field(ge=0, le=LONGEST_LOOP)
    device_why: str = ""
    """Why `auto` chose the device."""
    task_sha256: str = ""
    """Of the reference's text when the run began; empty where an earlier version began it."""
    forked_from: str = ""
    """Directory of the run that this one went on from, with another state; empty otherwise."""
    identity: DeviceIdentity
    """Device, toolchain and harness the run began with: it is resumed with no other."""


class TaskSummary(Record):
    """What routers and selectors need to know of the task; the record itself is an artifact."""

    name: str
    id: str
    artifact: str
    """sha256 of the Task's JSON."""
    op_class: str
    dtype: str


class TechniqueStep(Record):
    """One link of the path from the initial kernel to a candidate."""

    technique: str
    parameters: dict[str, Any] = Field(default_factory=dict)
    gain: float
    """Microseconds of the parent over microseconds of the child: above 1 is faster."""


class KernelPoint(Record):
    """A kernel that passed: where it is stored, how long it takes, how it was reached."""

    source_sha256: str
    evaluation_key: str
    timing: Timing
    bottleneck: Bottleneck
    bottleneck_ties: tuple[Bottleneck, ...] = ()
    path: tuple[TechniqueStep, ...] = ()
    author: str = ""
    """Who wrote it; empty in a run that an earlier version began."""

    @property
    def microseconds(self) -> float:
        """Time of one call of `launch`."""
        return self.timing.microseconds


def faster(left: KernelPoint, right: KernelPoint | None) -> KernelPoint:
    """Return the faster kernel; ties go to the shorter path, then to the smaller hash.

    Commutative, associative and idempotent: the order in which rollouts report does not matter.
    """
    if right is None:
        return left
    return min(left, right, key=lambda p: (p.microseconds, len(p.path), p.source_sha256))


class Observation(Record):
    """Reply of the state extractor: the kernel's performance signature in words and numbers."""

    signature: tuple[float, ...]
    signature_name: str
    primary: Bottleneck
    secondary: Bottleneck | None = None
    description: str
    features: tuple[str, ...] = ()
    """The signature's most telling dimensions, in words."""
    author: str


class StateChoice(Record):
    """Reply of the state selector: the known state that fits, or the one just discovered."""

    state: PerformanceState
    distance: float
    discovered: bool
    reason: str
    author: str


class Proposal(Record):
    """One technique on the table for the code at hand."""

    technique: str
    source: str
    """Who put it there: the state, a neighbour, the seed, or the proposer."""
    settings: tuple[dict[str, Any], ...] = ({},)
    """Parameter settings worth trying, in order: measured gains, untried, measured losses."""
    expected: ExpectedGain
    """The policy's belief, as of the iteration's snapshot."""
    optimization: Optimization | None = None
    """What a model that proposed it newly says of it; None where the knowledge base describes
    it."""
    reason: str = ""
    author: str = "builtin"


class TechniqueChoice(Record):
    """Reply of the optimization selector."""

    technique: str
    optimization: Optimization | None = None
    """What a model that proposed it says of it; None where the knowledge base describes it."""
    settings: tuple[dict[str, Any], ...] = ({},)
    """Parameter settings to try, in order."""
    expected_log_gain: float
    success_probability: float
    prepared_log: float = 0.0
    """What later steps gained where this technique was tried before (discounted log gain)."""
    sampled_score: float
    """What Thompson sampling drew for it: why it won this time."""
    reason: str
    author: str


class Attempt(Record):
    """One try at writing the chosen technique, and what came of it."""

    number: int
    """0 for the first try, 1.. for repairs."""
    source_sha256: str | None
    parameters: dict[str, Any] = Field(default_factory=dict)
    author: str
    outcome: Outcome | None = None
    """None while it is under way; stays None when nothing could be written."""
    reason: str = ""
    prompt_sha256: str | None = None
    """Artifact of the prompt that a model wrote it from."""
    reply_sha256: str | None = None
    """Artifact of the model's raw reply."""


class LoweringResult(Record):
    """What lowering made of the chosen technique."""

    applied: bool
    """False when no source could be written: no evaluation was spent."""
    outcome: Outcome
    reason: str = ""
    point: KernelPoint | None = None
    """The child, when it passed."""
    source_sha256: str | None = None
    evaluation_key: str | None = None
    parameters: dict[str, Any] = Field(default_factory=dict)
    repairs: int = 0
    author: str = "builtin"
    prompt_sha256: str | None = None
    """Artifact of the prompt that a model wrote it from."""


class Trajectory(Record):
    """What one rollout reports to its parent."""

    id: str
    iteration: int
    rollout: int
    steps: tuple[Step, ...]
    best: KernelPoint
    ended: str
    """Why it stopped."""
    passed: tuple[KernelPoint, ...] = ()
    """Every kernel of it that passed: where the best is vetoed, the next best may stand."""


def merge_by_id(
    left: dict[str, Trajectory] | None, right: dict[str, Trajectory] | None
) -> dict[str, Trajectory]:
    """Reducer: union by id; a trajectory reported twice counts once, one in JSON is a record."""
    return (left or {}) | _typed(dict[str, Trajectory], "trajectories", right or {})


def merge_reviews(
    left: dict[str, SoftReview] | None, right: dict[str, SoftReview] | None
) -> dict[str, SoftReview]:
    """Reducer: union by evaluation key; a kernel reviewed twice counts once."""
    return (left or {}) | _typed(dict[str, SoftReview], "soft_reviews", right or {})


Typed = TypeVar("Typed")


def _typed(kind: type[Typed], name: str, value: object) -> Typed:
    """Return what is written at a key of the state as its type; raises UserError."""
    try:
        return TypeAdapter(kind).validate_python(value)
    except ValidationError as error:
        raise UserError(told_of(error, name)) from error


def best_so_far(initial: KernelPoint, trajectories: dict[str, Trajectory]) -> KernelPoint:
    """Return the fastest kernel that any trajectory reported, or the initial one."""
    best = initial
    for trajectory in trajectories.values():
        best = faster(best, trajectory.best)
    return best


class TechniqueReview(Record):
    """Measured against expected gain of one technique in one state."""

    state_id: str
    state_name: str
    technique: str
    trials: int
    successes: int
    expected_log_gain: float
    measured_log_gain: float | None
    """Mean over the successes; None when none passed."""
    evidence: tuple[str, ...]
    outcomes: dict[str, int]
    reasons: tuple[str, ...] = ()
    bottlenecks: tuple[str, ...] = ()
    """`before -> after`, one per success."""
    remark: str = ""
    """What a model says of it."""


class PolicyEvaluation(Record):
    """Reply of policy evaluation: how well the expected gains predicted this iteration."""

    iteration: int
    reviews: tuple[TechniqueReview, ...]
    mean_absolute_error: float | None
    """Mean of |measured - expected| log gain over the successes."""
    success_rate: float
    summary: str = ""
    """What a model says of the whole."""
    author: str


class Gap(Record):
    """One disagreement between policy and measurement, with its explanation."""

    kind: str
    """overestimated, underestimated, fails, confirmed, sequence, or new_state."""
    state_id: str
    state_name: str
    technique: str
    explanation: str
    evidence: tuple[str, ...]
    techniques: tuple[str, ...] = ()
    """For a sequence: the techniques in order."""
    log_gain: float | None = None
    cause: str = ""
    """Why, in a model's words."""
    condition: str = ""
    """How to tell beforehand, in a model's words."""
    author: str = "builtin"
    """Whose words it holds beside the figures."""

    @property
    def explained(self) -> str:
        """The figures, and a model's words where there are any; without a full stop."""
        if not (self.cause or self.condition):
            return self.explanation
        parts = [self.explanation, self.cause, self.condition and f"Condition: {self.condition}"]
        return ". ".join(part.rstrip(".") for part in parts if part)


class GapAnalysis(Record):
    """Reply of performance-gap analysis."""

    iteration: int
    gaps: tuple[Gap, ...]
    author: str


class WrittenLesson(Record):
    """One lesson as it was written to the knowledge base."""

    id: str
    kind: str
    state_name: str
    technique: str
    text: str
    author: str = "builtin"


class ParameterUpdate(Record):
    """Reply of parameter update: what changed in the knowledge base."""

    iteration: int
    lessons: tuple[WrittenLesson, ...]
    moved: dict[str, tuple[float, float]] = Field(default_factory=dict)
    """`state / technique` -> expected log gain before and after."""
    author: str


class SoftReview(Record):
    """What the soft verifier says of one kernel that passed every numeric gate."""

    vetoed: bool
    reasons: tuple[str, ...] = ()
    """Each with the line it rests on and how to check it."""
    remarks: tuple[str, ...] = ()
    """What a reader should know though it is no reason for a veto."""
    author: str
    prompt_sha256: str | None = None


class Confirmation(Record):
    """The winner measured once more in a fresh process."""

    confirmed: bool
    """False when no kernel but the initial one held."""
    point: KernelPoint
    """The fastest kernel that held: what the run announces."""
    microseconds: float
    gain: float
    gain_interval: tuple[float, float]
    reason: str = ""


class StepAuthors(Record):
    """Who did what in one step."""

    iteration: int
    rollout: int
    step: int
    technique: str
    state: str
    """Who said which state the kernel was in."""
    choice: str
    """Who chose the technique."""
    source: str
    """Who wrote it into the code."""


class RunResult(Record):
    """What a finished run announces; the command line prints it as JSON.

    Example:
        result: kernelblaster.RunResult = kernelblaster.optimize("examples/softmax.py")
        print(result.outcome, result.techniques)
    """

    outcome: str
    """improved, not_improved, or unconfirmed (the winner did not hold when measured again)."""
    task: str
    device: str
    gpu: str
    provenance: Provenance
    initial_us: float
    best_us: float
    gain: float
    gain_ci: tuple[float, float]
    """Interval of the gain; a time model's error is not in it."""
    baselines: dict[str, float] = Field(default_factory=dict)
    """On a GPU, PyTorch in the rounds of the winner's last measurement: eager_us, compile_us, and
    the speedup over the faster with its interval (speedup_low, speedup_high)."""
    evaluations: int
    """Distinct sources evaluated, the initial kernel included."""
    outcomes: dict[str, int]
    """Evaluations by outcome: failures are counted, not hidden."""
    model_calls: int
    """Paid ones; maybe paid ones are among them."""
    tokens: int
    """Input and output."""
    money: float | None = None
    """Dollars by the table of prices; None where no call has a price."""
    techniques: tuple[str, ...]
    """From the initial kernel to the best, in order."""
    path: tuple[TechniqueStep, ...]
    bottleneck_before: Bottleneck
    bottleneck_after: Bottleneck
    lessons: tuple[str, ...]
    """Ids of the lessons written to the knowledge base, all iterations."""
    lesson_authors: tuple[str, ...] = ()
    """Of each lesson, in the same order."""
    models: dict[str, str] = Field(default_factory=dict)
    """Who was to answer in each role: `builtin`, or a model's name."""
    initial_author: str = ""
    steps: tuple[StepAuthors, ...] = ()
    notes: tuple[str, ...] = ()
    """What a reader should know besides: precision lost, kernels that did not hold."""
    best_source: str
    """Path of best.cu."""
    source: str = ""
    """Its text: who asked from elsewhere cannot open the path."""
    run: str
    """Path of the run directory."""
