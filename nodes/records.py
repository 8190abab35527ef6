"""The agents' words: frozen records that travel in graph state, small and free of source text.

Sources, profiles and tasks live in the artifact store of the run; state holds their sha256.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Literal, get_args

from pydantic import (
    BaseModel,
    ConfigDict,
    Field,
    GetJsonSchemaHandler,
    field_validator,
    model_validator,
)
from pydantic.json_schema import JsonSchemaValue
from pydantic_core import CoreSchema

from ..harness.bound.speed_of_light import SpeedOfLight
from ..harness.devices.protocol import CONFIRM_SECONDS
from ..harness.errors import typed
from ..harness.records import (
    AS_WRITTEN,
    Bottleneck,
    DeviceIdentity,
    Integer,
    Outcome,
    Provenance,
    Reading,
    Record,
)
from ..harness.task.claims import ClaimedInput
from ..harness.task.unseen import DEFAULT_SHAPES, MOST_SHAPES
from ..memory.records import (
    Ablation,
    ExpectedGain,
    Memory,
    Optimization,
    PerformanceState,
)
from ..tools.models.records import Budgets, ModelPlan

Approval = Literal["plan", "technique", "winner"]

Agents = Literal["compact", "full"]

Policy = Literal[
    "kernelblaster",
    "no_memory",
    "random",
    "greedy",
    "cycles_only",
    "coder_judge",
    "correction_only",
    "optimisation_only",
    "minimal",
    "zero_shot",
    "best_of_n",
]
"""Ways to search, by name (docs/policies.md)."""
POLICIES: tuple[Policy, ...] = get_args(Policy)

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
    reading: Reading = AS_WRITTEN
    """How the reference is read: in which mode and type, and whether it may be degenerate."""

    @field_validator("task", "start", "run")
    @classmethod
    def _is_text(cls, value: str | None) -> str | None:
        """Refuse what neither a path nor a file can hold."""
        if value and ("\0" in value or value != value.encode("utf-8", "replace").decode()):
            raise ValueError("it holds a NUL or half a surrogate pair, which is no text")
        return value


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
    on_budget: Literal["pause", "finish"] = "pause"
    """What is done when a cap is reached: the run stops with its place saved and goes on with a
    higher cap, or ends its search and announces the best so far."""
    policy: Policy = "kernelblaster"
    """How the search goes: the paper's loop, or one that it is compared with."""
    iterations: int = Field(default=2, ge=1, le=LONGEST_LOOP)
    """Policy updates: the outer loop."""
    rollouts: int = Field(default=2, ge=1, le=LONGEST_LOOP)
    """Trajectories of an iteration (breadth)."""
    steps: int = Field(default=4, ge=1, le=LONGEST_LOOP)
    """Techniques tried in a trajectory (depth)."""
    rounds: int = Field(default=10, ge=1, le=LONGEST_LOOP)
    """Candidates of a policy that writes one a round; kernelblaster counts otherwise."""
    repairs: int | None = Field(default=None, ge=0, le=LONGEST_LOOP)
    """How often the kernel writer may mend a candidate that failed; by default twice where a model
    writes it, else once."""
    writer: Literal["replies", "tools"] = "replies"
    """How a model writes kernels: a file a reply, or with tools to compile, run and profile it."""
    until: float | None = Field(default=None, gt=0, le=1)
    """Share of the speed of light at which the search ends; without it, it goes on to its last
    step."""
    confirm_seconds: float = Field(default=CONFIRM_SECONDS, ge=0)
    """How long Compute Sanitizer may look at the winner at full dimensions of a GPU; it looks at it
    at small ones in any case."""
    reference_seconds: float | None = Field(default=None, gt=0, allow_inf_nan=False)
    """How long PyTorch may take for the task's answers on the CPU; by default
    $KERNELBLASTER_REFERENCE_SECONDS, or 600."""
    shapes: int = Field(default=DEFAULT_SHAPES, ge=0, le=MOST_SHAPES)
    """At how many shapes that the search never saw the winner is looked at; 0: at none."""
    seed: Integer = 0
    """Same seed, same knowledge base: same run."""
    knowledge: str | None = None
    """Knowledge base directory; by default the user's."""
    memory: Memory = "live"
    """What the run has of the knowledge base: live, frozen (what was there when it began), seed
    (its priors alone), off, or shuffled (another state's for each state); to a base that is not
    live nothing is written."""
    agents: Agents = "compact"
    """When models are asked: compact, where the rule is clear about a kernel's state it stands; or
    full, each agent that has a model asks it at every step."""
    choice: Literal["sampled", "greedy", "random"] = "sampled"
    """How a technique is chosen: sampled by belief, the highest expectation, or any."""
    counters: bool = True
    """Whether agents are shown hardware counters; without them they know a kernel's time alone."""
    gradient: bool = True
    """Whether policy evaluation, gap analysis and parameter update change the knowledge base; else
    evidence alone does."""
    fresh: bool | None = None
    """Whether every kernel is evaluated anew, whatever earlier runs on this machine found out about
    it; by default $KERNELBLASTER_FRESH, else not."""
    approve: tuple[Approval, ...] = ()
    """What the run does not go on with before a person agreed: its plan, the technique of each
    step, its winner."""


    @property
    def ablation(self) -> Ablation:
        """What of its surroundings the run does without."""
        return Ablation(self.memory, self.seed, self.counters, bool(self.fresh))

    @property
    def learns(self) -> bool:
        """Whether the textual gradient changes what later choices read."""
        return self.gradient and self.memory == "live"

    @property
    def without(self) -> tuple[str, ...]:
        """What is left out of the whole method, in words."""
        told = {
            f"memory {self.memory}": self.memory != "live",
            f"choice {self.choice}": self.choice != "sampled",
            "no hardware counters": not self.counters,
            "no textual gradient": not self.gradient,
        }
        return tuple(f"ablation: {words}" for words, holds in told.items() if holds)


