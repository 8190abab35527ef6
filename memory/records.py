"""The words of memory: records of signatures, states, optimizations, evidence and lessons."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Annotated, Any, Literal, NamedTuple

from pydantic import Field, model_validator

from ..harness.gpus import architecture_family
from ..harness.records import Bottleneck, DeviceIdentity, Outcome, Record, sha256_of_json

SIGNATURE_NAME: Literal["signature/v2"] = "signature/v2"
"""Name of the current signature layout; a change of its dimensions is a new name."""
EARLIER_SIGNATURES = ("signature/v1",)
"""Layouts that are read too: the first dimensions of today's."""

Author = str
"""`builtin`, `person`, or the model's name; several that had a part are joined by ` and `."""

Memory = Literal["live", "frozen", "seed", "off", "shuffled"]
"""What a run has of a knowledge base: all, also what it learns itself; what was there when it
began; the seed's priors alone; nothing; or what was there, with outcomes dealt anew among tries and
each state told of as another."""

LATER_FIELDS = (
    "harness", "repairs", "launch", "earlier", "forecast_std", "forecast_pass",
    "launch_signature", "launch_share", "microseconds", "bound_us",
)  # fmt: skip
"""Of evidence, those that the first version did not have."""

NO_GAIN = 0.01
"""Log gain below which nothing worth the name was gained, or lost (about 1 %)."""


class Ablation(NamedTuple):
    """What of its surroundings a run does without: nothing, unless somebody asks for it."""

    memory: Memory = "live"
    seed: int = 0
    """Says how outcomes are dealt and states told of, where memory is shuffled."""
    counters: bool = True
    """Whether agents know more of a kernel's run than its time."""
    fresh: bool = False
    """Whether it evaluates all itself, whatever other runs of this machine found."""


WHOLE = Ablation()
"""Nothing is left out."""


_LATER = (
    "conditions", "steps", "supporting", "opposing", "edits", "withdrawals", "reverts",
)  # fmt: skip
"""Fields that older records had not."""


def as_first_stored(record: Record) -> dict[str, Any]:
    """Return a record's JSON without what older ones had not where it is empty, so that they keep
    their ids."""

    def without(value: Any) -> Any:
        if isinstance(value, list):
            return [without(item) for item in value]
        if not isinstance(value, dict):
            return value
        return {
            name: without(item)
            for name, item in value.items()
            if item or name not in _LATER
        }

    content: dict[str, Any] = without(record.model_dump(mode="json"))
    return content


class Signature(Record):
    """A profile as a fixed vector; `memory.knowledge.signature` names its dimensions."""

    name: Literal["signature/v2"] = SIGNATURE_NAME
    values: tuple[float, ...]
    """Each in [0, 1], or below 0 where nobody measured it."""


class PerformanceState(Record):
    """A situation that a kernel can be in, named for what holds it back."""

    id: str
    """Slug, unique in a knowledge base."""
    name: str
    """What it is called, in words."""
    primary: Bottleneck
    """What holds a kernel in it back first."""
    secondary: Bottleneck | None = None
    """What comes next, where something does."""
    centroid: tuple[float, ...]
    """Signature values in the middle of the state."""
    spread: float
    """Largest signature distance (root mean square: `memory.knowledge.signature`) of a member."""
    description: str
    """How a kernel in it behaves."""
    origin: Literal["seed", "discovered"]
    """Whether it came with the package or was found in a run."""
    count: int = 0
    """Rows of evidence that started in this state, as of the snapshot read."""


Comparison = Literal["at_least", "at_most", "equals", "among", "lacks"]
Fact = float | str | frozenset[str]
"""What is known of a kernel under one name: a number, a word, or several words."""


