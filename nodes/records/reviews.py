"""What the soft verifier says of kernels, and what running its claims showed."""

from __future__ import annotations

from typing import Any

from ...harness.errors import typed
from ...harness.records.record import Record
from ...harness.task.claims import ClaimedInput


def merge_reviews(
    left: dict[str, SoftReview] | None, right: dict[str, SoftReview] | None
) -> dict[str, SoftReview]:
    """Reducer: union by evaluation key; a kernel reviewed twice counts once."""
    reviews: dict[str, SoftReview] = typed(dict[str, SoftReview], "soft_reviews", right or {})
    return (left or {}) | reviews


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
    place: tuple[int, int, int] = (0, 0, -1)
    """Iteration, rollout and step of the review; the default is before all steps."""
    whole: bool = True
    """Whether all of the file was read, and not what changed in it alone."""
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
    read_before: bool = False
    """Whether it was read on the way, and not again as winner."""

    @property
    def is_open(self) -> bool:
        """Whether an input is claimed that was not run."""
        return not self.vetoed and any(each.is_open for each in self.objections)

    @property
    def dropped(self) -> tuple[str, ...]:
        """Why each objection that does not stand does not: what its input showed."""
        return tuple(each.found for each in self.objections if each.confirmed is False)

    def told(self) -> dict[str, Any]:
        """Return what is told of it while a run goes on."""
        told = self.model_dump(include={"vetoed", "reasons", "remarks", "author", "read_before"})
        return told | {"dropped": self.dropped}