class Settings(BaseModel):
    """A `RunContext` as a client of a graph gives it: `load_task` says what of it cannot be.

    LangGraph makes it before any node runs, where a fault would be no sentence to the client.
    """

    model_config = ConfigDict(extra="allow")

    @classmethod
    def __get_pydantic_json_schema__(
        cls, core_schema: CoreSchema, handler: GetJsonSchemaHandler
    ) -> JsonSchemaValue:
        """Return the JSON schema of a `RunContext`: what Studio shows as settings."""
        return handler.resolve_ref_schema(handler(RunContext.__pydantic_core_schema__))


class RunPlan(OptimizeRequest, RunContext):
    """A request under its context, resolved once: what run.json holds, and never changed.

    Paths are absolute, `auto` and defaults are replaced by what they stand for.
    """

    run_id: str
    """Name of the run directory and a random part: whose evidence and lessons they are."""
    run: str
    """Run directory."""
    knowledge: str
    """Knowledge base directory."""
    repairs: int = Field(ge=0, le=LONGEST_LOOP)
    """How often the kernel writer may mend a candidate that failed."""
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
    """Of the reference, without .py."""
    id: str
    """sha256 of the reference, its dimensions and its tolerance."""
    artifact: str
    """sha256 of the Task's JSON."""
    op_class: str
    """elementwise, reduction, softmax, normalization, matmul, transpose, or mixed."""
    dtype: str
    """Type of the first output."""
    bound_us: float | None = None
    """Microseconds that no kernel of the task can be faster than on the run's GPU; None where its
    peaks are not known."""


KNOWN_KERNEL = "known_kernel"
"""Stands for a technique where a run takes a kernel that an earlier one found."""


class TechniqueStep(Record):
    """One link of the path from the initial kernel to a candidate."""

    technique: str
    """What was applied."""
    parameters: dict[str, Any] = Field(default_factory=dict)
    """With which values."""
    gain: float
    """Microseconds of the parent over microseconds of the child: above 1 is faster."""

    @property
    def names(self) -> tuple[str, ...]:
        """Techniques that it stands for: of an earlier run's kernel, those that led to it."""
        if self.technique != KNOWN_KERNEL:
            return (self.technique,)
        return tuple(map(str, self.parameters.get("after", ())))


