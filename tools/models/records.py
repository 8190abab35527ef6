"""The words of model calls: roles, plans, budgets, messages and answers; never a key."""

from __future__ import annotations

from typing import Annotated, Generic, Literal, TypeVar, get_args

from pydantic import Field

from ...harness.records.record import Integer, Record

BUILTIN = "builtin"
"""The author that needs no model: the reasoner in the folder of the role's agent."""

Role = Literal[
    "initial_cuda",
    "state_extractor",
    "state_selector",
    "optimization_proposer",
    "optimization_selector",
    "kernel_writer",
    "soft_verifier",
    "policy_evaluation",
    "gap_analysis",
    "parameter_update",
    "coder",
    "judge",
]
ROLES: tuple[Role, ...] = get_args(Role)

ANSWERED_ONCE: frozenset[Role] = frozenset(
    ("state_extractor", "state_selector", "soft_verifier", "policy_evaluation", "gap_analysis")
)
"""Roles that read and judge: the same question twice in a run is asked once. Of all others each
answer is a sample, and the same prompt at another place is another one."""

CONTEXT_TOKENS: dict[Role, int] = {
    "initial_cuda": 12_000,
    "state_extractor": 8_000,
    "state_selector": 6_000,
    "optimization_proposer": 10_000,
    "optimization_selector": 8_000,
    "kernel_writer": 16_000,
    "soft_verifier": 12_000,
    "policy_evaluation": 8_000,
    "gap_analysis": 8_000,
    "parameter_update": 8_000,
    "coder": 16_000,
    "judge": 12_000,
}
"""Tokens a role's prompt may have (estimated): what is more is cut, the least important first."""


class Price(Record):
    """What a model's tokens cost, in dollars for a million."""

    input_per_million: float = Field(ge=0)
    """For input tokens."""
    cached_per_million: float = Field(ge=0)
    """For input tokens that the server had in its cache."""
    output_per_million: float = Field(ge=0)
    """For output tokens."""


class ModelPlan(Record):
    """Who reasons in which role, and how the endpoint is asked. Keys are never part of it."""

    roles: dict[Role, str] = Field(default_factory=dict)
    """`builtin`, `openai:NAME`, or `import:package.module:factory` for any LangChain chat model;
    roles left out are builtin."""
    base_url: str = ""
    """OpenAI-compatible endpoint (vLLM, SGLang, llama.cpp, Ollama); empty: OpenAI itself."""
    method: Literal["json_schema", "function_calling", "json_mode"] = "json_schema"
    """How a structured reply is asked for."""
    temperature: float | None = Field(default=None, ge=0, le=2)
    """None: the server's own; some models take no other."""
    streaming: bool = False
    """Receive replies piece by piece: a slow server then has twelve times as long for the whole.
    Done too while somebody reads the graph's `messages` stream."""
    timeout_seconds: float = Field(default=300.0, gt=0)
    """Longest wait for a reply, or for its next piece."""
    attempts: Integer = Field(default=5, ge=1)
    """Tries of a call that fails in transport: 429, 5xx, time-outs, dropped connections."""
    first_wait_seconds: float = Field(default=1.0, ge=0)
    """Longest wait before the second try; doubled for each more (a random part of it is waited),
    unless the server says how long."""
    on_model_failure: Literal["pause", "builtin"] = "pause"
    """What is done when the endpoint cannot be reached or refuses the key: the run stops with its
    place saved, or the role's built-in reasoner stands in."""
    check_seconds: float = Field(default=10.0, ge=0)
    """How long the endpoint may take to say, before the run begins, that it can be asked; 0: it is
    not asked."""
    reasks: Integer = Field(default=2, ge=0)
    """How often a malformed reply is asked for again, with the reason."""
    concurrency: Integer = Field(default=4, ge=1)
    """Calls under way at the same time in this process."""
    requests_per_minute: float | None = Field(default=None, gt=0)
    """None: no limit of our own."""
    max_output_tokens: Integer | None = Field(default=None, ge=1)
    """Longest reply; None: the server's own limit."""
    prices: dict[str, Price] = Field(default_factory=dict)
    """By model name."""
    rewrites_first: bool = False
    """Whether lowering tries the built-in rewrite of a technique before it asks a model."""
    context_tokens: dict[Role, Annotated[Integer, Field(ge=1000)]] = Field(default_factory=dict)
    """Where a role's prompt may be longer or shorter than CONTEXT_TOKENS says."""

    def model_of(self, role: Role) -> str:
        """Return who answers in a role."""
        return self.roles.get(role, BUILTIN)

    def context_of(self, role: Role) -> int:
        """Return how many tokens a role's prompt may have."""
        return self.context_tokens.get(role, CONTEXT_TOKENS[role])

    @property
    def names(self) -> tuple[str, ...]:
        """The models that are asked, each once, sorted; none where all roles are built in."""
        return tuple(sorted({self.model_of(role) for role in ROLES} - {BUILTIN}))

    def endpoint_of(self, name: str) -> str:
        """Return what is reached or not when a model of this name is asked."""
        return self.base_url if name.startswith("openai:") else name


