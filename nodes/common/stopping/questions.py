"""What a run asks a person, and what an answer may be: frozen records, dumped as JSON."""

from __future__ import annotations

import json
from typing import Any, Literal

from pydantic import Field

from ....harness.errors import shown
from ....harness.records.record import Record
from ....harness.records.timings import Provenance
from ....tools.workspace import Workspace
from ..replies import one_line


class Cost(Record):
    """What a run has used so far."""

    evaluations: int
    """Distinct sources evaluated."""
    model_calls: int
    """Answered, under way, or maybe paid."""
    tokens: int
    """Input and output."""
    money: float | None
    """Dollars; None where no call has a price."""
    device_seconds: float
    """Seconds that candidates held the device."""
    working_seconds: float
    """Working time of the run."""


class Expected(Record):
    """A gain and its spread: microseconds before over microseconds after."""

    gain: float
    low: float
    high: float


class Question(Record):
    """What every question says."""

    kind: str
    run: str
    """Run directory."""
    asks: str
    """The question in a sentence."""
    cost: Cost
    """What was used so far."""
    answers: tuple[str, ...]
    """What is understood as an answer: Command(resume=...) takes each."""
    hint: str = ""
    """Why the last answer was not understood; empty where none was given."""


class PlanQuestion(Question):
    """Shall the run begin as planned?"""

    kind: Literal["plan"] = "plan"
    task: str
    op_class: str
    gpu: str
    device: str
    iterations: int
    rollouts: int
    steps: int
    rounds: int | None = None
    """Of a policy that writes one candidate a round; such a one has no iterations."""
    models: dict[str, str]
    """Who answers in the roles that are not built in."""
    budgets: dict[str, float]
    """The caps that are set, by the name that raises each."""
    expected: Expected | None = None
    """None: before the first profile nobody knows."""


class TechniqueQuestion(Question):
    """Shall this technique be written into the kernel at hand?"""

    kind: Literal["technique"] = "technique"
    iteration: int
    """Counted from 1, as are rollout and step."""
    rollout: int
    step: int
    technique: str
    parameters: dict[str, Any]
    """The setting that is tried first."""
    state: str
    """The performance state of the kernel at hand."""
    observation: str
    """What its profile says, in a sentence."""
    microseconds: float
    """Of the kernel at hand."""
    why: str
    """Why it was chosen."""
    author: str
    """Who chose it."""
    expected: Expected
    """Of a candidate that passes; one standard deviation of the belief to either side."""
    success_probability: float
    """That a candidate passes."""
    others: dict[str, float]
    """What else is on the table, the best first, with its expected gain."""


class WinnerQuestion(Question):
    """Shall this kernel be announced?"""

    kind: Literal["winner"] = "winner"
    techniques: tuple[str, ...]
    """From the initial kernel to this one, in order."""
    microseconds: float
    initial_microseconds: float
    provenance: Provenance
    """Where the times come from."""
    expected: Expected
    """The measured gain over the initial kernel, and its interval."""
    remarks: str
    """What a reader should know of it."""
    diff: str
    """From the initial kernel to this one, in unified form; a long one is cut."""
    source: str
    """sha256 of the whole text, an artifact of the run."""


class PauseQuestion(Question):
    """May the run use more, or can its model be asked again?"""

    kind: Literal["budget_reached", "model_unavailable"]
    reason: str
    """What stands in the way, and how to go on."""


class JobsQuestion(Question):
    """What came of the jobs that another host has to do?"""

    kind: Literal["waiting"] = "waiting"
    jobs: int
    """How many have no result."""
    first: tuple[str, ...]
    """Ids of the first of them."""


class Misunderstood(ValueError):
    """An answer that the question has no use for: one sentence says what is understood."""


class Decision(Record):
    """A person's answer to a question of kind plan, technique or winner."""

    verdict: Literal["accept", "edit", "reject"]
    reason: str = ""
    """Why it is rejected."""
    edit: dict[str, Any] = Field(default_factory=dict)
    """What shall take the place of what was proposed."""


UNDERSTOOD = 'an answer is "accept", {"reject": "REASON"} or {"edit": {...}}'


def read_decision(answer: Any) -> Decision:
    """Return an answer as a decision.

    Understood are, as text or as JSON: `accept`; `reject:REASON` or {"reject": "REASON"};
    `edit:{...}` or {"edit": {...}}.

    Raises:
        Misunderstood: it is none of these.
    """
    if isinstance(answer, str):
        word, _, rest = answer.strip().partition(":")
        answer = {word.strip().lower(): rest.strip()}
        if "edit" in answer:
            answer["edit"] = _json(rest)
    if not isinstance(answer, dict) or len(answer) != 1:
        raise Misunderstood(f"{shown(answer)} is no answer: {UNDERSTOOD}")
    ((word, said),) = answer.items()
    if word == "accept" and said in ("", True, None):
        return Decision(verdict="accept")
    if word == "reject":
        reason = one_line(said) if isinstance(said, str) else ""
        if not reason:
            raise Misunderstood(f"a rejection needs its reason, a lesson for others: {UNDERSTOOD}")
        return Decision(verdict="reject", reason=reason)
    if word == "edit" and isinstance(said, dict) and said:
        return Decision(verdict="edit", edit={str(name): value for name, value in said.items()})
    raise Misunderstood(f"{shown(answer)} is no answer: {UNDERSTOOD}")


def _json(text: str) -> Any:
    try:
        return json.loads(text)
    except (ValueError, RecursionError) as error:
        raise Misunderstood(f"after edit: comes JSON ({error}): {UNDERSTOOD}") from error


def cost_of(workspace: Workspace) -> Cost:
    """Return what a run has used so far."""
    totals = workspace.store.ledger.totals()
    return Cost(
        evaluations=workspace.store.count(),
        model_calls=totals.calls,
        tokens=totals.tokens,
        money=totals.money,
        device_seconds=workspace.store.ledger.device_seconds(),
        working_seconds=workspace.store.ledger.wall_seconds(),
    )