class KernelPoint(Record):
    """A kernel that passed, in short: its evaluation and the steps to it are in the run's store."""

    source_sha256: str
    """Artifact of its text."""
    evaluation_key: str
    """Of its evaluation in the run's store."""
    microseconds: float = Field(gt=0)
    """Time of one call of `launch`."""
    interval: tuple[float, float]
    """Of the time, in microseconds: as `Timing` has it."""
    provenance: Provenance
    """Measured or simulated."""
    bottleneck: Bottleneck
    """What holds it back."""
    depth: int = Field(default=0, ge=0)
    """Techniques between the initial kernel and it."""
    technique: str = ""
    """The last of them."""
    author: str = ""
    """Who wrote it; empty in a run that an earlier version began."""

    @model_validator(mode="before")
    @classmethod
    def _shortened(cls, values: Any) -> Any:
        """Take a checkpoint of an earlier version, which held the timing and the whole path."""
        if not (isinstance(values, dict) and isinstance(values.get("timing"), dict)):
            return values
        told = {**values}
        timing, path = told.pop("timing"), told.pop("path", ())
        told.pop("bottleneck_ties", None)
        last = {"technique": path[-1]["technique"]} if path else {}
        return {
            **told,
            **{name: timing[name] for name in ("microseconds", "interval", "provenance")},
            "depth": len(path),
            **last,
        }


def faster(left: KernelPoint, right: KernelPoint | None) -> KernelPoint:
    """Return the faster kernel; ties go to fewer techniques, then to the smaller hash.

    Commutative, associative and idempotent: the order in which rollouts report does not matter.
    """
    if right is None:
        return left
    return min(left, right, key=lambda p: (p.microseconds, p.depth, p.source_sha256))


class LaunchSeen(Record):
    """One kernel of a program, all of its launches taken together: what a technique targets."""

    kernel: str
    """Its name."""
    first: int = Field(default=0, ge=0)
    """Place of its first launch among the program's, from 0."""
    launches: int = Field(default=1, ge=1)
    """How often it is launched."""
    microseconds: float
    """Of all its launches."""
    share: float
    """Of the program's time: what nothing done to it gains more than (Amdahl)."""
    bound_us: float
    """Microseconds that what it moves and computes as it stands takes at the GPU's peaks."""
    signature: tuple[float, ...]
    """Of its longest launch: one number a dimension."""
    primary: Bottleneck
    """What holds its longest launch back first."""
    secondary: Bottleneck | None = None
    """What comes next, where something does."""
    description: str = ""
    """How it behaves, in a line."""
    state: str = ""
    """Id of the performance state that it is in; empty where that is a new one."""

    @property
    def worth(self) -> float:
        """Share of the program's time that it spends above its own bound: share x headroom."""
        return self.share * (1.0 - min(1.0, self.bound_us / self.microseconds))


class KnownStart(Record):
    """What the knowledge base had for the run to begin with: kernels that won earlier runs."""

    point: KernelPoint | None = None
    """The one that holds here; None where none does."""
    run: str = ""
    """Id of the run that found it."""
    task: str = ""
    """Name of the task that it was written for."""
    resized: bool = False
    """Whether that one has other sizes."""
    techniques: tuple[str, ...] = ()
    """From the first kernel there to it, in order."""
    gain_then: float | None = None
    """Time of the first kernel there over its own; None where that was not known."""
    passed_over: tuple[str, ...] = ()
    """Known kernels that do not hold here, each with the reason."""

    @property
    def told(self) -> str:
        """Where it comes from, in words."""
        sizes = f" for {self.task} at other sizes" if self.resized else ""
        return f"found by run {self.run}{sizes}" if self.run else ""


class Observation(Record):
    """Reply of the state extractor: the kernel's performance signature in words and numbers."""

    signature: tuple[float, ...]
    """Its performance signature: one number a dimension."""
    signature_name: str
    """The signature in a few words."""
    primary: Bottleneck
    """What holds the kernel back first."""
    secondary: Bottleneck | None = None
    """What comes next, where something does."""
    description: str
    """How the kernel behaves."""
    features: tuple[str, ...] = ()
    """The signature's most telling dimensions, in words."""
    launches: tuple[LaunchSeen, ...] = ()
    """The program's kernels that take most of its time, in order of their first launch; none in
    a run that an earlier version began."""
    author: str
    """Who said so: `builtin`, or a model's name."""

    @property
    def target(self) -> LaunchSeen | None:
        """The kernel worth working on: whose time above its own bound is longest, of equal ones the
        first. None in a run that an earlier version began."""
        return max(self.launches, key=lambda launch: launch.worth, default=None)


class StateChoice(Record):
    """Reply of the state selector: the known state that fits, or the one just discovered."""

    state: PerformanceState
    """The state."""
    distance: float
    """Of the kernel's signature from the state's middle (root mean square)."""
    discovered: bool
    """Whether no known state fitted."""
    launch: LaunchSeen | None = None
    """The kernel of the program that is worth working on: the state is its state. None in a run
    that an earlier version began."""
    weights: dict[str, float] = Field(default_factory=dict)
    """How much the kernel is in each of the states nearest to it, by id; they sum to 1."""
    reason: str
    """Why this one."""
    author: str
    """Who said so: `builtin`, or a model's name."""