class Budgets(Record):
    """Caps of a run, all its sessions together; None: no cap.

    Kept beside the run (budgets.json), not in its plan: `resume` may raise them.
    """

    tokens: Integer | None = Field(default=None, ge=0)
    """Input and output tokens of all model calls."""
    money: float | None = Field(default=None, ge=0, allow_inf_nan=False)
    """Dollars, by the table of prices."""
    calls: Integer | None = Field(default=None, ge=0)
    """Calls that were answered or may have been."""
    gpu_seconds: float | None = Field(default=None, ge=0, allow_inf_nan=False)
    """Seconds that candidates spent on the device, simulated or not."""
    wall_seconds: float | None = Field(default=None, ge=0, allow_inf_nan=False)
    """Working time of the run."""
    evaluations: Integer | None = Field(default=None, ge=1)
    """Distinct sources evaluated, the initial kernel included: there is no run without that."""


class ToolCall(Record):
    """A model's wish to have a tool called."""

    id: str
    name: str
    arguments: str
    """JSON, as the model gave it."""


class ToolCalls(Record):
    """A reply that asks for tools before it answers."""

    said: str
    """Its words beside the calls."""
    calls: tuple[ToolCall, ...]


class Section(Record):
    """A part of a message."""

    title: str
    """Its heading; empty: it has none."""
    keep: int | None
    """None: never left out. Otherwise the smaller goes first."""
    text: str

    @property
    def rendered(self) -> str:
        """The section with its heading."""
        return f"## {self.title}\n{self.text}" if self.title else self.text


class Message(Record):
    """One message of a conversation with a model."""

    role: Literal["system", "user", "assistant", "tool"]
    content: str
    calls: tuple[ToolCall, ...] = ()
    """What an assistant's message asks for besides."""
    answers: str = ""
    """Id of the call that a tool's message answers."""
    sections: tuple[Section, ...] = Field(default=(), exclude=True, repr=False)
    """What the content begins with, in parts of which some may be left out for length; it is no
    part of what is sent."""
    left_out: tuple[str, ...] = Field(default=(), exclude=True, repr=False)
    """Titles of sections that were."""

    @property
    def length(self) -> int:
        """Characters that are paid for."""
        return len(self.content) + sum(len(call.arguments) for call in self.calls)


Value = TypeVar("Value")


class Answer(Record, Generic[Value]):
    """What asking came to: a value, or the reason why there is none."""

    value: Value | None = None
    author: str
    """The model that answered, as the plan names it."""
    reason: str = ""
    """Why there is no value; empty where there is one."""
    prompt_sha256: str
    """Artifact of the first prompt: a JSON list of messages."""
    reply_sha256: str | None = None
    """Artifact of the last raw reply; None where none came."""
    calls: int = 0
    """Calls this answer took, those replayed from the ledger included."""
