"""What models reply in each role with a form: pydantic models whose field docstrings they read.

Text replies (code) are read by code_replies.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated, Any, Literal, TypeVar

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, create_model, model_validator

from ..harness.records import Bottleneck

NAME = r"^[a-z][a-z0-9]*(_[a-z0-9]+)*$"
"""snake_case."""


LONGEST_LINE = 800
"""Characters of one Line: what is longer is cut, for it is not worth a second call."""


def one_line(text: Any) -> Any:
    """Return text on one line, without control characters: it goes into prompts and terminals."""
    if not isinstance(text, str):
        return text
    words = " ".join("".join(c if c.isprintable() else " " for c in text).split())
    if len(words) <= LONGEST_LINE:
        return words
    return words[: LONGEST_LINE - 4].rpartition(" ")[0] + " ..."


Line = Annotated[str, BeforeValidator(one_line)]


class Reply(BaseModel):
    """Base of every reply: docstrings as descriptions, fields that nobody asked for left aside.

    Asking again for a field too many would cost a whole prompt, and change nothing.
    """

    model_config = ConfigDict(extra="ignore", frozen=True, use_attribute_docstrings=True)


Form = TypeVar("Form", bound=Reply)


def checked(form: type[Form], check: Callable[[Form], None]) -> type[Form]:
    """Return a form whose replies must also pass a check against what exists.

    `check` raises ValueError with the reason, which goes back to the model.
    """

    def checked_reply(reply: Form) -> Form:
        check(reply)
        return reply

    validator: Any = model_validator(mode="after")(checked_reply)
    return create_model(
        form.__name__,
        __base__=form,
        __doc__=form.__doc__,
        __validators__={"checked_reply": validator},
    )


class Objection(Reply):
    """One reason why a kernel's result should not be announced."""

    kind: Literal["omitted", "hard_coded", "delegated", "wrong_semantics", "lower_precision"]
    quote: str = Field(min_length=1, max_length=400)
    """The line of the file that it rests on, copied exactly, without its number."""
    explanation: str = Field(min_length=1, max_length=1000)
    """What is wrong there."""
    check: str = Field(min_length=1, max_length=1000)
    """How a person can check it: an input with a wrong result, or the step of the reference that
    has no counterpart."""


class SoftVerdict(Reply):
    """Reply of the soft verifier."""

    verdict: Literal["accept", "veto"]
    objections: tuple[Objection, ...] = Field(default=(), max_length=8)
    """Empty for `accept`; at least one for `veto`."""
    summary: str = Field(default="", max_length=600)
    """What the file does, in a sentence."""


# States --------------------------------------------------------------------------------------


class StateReading(Reply):
    """Reply of the state extractor."""

    primary: Bottleneck
    """The resource that holds the kernel back first."""
    secondary: Bottleneck | None = None
    """The one that would hold it back next; null where nothing else comes near."""
    description: Line = Field(min_length=1)
    """One sentence: which kernel, what limits it, and the cause in the code (line numbers)."""
    features: tuple[Line, ...] = Field(min_length=1, max_length=8)
    """The figures of the profile that say so, the most telling first; a few words each."""


class StateMatch(Reply):
    """Reply of the state selector."""

    state: str
    """Id of the known state that fits, or `new`."""
    name: Line = Field(default="", max_length=80)
    """Only for `new`: a name of a few words that fits other kernels in this situation too."""
    description: Line = ""
    """Only for `new`: what marks the situation, and what helps or does not; one or two
    sentences."""
    reason: Line = Field(min_length=1)
    """Why this state and not the next best; one sentence."""


# Optimizations -------------------------------------------------------------------------------


class Parameter(Reply):
    """A number of a technique that is worth tuning."""

    name: str = Field(pattern=NAME, max_length=32)
    values: tuple[int, ...] = Field(min_length=1, max_length=4)
    """Values worth trying, the default first."""