class Proposal(Record):
    """One technique on the table for the code at hand."""

    technique: str
    """Its name."""
    source: str
    """Who put it there: the state, a neighbour, the seed, or the proposer."""
    settings: tuple[dict[str, Any], ...] = ({},)
    """Parameter settings worth trying, the most promising first."""
    launch: str = ""
    """Kernel of the program that it is for; empty in a run that an earlier version began."""
    expected: ExpectedGain
    """What the policy expects of the first of them."""
    optimization: Optimization | None = None
    """What a model that proposed it newly says of it; None where the knowledge base describes
    it."""
    reason: str = ""
    """Why it may pay here."""
    author: str = "builtin"
    """Who proposed it."""


class TechniqueChoice(Record):
    """Reply of the optimization selector."""

    technique: str
    """Its name."""
    optimization: Optimization | None = None
    """What a model that proposed it says of it; None where the knowledge base describes it."""
    settings: tuple[dict[str, Any], ...] = ({},)
    """Parameter settings to try, in order."""
    launch: str = ""
    """Kernel of the program that it is for; empty in a run that an earlier version began."""
    expected_log_gain: float
    """Natural logarithm of the speedup, where it passes."""
    success_probability: float
    """That a candidate compiles and verifies."""
    sampled_score: float
    """What Thompson sampling drew for it: why it won this time."""
    reason: str
    """Why this one."""
    author: str
    """Who chose."""

    @classmethod
    def of(
        cls, proposal: Proposal, *, sampled_score: float, reason: str, author: str
    ) -> TechniqueChoice:
        """Return the choice of a proposal."""
        return cls(
            technique=proposal.technique,
            optimization=proposal.optimization,
            settings=proposal.settings,
            launch=proposal.launch,
            expected_log_gain=proposal.expected.mean_log,
            success_probability=proposal.expected.success_probability,
            sampled_score=sampled_score,
            reason=reason,
            author=author,
        )

    @model_validator(mode="before")
    @classmethod
    def _of_an_earlier_version(cls, values: Any) -> Any:
        """Take a checkpoint that says what the technique prepared."""
        if not isinstance(values, dict):
            return values
        return {name: values[name] for name in values if name != "prepared_log"}


class Attempt(Record):
    """One try at writing the chosen technique, and what came of it."""

    number: int
    """0 for the first try, 1.. for repairs."""
    source_sha256: str | None
    """Artifact of what was written; None where nothing was."""
    parameters: dict[str, Any] = Field(default_factory=dict)
    """Values that the technique was given."""
    author: str
    """Who wrote it."""
    outcome: Outcome | None = None
    """None while it is under way; stays None when nothing could be written."""
    reason: str = ""
    """Why it failed, or what the writer said."""
    prompt_sha256: str | None = None
    """Artifact of the prompt that a model wrote it from."""
    reply_sha256: str | None = None
    """Artifact of the model's raw reply."""


class ToolRound(Record):
    """Tools that the kernel writer had called before it gave an attempt."""

    attempt: int
    """Number of the attempt that it works on."""
    reply_sha256: str
    """Artifact of the model's raw reply: which tools, with what."""
    answers_sha256: str | None = None
    """Artifact of what they answered, a JSON list; None before they did."""
    evaluated: tuple[str, ...] = ()
    """Artifacts of the drafts that they had evaluated, the writer's own file left out."""


def evaluated_sources(attempts: Iterable[Attempt], rounds: Iterable[ToolRound]) -> frozenset[str]:
    """Return the artifacts of all that a lowering has had evaluated, or is about to."""
    written = (attempt.source_sha256 for attempt in attempts)
    drafts = (sha256 for each in rounds for sha256 in each.evaluated)
    return frozenset((*filter(None, written), *drafts))