class Condition(Record):
    """What must be so of a kernel, in a form that a machine checks."""

    feature: str
    """Name of a fact; `memory.knowledge.conditions` lists them."""
    comparison: Comparison
    """at_least and at_most compare numbers, equals a number or a word; among says that the fact (of
    several words, one at least) is one of the value's words, lacks that it is none."""
    value: float | str | tuple[str, ...]
    """What it is compared with."""

    @model_validator(mode="after")
    def _compares_what_it_can(self) -> Condition:
        kinds: dict[Comparison, tuple[type, ...]] = {
            "at_least": (float,), "at_most": (float,), "equals": (float, str),
            "among": (tuple,), "lacks": (tuple,),
        }  # fmt: skip
        if not isinstance(self.value, kinds[self.comparison]):
            raise ValueError(f"{self.comparison} cannot compare with {self.value!r}")
        return self

    def holds(self, facts: Mapping[str, Fact]) -> bool | None:
        """Say whether it is so of a kernel; None where the fact is not known, or of another kind
        than what it is compared with."""
        fact, value = facts.get(self.feature), self.value
        if fact is None:
            return None
        if isinstance(value, tuple):
            words = frozenset({fact}) if isinstance(fact, str) else fact
            if not isinstance(words, frozenset):
                return None
            return words.isdisjoint(value) == (self.comparison == "lacks")
        if isinstance(value, str) or not isinstance(fact, float | int):
            return fact == value if isinstance(fact, type(value)) else None
        if self.comparison == "at_least":
            return fact >= value
        return fact <= value if self.comparison == "at_most" else fact == value

    def __str__(self) -> str:
        """In words, for example `sm at least 0.6`."""
        value = self.value
        if isinstance(value, tuple):
            said = ", ".join(value)
        else:
            said = value if isinstance(value, str) else f"{value:g}"
        words = {"at_least": "at least", "at_most": "at most", "equals": "is",
                 "among": "has one of", "lacks": "has none of"}  # fmt: skip
        return f"{self.feature} {words[self.comparison]} {said}"


class MacroStep(Record):
    """One technique of a sequence that is chosen as one."""

    technique: str
    """What is applied."""
    parameters: dict[str, Any] = Field(default_factory=dict)
    """With which values; those left out take their default."""


class Optimization(Record):
    """A technique under a state, with what an engineer should know before trying it."""

    technique: str
    """Its name, snake_case."""
    description: str
    """What is done to the code."""
    applies_when: str
    """When it is worth trying."""
    avoid_when: str
    """When it does harm."""
    side_effects: str
    """What it costs besides."""
    notes: str
    """How to implement it."""
    parameters: dict[str, list[Any]] = Field(default_factory=dict)
    """Values worth trying, by parameter name; the first is the default."""
    conditions: tuple[Condition, ...] = ()
    """All of these must be so of a kernel, or not known: else it is not proposed."""
    steps: tuple[MacroStep, ...] = ()
    """Of a macro, the techniques that are applied one after the other; empty for one technique."""
    prior_log_gain: float
    """Expected natural logarithm of the speedup before any evidence."""
    prior_strength: float = Field(gt=0)
    """How many observations the prior is worth."""
    prior_evidence: tuple[str, ...] = ()
    """Ids of the evidence that the prior was drawn from, so that none of it counts twice."""


class StateOptimization(Record):
    """An optimization put under a state by parameter update; replaces the seed's of that name."""

    state_id: str
    optimization: Optimization
    device_kind: str
    """Where it was learned: simulated experience never changes what measured devices expect."""
    revision: int = Field(ge=1)
    """The highest revision counts; equal ones are ordered by content, so that merging commutes."""
    author: Author

    @property
    def id(self) -> str:
        """Identity: its content."""
        return sha256_of_json(["state_optimization", as_first_stored(self)])

    @property
    def rank(self) -> tuple[int, str, str]:
        """What counts over what, the higher over the lower; ids of evidence come last, for they
        depend on the names of runs."""
        content = as_first_stored(self)
        del content["optimization"]["prior_evidence"]
        return self.revision, sha256_of_json(content), self.id