class NewTechnique(Reply):
    """A technique that has no name in the list yet, as an engineer must know it."""

    description: Line = Field(min_length=1)
    """What is changed in the code; one or two sentences."""
    applies_when: Line = Field(min_length=1)
    avoid_when: Line = Field(min_length=1)
    side_effects: Line = ""
    notes: Line = ""
    """How to implement it here."""
    expected_speedup: float = Field(gt=0.1, le=100)
    """Time before over time after, where it passes; what it would gain on average, not at best."""
    parameters: tuple[Parameter, ...] = Field(default=(), max_length=3)


class ProposedTechnique(Reply):
    """One technique for the kernel at hand."""

    technique: str = Field(pattern=NAME, max_length=48)
    """A name of the lists, or a new one in snake_case."""
    reason: Line = Field(min_length=1)
    """Why it pays on this kernel: the figure or the line it acts on; one sentence."""
    new: NewTechnique | None = None
    """Null for a name of the lists."""


class Proposals(Reply):
    """Reply of the optimization proposer."""

    proposals: tuple[ProposedTechnique, ...] = Field(min_length=1, max_length=8)
    """The best first."""


class Selection(Reply):
    """Reply of the optimization selector."""

    technique: str
    """One of the proposals, by name; `stop` where none of them can gain."""
    reason: Line = Field(min_length=1)
    """Why this one now; one sentence."""


# The textual gradient ------------------------------------------------------------------------


class Remark(Reply):
    """What the measurements say about one expectation."""

    evidence: tuple[str, ...] = Field(min_length=1, max_length=12)
    """Ids of the steps it rests on, as listed."""
    text: Line = Field(min_length=1)
    """What the expectation got right or wrong; one sentence."""


class PolicyRemarks(Reply):
    """Reply of policy evaluation."""

    remarks: tuple[Remark, ...] = Field(max_length=12)
    summary: Line = Field(min_length=1)
    """How far this iteration's expectations can be trusted, and where not; one or two
    sentences."""


class Cause(Reply):
    """Why measurement and expectation agree or not, for one gap."""

    gap: int = Field(ge=1)
    """Its number in the list."""
    cause: Line = Field(min_length=1)
    """What in the code or the profile explains it; one or two sentences."""
    condition: Line = ""
    """How to tell beforehand, from a profile or the code, whether another kernel would do the same;
    empty where that is not known."""


class Chain(Reply):
    """Steps of one rollout, each on the kernel of the one before, that matter in this order."""

    evidence: tuple[str, ...] = Field(min_length=2, max_length=4)
    """Ids of the steps, in order."""
    cause: Line = Field(min_length=1)
    """What the earlier steps prepare for the later."""


class GapCauses(Reply):
    """Reply of performance-gap analysis."""

    causes: tuple[Cause, ...] = Field(max_length=16)
    sequences: tuple[Chain, ...] = Field(default=(), max_length=4)
    """Only those that the list lacks; usually none."""
    unordered: tuple[int, ...] = Field(default=(), max_length=16)
    """Numbers of listed sequences that gained, but not because of their order: left out."""


class ModelLesson(Reply):
    """One lesson for later runs, on other kernels."""

    kind: Literal["correction", "condition", "composite", "observation"]
    """correction: an expectation was wrong. condition: when it works or fails. composite:
    techniques that pay in this order. observation: anything else worth knowing."""
    techniques: tuple[str, ...] = Field(min_length=1, max_length=4)
    """One; for a composite, those of its steps in order."""
    evidence: tuple[str, ...] = Field(min_length=1, max_length=12)
    """Ids of the steps it rests on, as listed; for a composite in order."""
    text: Line = Field(min_length=1)
    """What to know before trying it; one to three sentences, without gains: the measured ones are
    added."""


class TechniqueCard(Reply):
    """What an engineer should know before trying a technique, learned here."""

    technique: str
    description: Line = ""
    """What is changed in the code, as the file that gained has it; empty: as said so far."""
    applies_when: Line = Field(min_length=1)
    avoid_when: Line = Field(min_length=1)
    side_effects: Line = ""
    notes: Line = ""


class KnowledgeNotes(Reply):
    """Reply of parameter update."""

    lessons: tuple[ModelLesson, ...] = Field(max_length=10)
    cards: tuple[TechniqueCard, ...] = Field(default=(), max_length=6)
    """Only for techniques asked for."""