class LoweringResult(Record):
    """What lowering made of the chosen technique."""

    applied: bool
    """False when no source could be written: no evaluation was spent."""
    outcome: Outcome
    """Of the last attempt."""
    reason: str = ""
    """Why it failed."""
    point: KernelPoint | None = None
    """The child, when it passed."""
    source_sha256: str | None = None
    """Artifact of the last attempt."""
    evaluation_key: str | None = None
    """Of its evaluation in the run's store."""
    parameters: dict[str, Any] = Field(default_factory=dict)
    """Values that the technique was given."""
    repairs: int = 0
    """Attempts after the first."""
    author: str = "builtin"
    """Who wrote the last attempt."""
    prompt_sha256: str | None = None
    """Artifact of the prompt that a model wrote it from."""
    attempts: tuple[Attempt, ...] = ()
    """Every try at writing it; none in a run that an earlier version began."""
    drafts: tuple[str, ...] = ()
    """Artifacts of what a writer's tools had evaluated before."""

    @property
    def sources(self) -> frozenset[str]:
        """Artifacts of all that was written on the way, drafts too."""
        written = (attempt.source_sha256 for attempt in self.attempts)
        return frozenset((*filter(None, written), *self.drafts))


class Said(Record):
    """What one agent said on the way to a step."""

    role: str
    """Which agent."""
    text: str
    """Its words."""
    author: str
    """Who answered for it: `builtin`, or a model's name."""


class StepAccount(Record):
    """How a step came about: an artifact of the run, for who reads it afterwards."""

    state_name: str
    """What the state of the parent is called."""
    said: tuple[Said, ...]
    """In the order in which the agents spoke."""
    proposals: tuple[Proposal, ...] = ()
    """Techniques on the table."""
    success_probability: float | None = None
    """Of the technique chosen, that a candidate compiles and verifies; as the policy had it."""
    attempts: tuple[Attempt, ...] = ()
    """Every try at writing it, failures too."""


class Candidate(Record):
    """What a round wrote, and what came of it."""

    technique: str
    """What was done to the kernel before: a method's name, `first_kernel`, or `correction`."""
    rewrite: str = ""
    """Technique of the library that it was made by; empty where a model wrote it."""
    parameters: dict[str, Any] = Field(default_factory=dict)
    """With which values."""
    source_sha256: str | None
    """Artifact of its text; None where nothing was written."""
    author: str
    """Who wrote it."""
    note: str = ""
    """What its writer said, or why nothing was written."""
    expected_log_gain: float = 0.0
    """Natural logarithm of the speedup that was expected of it."""
    prompt_sha256: str | None = None
    """Artifact of the prompt that a model wrote it from."""
    outcome: Outcome | None = None
    """What came of it; None until it is evaluated, or of nothing, why there is nothing."""
    reason: str = ""
    """Why it failed."""
    evaluation_key: str | None = None
    """Of its evaluation in the run's store."""
    point: KernelPoint | None = None
    """The kernel, where it passed."""

    @model_validator(mode="after")
    def _its_own(self) -> Candidate:
        """Hold times and counters to the text that they were taken of."""
        if self.point is not None:
            own = self.source_sha256, self.evaluation_key
            if (self.point.source_sha256, self.point.evaluation_key) != own:
                raise ValueError("a candidate and its measurement are of one source")
        return self


class Feedback(Record):
    """What the Judge says of one candidate."""

    mode: Literal["correction", "optimisation"]
    """Whether it was wrong or is to be faster."""
    source_sha256: str
    """The candidate that is judged."""
    evaluation_key: str
    """The evaluation that it is judged by."""
    finding: str
    """The one diagnosis, or the one bottleneck."""
    method: str
    """The one method; `correction` where it was wrong."""
    advice: str
    """The one hint, or the plan."""
    expected_log_gain: float = 0.0
    """Natural logarithm of the speedup that is expected of it."""
    author: str
    """Who judged."""
    prompt_sha256: str | None = None
    """Artifact of the prompt that a model judged by."""


class Trajectory(Record):
    """What one rollout reports to its parent; its steps are in the run's replay buffer."""

    id: str
    """ITERATION.ROLLOUT."""
    iteration: int
    """From 0."""
    rollout: int
    """Which of the iteration's rollouts, from 0."""
    best: KernelPoint
    """Its fastest kernel."""
    ended: str
    """Why it stopped."""
    over: bool = False
    """Whether the whole search is over, not this trajectory alone."""

    @model_validator(mode="before")
    @classmethod
    def _without_details(cls, values: Any) -> Any:
        """Take a checkpoint of an earlier version, which held what the store holds too."""
        if not isinstance(values, dict):
            return values
        return {name: values[name] for name in values if name not in ("steps", "passed")}