class Applied(Record):
    """A technique applied to a kernel and what came of it: what a step of a run and a row of
    evidence both say."""

    run: str
    """Id of the run."""
    iteration: int
    """From 0; -1 where a run took a kernel that an earlier one found, before its first."""
    rollout: int
    """Which of the iteration's rollouts, from 0."""
    step: int
    """Which of the rollout's steps, from 0."""
    technique: str
    """What was applied."""
    launch: str = ""
    """Kernel of the program that it was to change; empty in rows of earlier versions."""
    parameters: dict[str, Any] = Field(default_factory=dict)
    """With which values."""
    earlier: dict[str, Any] | None = None
    """Values with which the parent has it applied to that kernel already; None at a first use."""
    expected_log_gain: float
    """As the policy had it before."""
    forecast_std: float | None = None
    """Standard deviation of the same, as of then; None in rows of earlier versions."""
    forecast_pass: float | None = None
    """Probability that it passes, as of then; None in rows of earlier versions."""
    outcome: Outcome
    """What came of it."""
    log_gain: float | None = None
    """log(time of parent / time of child); only a passed outcome has one."""
    parent_sha256: str
    """Source that it was applied to."""
    child_sha256: str | None = None
    """None when no child was written (not applicable)."""
    author: Author
    """Who wrote the child."""


class Circumstances(Record):
    """Where a technique is applied: what decides how much evidence counts elsewhere."""

    device_kind: str
    """simulated, cuda or deferred. Simulated evidence never moves measured estimates."""
    gpu: str
    arch: str
    """For example sm_90."""
    family: str
    """For example hopper."""
    op_class: str
    dtype: str
    harness: str = ""
    """Version of the harness that measures; empty where nobody noted it."""


class LaunchAtHand(Record):
    """One kernel of a program, as the policy asks about it."""

    kernel: str
    """Its name."""
    share: float
    """Of the program's time that its launches take."""
    signature: tuple[float, ...]
    """Of the longest of them."""


class KernelAtHand(Record):
    """A program as it is, before something is done to it."""

    task_id: str
    source_sha256: str
    microseconds: float
    """Of one call."""
    bound_us: float | None = None
    """That no kernel of the task can be faster than."""
    launches: tuple[LaunchAtHand, ...] = Field(min_length=1)
    """Its kernels, the costliest first."""
    targets: dict[str, str] = Field(default_factory=dict)
    """By technique, the kernel that its rewrite changes; of others the one that promises most."""
    applied: tuple[tuple[str, str, dict[str, Any]], ...] = ()
    """Technique, kernel and setting of each step on the way to it, in order."""


class PolicyContext(Circumstances):
    """What the policy is asked for: circumstances, and the kernel at hand where there is one.

    Without a harness, evidence of all versions counts alike.
    """

    tried: tuple[str, ...] = ()
    """Techniques already tried on this very source: left out."""
    writer: Author = "builtin"
    """Who is to write."""
    kernel: KernelAtHand | None = None
    """None where a state alone is asked about."""
    refused: tuple[tuple[str, str, str], ...] = ()
    """Technique, kernel and setting (`setting_name`) of what failed in this run: out of it."""
    own: tuple[str, ...] = ()
    """Ids of evidence that counts though it came after the snapshot: the rollout's own."""

    @classmethod
    def of(
        cls, identity: DeviceIdentity, op_class: str, dtype: str, tried: tuple[str, ...] = ()
    ) -> PolicyContext:
        """Return the circumstances of a task on a device."""
        return cls(
            device_kind=identity.kind,
            gpu=identity.gpu,
            arch=identity.arch,
            family=architecture_family(identity.arch),
            op_class=op_class,
            dtype=dtype,
            harness=identity.harness,
            tried=tried,
        )


