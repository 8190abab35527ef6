"""Steps of runs, and the evidence that outlives them."""

from __future__ import annotations

from typing import Any, Literal

from pydantic import Field, model_validator

from ...harness.records.identity import sha256_of_json
from ...harness.records.outcomes import Outcome
from ...harness.records.record import Record
from .identity import Author
from .optimizations import Optimization

LATER_FIELDS = (
    "harness", "repairs", "launch", "earlier", "forecast_std", "forecast_pass",
    "launch_signature", "launch_share", "microseconds", "bound_us",
)  # fmt: skip
"""Of evidence, those that the first version did not have."""

NO_GAIN = 0.01
"""Log gain below which nothing worth the name was gained, or lost (about 1 %)."""


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
    lost: str = ""
    """Of a child that is slower than its parent, what moved in its profile."""

    @property
    def id(self) -> str:
        """Identity: the place in the run, so that a replayed step replaces nothing."""
        return sha256_of_json(["step", self.run, self.iteration, self.rollout, self.step])