def merge_newest(
    left: dict[str, Trajectory] | None, right: dict[str, Trajectory] | None
) -> dict[str, Trajectory]:
    """Reducer: union by id of the newest iteration's; a trajectory reported twice counts once.

    What earlier ones came to is in the best so far and in the run's store. One in JSON is a record.
    """
    reported: dict[str, Trajectory] = typed(
        dict[str, Trajectory], "trajectories", right or {}
    )
    merged = (left or {}) | reported
    newest = max((each.iteration for each in merged.values()), default=0)
    return {key: each for key, each in merged.items() if each.iteration == newest}


def merge_reviews(
    left: dict[str, SoftReview] | None, right: dict[str, SoftReview] | None
) -> dict[str, SoftReview]:
    """Reducer: union by evaluation key; a kernel reviewed twice counts once."""
    reviews: dict[str, SoftReview] = typed(dict[str, SoftReview], "soft_reviews", right or {})
    return (left or {}) | reviews


def best_so_far(best: KernelPoint, trajectories: dict[str, Trajectory]) -> KernelPoint:
    """Return the fastest kernel of the best before and what trajectories reported."""
    for trajectory in trajectories.values():
        best = faster(best, trajectory.best)
    return best


class TechniqueReview(Record):
    """Measured against expected gain of one technique in one state."""

    state_id: str
    """The state."""
    state_name: str
    """What it is called."""
    technique: str
    """The technique."""
    trials: int
    """Tries in this iteration."""
    successes: int
    """Tries that passed."""
    expected_log_gain: float
    """Mean of what the policy expected."""
    measured_log_gain: float | None
    """Mean over the successes; None when none passed."""
    evidence: tuple[str, ...]
    """Ids of the tries' rows in the knowledge base."""
    outcomes: dict[str, int]
    """Tries by outcome."""
    reasons: tuple[str, ...] = ()
    """Why tries failed."""
    bottlenecks: tuple[str, ...] = ()
    """`before -> after`, one per success."""
    off_since: int | None = None
    """Iteration since which its outcomes lay on the same side of what was expected, more than a
    tenth away; None where this iteration's do not."""
    remark: str = ""
    """What a model says of it."""


class ForecastScore(Record):
    """How good forecasts were that were made before their outcomes."""

    rows: int
    """Steps that they were made of."""
    off: float | None = None
    """Mean of |outcome - forecast| log gain over what passed; None where nothing did."""
    bias: float | None = None
    """Mean of outcome less forecast: below 0 too much was expected."""
    covered: float | None = None
    """Share of outcomes within the spread that nine of ten should lie in."""
    pass_log_loss: float | None = None
    """Mean log loss of the forecast that it passes; 0.69 is a coin's."""
    worst: dict[str, float] = Field(default_factory=dict)
    """Outcome less forecast of the rows that were off most, by id."""


class PolicyEvaluation(Record):
    """Reply of policy evaluation: how well the expected gains predicted this iteration."""

    iteration: int
    """From 0."""
    reviews: tuple[TechniqueReview, ...]
    """By state and technique."""
    mean_absolute_error: float | None
    """Mean of |measured - expected| log gain over the successes."""
    success_rate: float
    """Share of the tries that passed."""
    forecasts: ForecastScore | None = None
    """Of this iteration; None in evaluations of earlier versions."""
    earlier: ForecastScore | None = None
    """Of the iterations before, so that one sees whether they get better; None in the first."""
    summary: str = ""
    """What a model says of the whole."""
    author: str
    """Who wrote the remarks."""


class Gap(Record):
    """One disagreement between policy and measurement, with its explanation."""

    kind: str
    """overestimated, underestimated, fails, confirmed, or sequence."""
    state_id: str
    """The state; of a sequence the one that it began in."""
    state_name: str
    """What it is called."""
    technique: str
    """The technique."""
    explanation: str
    """The figures, in words."""
    evidence: tuple[str, ...]
    """Ids of the rows that it rests on."""
    techniques: tuple[str, ...] = ()
    """For a sequence: the techniques in order."""
    log_gain: float | None = None
    """Natural logarithm of what was measured; None where nothing passed."""
    moved: tuple[str, ...] = ()
    """Dimensions of the signature that the technique should move, and did."""
    stayed: tuple[str, ...] = ()
    """Those that it should move, and did not."""
    against: tuple[str, ...] = ()
    """Those that moved for the worse."""
    cause: str = ""
    """Why: by the counters, or in a model's words."""
    condition: str = ""
    """How to tell beforehand, in a model's words."""
    author: str = "builtin"
    """Whose words it holds beside the figures."""

    @property
    def explained(self) -> str:
        """The figures, and the cause where one is known; without a full stop."""
        if not (self.cause or self.condition):
            return self.explanation
        parts = [self.explanation, self.cause, self.condition and f"Condition: {self.condition}"]
        return ". ".join(part.rstrip(".") for part in parts if part)