class Evidence(Applied, Circumstances):
    """A step and its circumstances. Append-only: the knowledge base's truth."""

    task_id: str
    state_before: str
    """Id of the performance state."""
    state_after: str | None = None
    signature_before: tuple[float, ...]
    """Of the parent's dominant launch."""
    launch_signature: tuple[float, ...] = ()
    """Of the kernel that the technique was to change; empty in rows of earlier versions."""
    launch_share: float | None = None
    """Of the parent's time that its launches took."""
    microseconds: float | None = None
    """Time of the parent."""
    bound_us: float | None = None
    """That no kernel of the task can be faster than."""
    previous_technique: str | None = None
    """The technique applied just before in the trajectory."""
    standard_error: float = 0.0
    """Of log_gain."""
    toolchain: str
    prompt_sha256: str | None = None
    repairs: int = 0
    """How often a model mended it after a failure: 0 is a first try."""
    created: str = ""
    """Wall time, ISO 8601; not part of the identity."""

    @model_validator(mode="after")
    def _only_a_pass_has_a_gain(self) -> Evidence:
        if (self.outcome is Outcome.PASSED) != (self.log_gain is not None):
            raise ValueError("a passed step, and no other, has a measured gain")
        return self

    @property
    def id(self) -> str:
        """Identity: everything but the wall time, so that a repeated step is stored once."""
        return sha256_of_json(["evidence", self._content("created")])

    @property
    def fact_id(self) -> str:
        """Hash of the content without the run's name: what computed order may depend on."""
        return sha256_of_json(["fact", self._content("created", "run")])

    def _content(self, *left_out: str) -> dict[str, Any]:
        content = self.model_dump(mode="json", exclude=set(left_out))
        for name in LATER_FIELDS:
            if content[name] in (None, "", 0, []):
                del content[name]  # Older rows keep their id.
        return content


class Overturned(Record):
    """A row of evidence that passed and does not stand: it counts as a failure from then on."""

    evidence: str
    """Its id."""
    outcome: Literal["vetoed", "unconfirmed"]
    """Whether a reviewer refused the kernel, or it did not hold when it was measured again."""
    reason: str

    @property
    def id(self) -> str:
        """Identity: which row and how, so that it is overturned once."""
        return sha256_of_json(["overturned", self.evidence, self.outcome])


class ExpectedGain(Record):
    """What the policy expects of a technique on a kernel, and how sure it is."""

    mean_log: float
    """Mean of the log speedup of the next try, given that it passes."""
    std_log: float
    """Standard deviation of the same."""
    most_log: float | None = None
    """Log speedup that the kernel's share of the time, or the task's bound, allows at most."""
    success_probability: float
    """That a candidate compiles and verifies."""
    passed: float = Field(gt=0)
    """Beta parameter of the success probability."""
    failed: float = Field(gt=0)
    """The other."""
    trials: float
    """Tries that passed behind it: those on the kernels most like this one."""
    score: float
    """Expected log gain of trying, failures included: what candidates are ordered by."""

    @model_validator(mode="before")
    @classmethod
    def _of_an_earlier_version(cls, values: Any) -> Any:
        """Take one that has a posterior."""
        if not (isinstance(values, dict) and isinstance(values.get("posterior"), dict)):
            return values
        belief = values["posterior"]
        kept = {name: values[name] for name in values if name in cls.model_fields}
        return {**kept, "passed": belief["passes"], "failed": belief["failures"]}


def setting_name(setting: Mapping[str, Any]) -> str:
    """Return the name of a parameter setting, whatever the order of its parameters."""
    return str(sorted(setting.items()))


LessonKind = Literal[
    "correction", "condition", "new_state", "composite", "deprecation", "observation"
]


READ_OF_A_LESSON = ("created", "contested", "supporting", "opposing")
"""Fields of a lesson that are filled in when it is read."""


