"""Edits of the policy, each with the evidence that it rests on, and how one is undone."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import Field

from ...harness.records.identity import sha256_of_json
from ...harness.records.record import Record
from .conditions import Condition
from .identity import Author, as_first_stored
from .optimizations import Optimization
from .states import PerformanceState

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
    """An edit that does not stand from now on; where it names a revert, one that does; where it
    names a withdrawal, a lesson that does."""

    edit: str
    """Id of the edit, of the revert, or of the withdrawal, that is undone."""
    author: Author
    at: int
    """Newest sequence number then, so that what stands again can be undone again."""

    @property
    def id(self) -> str:
        """Identity: its content."""
        return sha256_of_json(["revert", self.edit, self.author, self.at])