class GapAnalysis(Record):
    """Reply of performance-gap analysis."""

    iteration: int
    """From 0."""
    gaps: tuple[Gap, ...]
    """Each disagreement."""
    author: str
    """Who explained them."""


class WrittenLesson(Record):
    """One lesson as it was written to the knowledge base."""

    id: str
    """In the knowledge base."""
    kind: str
    """correction, condition, new_state, composite, deprecation or observation."""
    state_name: str
    """State that it holds in."""
    technique: str
    """Technique that it is about."""
    text: str
    """The lesson."""
    author: str = "builtin"
    """Whose words it has."""


class WrittenEdit(Record):
    """One edit of the policy as it was written to the knowledge base."""

    id: str
    """In the knowledge base."""
    kind: str
    """revise, add, macro, deprecate, join, split or rename."""
    text: str
    """What it changes and why."""
    author: str
    """Whose it is."""


class ParameterUpdate(Record):
    """Reply of parameter update: what changed in the knowledge base."""

    iteration: int
    """From 0."""
    lessons: tuple[WrittenLesson, ...]
    """What was written down."""
    edits: tuple[WrittenEdit, ...] = ()
    """What was changed in the policy."""
    refused: tuple[str, ...] = ()
    """Edits that were asked for and not written, with the reason."""
    moved: dict[str, tuple[float, float]] = Field(default_factory=dict)
    """`state / technique` -> expected log gain before and after."""
    author: str
    """Who worded it."""


class Objected(Record):
    """One objection of a reviewer to a kernel that passed every numeric gate."""

    said: str
    """The objection on one line: kind, place, what is wrong, how to check it."""
    quote: str
    """The line of the kernel that it rests on."""
    claim: ClaimedInput | None = None
    """The input on which the kernel is said to be wrong; None where no input would show it."""
    confirmed: bool | None = None
    """Whether the kernel was wrong there; None until the input was run, or where none is named."""
    found: str = ""
    """What running it showed."""

    @property
    def is_open(self) -> bool:
        """Whether an input is named that was not run."""
        return self.claim is not None and self.confirmed is None


class CandidateReview(Record):
    """What the soft verifier says of a candidate before it is measured."""

    source_sha256: str
    """The candidate."""
    objections: tuple[Objected, ...] = ()
    """What is said against it; empty too where it was not read."""
    author: str = ""
    """Who read it; empty where nobody did."""

    @property
    def is_open(self) -> bool:
        """Whether an input is claimed that was not run."""
        return any(each.is_open for each in self.objections)

    @property
    def is_wrong(self) -> bool:
        """Whether an input that was run showed the candidate wrong."""
        return any(each.confirmed for each in self.objections)


class SoftReview(Record):
    """What the soft verifier says of one kernel that passed every numeric gate."""

    vetoed: bool
    """Whether it may not be announced."""
    reasons: tuple[str, ...] = ()
    """Each with the line it rests on and how to check it."""
    remarks: tuple[str, ...] = ()
    """What a reader should know though it is no reason for a veto."""
    author: str
    """Who read it."""
    prompt_sha256: str | None = None
    """Artifact of the prompt, where a model read it."""
    objections: tuple[Objected, ...] = ()
    """What is said against it, with the inputs that were run; of a person's veto none."""

    @property
    def is_open(self) -> bool:
        """Whether an input is claimed that was not run."""
        return not self.vetoed and any(each.is_open for each in self.objections)


class Confirmation(Record):
    """The winner measured once more in a fresh process."""

    confirmed: bool
    """False when no kernel but the initial one held."""
    point: KernelPoint
    """The fastest kernel that held: what the run announces."""
    microseconds: float
    """Of that kernel, measured again."""
    gain: float
    """Time of the initial kernel over its own."""
    gain_interval: tuple[float, float]
    """Lower and upper end of the gain."""
    reason: str = ""
    """Why a faster kernel did not hold, where one did not."""


class StepAuthors(Record):
    """Who did what in one step."""

    iteration: int
    """From 0."""
    rollout: int
    """From 0."""
    step: int
    """From 0."""
    technique: str
    """What was tried."""
    state: str
    """Who said which state the kernel was in."""
    choice: str
    """Who chose the technique."""
    source: str
    """Who wrote it into the code."""