class Lesson(Record):
    """What parameter update wrote in words after gap analysis, with what it rests on."""

    text: str
    kind: LessonKind
    technique: str | None = None
    """For a composite, the techniques in order joined by ` then `."""
    state: str | None = None
    op_class: str | None = None
    """Class of operation it was learned on; None speaks of all."""
    conditions: tuple[Condition, ...] = ()
    """It speaks of kernels of which none of these is known not to be so."""
    claimed_log_gain: float | None = None
    """What the lesson says to expect; later evidence of the other sign makes it contested. A
    deprecation without one says that the technique breaks kernels: a pass contests it."""
    evidence: tuple[str, ...] = ()
    """Ids of the evidence it rests on."""
    device_kind: str
    """Where it was learned: simulated, cuda or deferred."""
    author: Author
    run: str
    iteration: int
    created: int = 0
    """Sequence number in this knowledge base; filled in when read, not part of the identity."""
    contested: bool = False
    """Later evidence disagrees; filled in when read, not part of the identity."""
    supporting: int = 0
    """Rows of evidence that agree with it; filled in when read, not part of the identity."""
    opposing: int = 0
    """Rows of evidence that disagree; filled in when read, not part of the identity."""

    @property
    def id(self) -> str:
        """Identity: its content."""
        content = as_first_stored(self)
        for name in READ_OF_A_LESSON:
            content.pop(name, None)
        if self.op_class is None:
            del content["op_class"]  # Older lessons keep their id.
        return sha256_of_json(["lesson", content])

    @property
    def key(self) -> tuple[object, ...]:
        """What lessons are merged by: what they speak of, under which conditions."""
        conditions = tuple(sorted(map(str, self.conditions)))
        return self.technique, self.op_class, conditions, self.device_kind == "simulated"

    @property
    def order(self) -> tuple[str | int | float, ...]:
        """What lessons are sorted by: what they say, for ids depend on the names of runs."""
        return (
            self.state or "",
            self.technique or "",
            self.op_class or "",
            self.kind,
            self.iteration,
            self.text,
            self.device_kind,
            self.author,
            -math.inf if self.claimed_log_gain is None else self.claimed_log_gain,
        )


class Withdrawal(Record):
    """A lesson that a person does not let stand: nobody reads it from now on."""

    lesson: str
    """Its id."""

    @property
    def id(self) -> str:
        """Identity: its content."""
        return sha256_of_json(["withdrawal", self.lesson])


MOST_CORRECTED = 0.25
"""Log gain by which one edit may correct what is expected of a technique (about 28 %)."""


class EditBase(Record):
    """What every edit of the policy says of itself."""

    evidence: tuple[str, ...]
    """Ids of the rows that it rests on."""
    reason: str
    """Why, in a sentence."""
    revision: int = Field(default=1, ge=1)
    """Which revision of what it changes this makes; lower ones are applied first."""
    device_kind: str
    """Where it was learned: simulated edits change nothing for measured devices."""
    author: Author
    run: str
    iteration: int

    @property
    def id(self) -> str:
        """Identity: its content."""
        return sha256_of_json(["edit", as_first_stored(self)])

    @property
    def rank(self) -> tuple[int, str, str]:
        """In which order edits are applied: what decides depends on no run's name."""
        content = as_first_stored(self)
        for name in ("evidence", "run"):
            del content[name]
        return self.revision, sha256_of_json(content), self.id


class Revise(EditBase):
    """A listed optimization is revised: what is left empty stays."""

    edit: Literal["revise"] = "revise"
    technique: str
    """Of which entry."""
    state: str | None = None
    """Under this state alone; None: wherever it is listed or could be tried."""
    conditions: tuple[Condition, ...] = ()
    """What must be so besides."""
    notes: str = ""
    """Added to what is said of how to implement it."""
    parameters: dict[str, list[Any]] = Field(default_factory=dict)
    """Values in the order worth trying, by parameter."""
    correction: float = Field(default=0.0, ge=-MOST_CORRECTED, le=MOST_CORRECTED)
    """Added to the log gain expected before any evidence."""


class AddTechnique(EditBase):
    """A technique is listed under a state."""

    edit: Literal["add"] = "add"
    state: str
    card: Optimization


