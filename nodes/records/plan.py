"""A run as it is asked for: request, context, and the plan that both are resolved to."""

from __future__ import annotations

from typing import Literal, get_args

from pydantic import (
    BaseModel,
    ConfigDict,
    Field,
    GetJsonSchemaHandler,
    field_validator,
)
from pydantic.json_schema import JsonSchemaValue
from pydantic_core import CoreSchema

from ...harness.devices.protocol import CONFIRM_SECONDS
from ...harness.records.evaluations import DeviceIdentity
from ...harness.records.readings import AS_WRITTEN, Reading
from ...harness.records.record import Integer, Record
from ...harness.task.unseen import DEFAULT_SHAPES, MOST_SHAPES
from ...memory.records.ablation import Ablation, Memory
from ...tools.models.records import Budgets, ModelPlan

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
    sweeps: bool = True
    """Whether other settings of what moved a kernel's time are tried on it too, without a model."""
    counters: bool = True
    """Whether agents are shown hardware counters; without them they know a kernel's time alone."""
    gradient: bool = True
    """Whether policy evaluation, gap analysis and parameter update change the knowledge base; else
    evidence alone does."""
    fresh: bool | None = None
    """Whether every kernel is evaluated anew, whatever earlier runs on this machine found out about
    it; by default $KERNELBLASTER_FRESH, else not."""
    shared: str = ""
    """Folder, seen from the run's own, in which runs that are compared share what they find out
    about kernels, each charged as if it had found all itself; by default the machine's cache, and
    nobody is charged."""
    approve: tuple[Approval, ...] = ()
    """What the run does not go on with before a person agreed: its plan, the technique of each
    step, its winner."""


    @property
    def ablation(self) -> Ablation:
        """What of its surroundings the run does without."""
        return Ablation(self.memory, self.seed, self.counters, bool(self.fresh), self.shared)

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
            "no sweeps": not self.sweeps,
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
        schema = handler.resolve_ref_schema(handler(RunContext.__pydantic_core_schema__))
        RunContext.describe(schema)
        return schema


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