class ShapeCheck(Record):
    """The winner at a shape that the search never saw."""

    dimensions: dict[str, int]
    """Its sizes by name, those that are the task's own left out."""
    outcome: Outcome
    """`passed` where the same source, compiled for these sizes, holds; else why it does not."""
    reason: str = ""
    """One line; empty where it holds."""
    microseconds: float | None = None
    """Time of one call there, where it holds."""
    speedup: float | None = None
    """On a GPU: time of the faster of PyTorch's eager and compiled code there over its own."""

    @property
    def holds(self) -> bool:
        """Whether it passed all gates there."""
        return self.outcome is Outcome.PASSED


class RunResult(Record):
    """What a finished run announces; the command line prints it as JSON.

    Example:
        result: kernelblaster.RunResult = kernelblaster.optimize("examples/softmax.py")
        print(result.outcome, result.techniques)
    """

    outcome: str
    """improved, not_improved, or unconfirmed (the winner did not hold when measured again)."""
    task: str
    """Name of the task."""
    device: str
    """What evaluated: simulated, cuda, deferred, or a package's."""
    policy: Policy = "kernelblaster"
    """How the search went."""
    gpu: str
    """The GPU, simulated or real."""
    provenance: Provenance
    """Whose numbers the times are: simulated, ncu or events."""
    initial_us: float
    """Microseconds of the initial kernel."""
    best_us: float
    """Microseconds of the winner, measured again."""
    initial_cycles: float | None = None
    """GPU clock cycles of all launches of the initial kernel, the paper's measure, by who timed it;
    None where they were not counted (`notes` says why)."""
    best_cycles: float | None = None
    """The same of the winner."""
    start_us: float | None = None
    """Microseconds of the kernel of an earlier run that the search began with; None where it began
    with the initial one."""
    began_with: str = ""
    """Where that kernel comes from; empty where there is none."""
    gain: float
    """The time of the initial kernel over the winner's: above 1 is faster."""
    gain_ci: tuple[float, float]
    """Interval of the gain; a time model's error is not in it."""
    baselines: dict[str, float] = Field(default_factory=dict)
    """On a GPU, PyTorch in the rounds of the winner's last measurement: eager_us, compile_us, and
    the speedup over the faster with its interval (speedup_low, speedup_high)."""
    bound: SpeedOfLight | None = None
    """What no kernel of the task can be faster than on this GPU; None where its peaks are not
    known, or an earlier version made the result."""
    score: float | None = None
    """1 / (1 + (T - T_sol) / (T_base - T_sol)): 1 at the bound, 0.5 at the faster of eager and
    torch.compile, or at the initial kernel where neither was measured. None without a bound, or
    where the base is not above it."""
    ended: str = ""
    """Why the search ended before its last step; empty where it did not."""
    shapes: tuple[ShapeCheck, ...] = ()
    """The winner at shapes that the search never saw: where it holds and where not. Empty where
    that was not asked for, or the task's sizes cannot change."""
    evaluations: int
    """Distinct sources evaluated, the initial kernel included."""
    taken_over: int = 0
    """How many of these other runs on this machine had made, so that the device was not asked."""
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
    """The same with parameters and each step's gain."""
    bottleneck_before: Bottleneck
    """What held the initial kernel back."""
    bottleneck_after: Bottleneck
    """What holds the winner back."""
    lessons: tuple[str, ...]
    """Ids of the lessons written to the knowledge base, all iterations; none in a graph's state."""
    lesson_authors: tuple[str, ...] = ()
    """Of each lesson, in the same order."""
    models: dict[str, str] = Field(default_factory=dict)
    """Who was to answer in each role: `builtin`, or a model's name."""
    initial_author: str = ""
    """Who wrote the initial kernel."""
    steps: tuple[StepAuthors, ...] = ()
    """Who did what, step by step; none in a graph's state."""
    notes: tuple[str, ...] = ()
    """What a reader should know besides: precision lost, kernels that did not hold."""
    best_source: str
    """Path of best.cu."""
    source: str = ""
    """Its text: who asked from elsewhere cannot open the path."""
    run: str
    """Path of the run directory: its result.json holds the result whole."""

    def in_short(self) -> RunResult:
        """Return it as a graph's state and a parent's hold it: without what grows with steps."""
        return self.model_copy(update={"steps": (), "lessons": (), "lesson_authors": ()})