class StepProof(Record):
    """What shows that a macro needs one of its steps."""

    gained: tuple[str, ...] = ()
    """Ids of rows in which it gained by itself."""
    without: tuple[str, ...] = ()
    """Ids of rows in which the step after it was tried without it, and did worse."""


class AddMacro(EditBase):
    """A sequence of techniques is listed under a state as one that can be chosen."""

    edit: Literal["macro"] = "macro"
    state: str
    card: Optimization
    proofs: tuple[StepProof, ...]
    """Of each of the card's steps."""


class Deprecate(EditBase):
    """A technique is not to be tried again in a class of operation by a writer; a pass ends it."""

    edit: Literal["deprecate"] = "deprecate"
    technique: str
    """Which is not to be tried."""
    op_class: str
    writer: str | None = None
    """Author of the kernels that failed; None: whoever writes."""


class JoinStates(EditBase):
    """Discovered states that are one situation: what is known of them is the remaining one's."""

    edit: Literal["join"] = "join"
    states: tuple[str, ...]
    into: str


class SplitState(EditBase):
    """Kernels of a state of which a condition holds are a state of their own."""

    edit: Literal["split"] = "split"
    state: str
    condition: Condition
    other: PerformanceState


class RenameState(EditBase):
    """A discovered state is called and described otherwise."""

    edit: Literal["rename"] = "rename"
    state: str
    name: str
    description: str


Edit = Annotated[
    Revise | AddTechnique | AddMacro | Deprecate | JoinStates | SplitState | RenameState,
    Field(discriminator="edit"),
]
"""A change of what later choices read, as parameter update writes it."""


class Revert(Record):
    """An edit that does not stand from now on, or, where it names a revert, one that does."""

    edit: str
    """Id of the edit, or of the revert, that is undone."""
    author: Author
    at: int
    """Newest sequence number then, so that what stands again can be undone again."""

    @property
    def id(self) -> str:
        """Identity: its content."""
        return sha256_of_json(["revert", self.edit, self.author, self.at])


class KnowledgeUpdate(Record):
    """All that one parameter update changes: applied whole or not at all, and only once."""

    run: str
    iteration: int
    states: tuple[PerformanceState, ...] = ()
    optimizations: tuple[StateOptimization, ...] = ()
    lessons: tuple[Lesson, ...] = ()
    withdrawals: tuple[Withdrawal, ...] = ()
    edits: tuple[Edit, ...] = ()
    reverts: tuple[Revert, ...] = ()

    @property
    def id(self) -> str:
        """Identity: its content."""
        return sha256_of_json(["update", as_first_stored(self)])


class Step(Applied):
    """One row of the replay buffer: a step of a rollout as it happened."""

    state_id: str
    """Performance state that the parent was in."""
    state_author: Author = ""
    """Who said that this is the state; empty in steps of earlier versions."""
    choice_author: Author = ""
    """Who chose the technique; empty in steps of earlier versions."""
    reason: str = ""
    """Why it failed, or what the writer said."""
    microseconds_before: float
    """Time of the parent."""
    microseconds_after: float | None = None
    """Time of the child; None where it did not pass."""
    bottleneck_before: str
    """What held the parent back."""
    bottleneck_after: str | None = None
    """What holds the child back."""
    evaluation_key: str | None = None
    """Of the child, in the run's store."""
    evidence_id: str | None = None
    """Of its row in the knowledge base."""
    optimization: Optimization | None = None
    """What a model that proposed the technique newly says of it."""
    account_sha256: str | None = None
    """Artifact of what the agents said on the way to it; None in steps of earlier versions."""
    refused: tuple[dict[str, Any], ...] = ()
    """Settings that failed on the way to it."""

    @property
    def id(self) -> str:
        """Identity: the place in the run, so that a replayed step replaces nothing."""
        return sha256_of_json(["step", self.run, self.iteration, self.rollout, self.step])
