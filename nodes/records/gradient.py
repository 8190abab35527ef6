"""The textual gradient: forecasts reviewed, gaps explained, what was written down of them."""

from __future__ import annotations

from pydantic import (
    Field,
)

from ...harness.records.record import Record


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
        return ". ".join(f"{part[0].upper()}{part[1:]}".rstrip(".") if at else part.rstrip(".")
                         for at, part in enumerate(filter(None, parts)))  # fmt: skip


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
