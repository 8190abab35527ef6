"""Read a run's directory, finished or not, into one account that every report is made from.

Nothing is written and no lock is held: the run may be another process's, under way.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any, TypeVar

from pydantic import ValidationError

from ..harness.errors import UserError
from ..harness.records.evaluations import Evaluation
from ..harness.records.record import Record
from ..harness.records.tasks import Task
from ..memory.records.evidence import Step
from ..memory.run.artifacts import ArtifactStore
from ..memory.run.directory import ARTIFACTS, is_held
from ..memory.run.journal import Entry
from ..memory.run.ledger import CallRow, RoleTotals, Totals
from ..memory.run.run_store import RunStore, Verdict
from ..nodes.common.history.steps import Way, ways_through
from ..nodes.records.accounts import StepAccount
from ..nodes.records.gradient import GapAnalysis, ParameterUpdate, PolicyEvaluation
from ..nodes.records.kernels import KernelPoint
from ..nodes.records.plan import RunPlan
from ..nodes.records.result import Confirmation, RunResult
from ..nodes.records.reviews import SoftReview
from ..nodes.records.task import TaskSummary
from ..nodes.records.trajectories import Trajectory
from ..nodes.run.beginning.begin import stored_plan
from ..nodes.run.ending.report import stored_result
from ..tools.techniques.catalogue import knowledge_seed

Read = TypeVar("Read", bound=Record)
Place = tuple[int, int, int]
"""Iteration, rollout and step."""


@dataclass(frozen=True)
class Moment:
    """How much was done when a node of the outer graph had ended."""

    node: str
    evaluations: int
    """Evaluations stored until then."""
    tokens: int
    """Input and output of the model calls begun until then."""


@dataclass(frozen=True)
class IterationAccount:
    """What the textual gradient came to in one iteration; what did not happen is None."""

    number: int
    """From 0."""
    evaluated: PolicyEvaluation | None = None
    analysis: GapAnalysis | None = None
    update: ParameterUpdate | None = None


@dataclass(frozen=True)
class RunAccount:
    """All that a report tells of one run."""

    directory: Path
    plan: RunPlan
    result: RunResult | None
    """None where the run has not ended."""
    held: bool
    """Whether a process works on it at this moment."""
    waiting: int = 0
    """Jobs that another host has not answered."""
    summary: TaskSummary | None = None
    task: Task | None = None
    initial: KernelPoint | None = None
    confirmation: Confirmation | None = None
    soft_reviews: Mapping[str, SoftReview] = field(default_factory=dict)
    """By evaluation key."""
    knowledge_at: int | None = None
    """Rows of the knowledge base when the run began: 0 is an empty one."""
    trajectories: Mapping[str, Trajectory] = field(default_factory=dict)
    """Those that ended, by ITERATION.ROLLOUT."""
    iterations: tuple[IterationAccount, ...] = ()
    moments: tuple[Moment, ...] = ()
    began: tuple[Step, ...] = ()
    """The step from the initial kernel to one of an earlier run, where the search began there."""
    steps: tuple[Step, ...] = ()
    """Those of the search."""
    accounts: Mapping[Place, StepAccount] = field(default_factory=dict)
    """How steps came about; steps of earlier versions have none."""
    verdicts: tuple[Verdict, ...] = ()
    evaluations: Mapping[str, Evaluation] = field(default_factory=dict)
    """By source; empty where they were not asked for."""
    sources: Mapping[str, str] = field(default_factory=dict)
    """Texts by sha256; empty where they were not asked for."""
    spending: tuple[RoleTotals, ...] = ()
    spent: Totals | None = None
    thinking: tuple[CallRow, ...] = ()
    """Model calls under way, or that a killed process left open."""
    device_seconds: float = 0.0
    wall_seconds: float = 0.0

    @property
    def name(self) -> str:
        """What the task is called."""
        return self.summary.name if self.summary else Path(self.plan.task).stem

    @property
    def status(self) -> str:
        """The result's outcome; else in use, waiting or unfinished."""
        if self.result is not None:
            return self.result.outcome
        return "in use" if self.held else "waiting" if self.waiting else "unfinished"

    @property
    def bound_us(self) -> float | None:
        """Microseconds that no kernel of the task can be faster than; None where not known."""
        if self.result is not None and self.result.bound is not None:
            return self.result.bound.microseconds
        return self.summary.bound_us if self.summary else None

    @property
    def gain(self) -> float | None:
        """Time of the initial kernel over the best's; of a run under way, measured once."""
        if self.result is not None:
            return self.result.gain
        best = self.best
        return self.initial.microseconds / best[1] if self.initial and best else None

    @property
    def best(self) -> tuple[str, float] | None:
        """Source and microseconds of the winner, or of the fastest that passed until now."""
        if self.confirmation is not None:
            return self.confirmation.point.source_sha256, self.confirmation.microseconds
        passed = [
            (each.microseconds, each.source_sha256)
            for each in self.verdicts
            if each.microseconds is not None
        ]
        if not passed:
            return None
        microseconds, source = min(passed)
        return source, microseconds

    @cached_property
    def ways(self) -> Mapping[str, Way]:
        """By source, the steps between the initial kernel and it."""
        return ways_through((*self.began, *self.steps))

    @cached_property
    def state_names(self) -> Mapping[str, str]:
        """What each state is called, by id."""
        names = {state.id: state.name for state in knowledge_seed().states}
        for iteration in self.iterations:
            for review in iteration.evaluated.reviews if iteration.evaluated else ():
                names[review.state_id] = review.state_name
        for step in self.steps:
            account = self.accounts.get(place_of(step))
            if account is not None:
                names[step.state_id] = account.state_name
        return names

    def evaluation_of(self, source_sha256: str | None) -> Evaluation | None:
        """Return what was measured of a source; None where it was not, or not read."""
        return self.evaluations.get(source_sha256) if source_sha256 else None

    def text_of(self, source_sha256: str | None) -> str | None:
        """Return a source, read from the run's artifacts; None where it is gone."""
        return _text(ArtifactStore(self.directory / ARTIFACTS), source_sha256)

    def went_on(self, step: Step) -> bool | None:
        """Say whether the trajectory went on from a step's child; None after the last."""
        following = self._by_place.get((step.iteration, step.rollout, step.step + 1))
        return None if following is None else following.parent_sha256 == step.child_sha256

    @cached_property
    def _by_place(self) -> Mapping[Place, Step]:
        return {place_of(step): step for step in self.steps}


def place_of(step: Step) -> Place:
    """Return where in its run a step was."""
    return step.iteration, step.rollout, step.step


def read_run(directory: Path, *, whole: bool = True) -> RunAccount:
    """Return the account of a run.

    Args:
        directory: of the run.
        whole: read sources, profiles and what agents said too; else figures alone.

    Raises:
        UserError: it is no run directory, or what it holds is damaged or of another version.
    """
    plan = stored_plan(directory)
    account: dict[str, Any] = {
        "directory": directory,
        "plan": plan,
        "result": stored_result(directory),
        "held": is_held(directory),
    }
    path = directory / "run.sqlite"
    if not path.is_file():
        return RunAccount(**account)
    with RunStore(path, copied=True) as store:
        steps, verdicts = store.replay.steps(), store.verdicts()
        entries = store.journal.entries()
        account |= _journalled(entries, path)
        account |= {
            "waiting": store.jobs.count_waiting() if plan.device.startswith("deferred") else 0,
            "moments": tuple(_moments(store)),
            "began": tuple(step for step in steps if step.iteration < 0),
            "steps": tuple(step for step in steps if step.iteration >= 0),
            "verdicts": tuple(verdicts),
            "spending": tuple(store.ledger.by_role()),
            "spent": store.ledger.totals(),
            "thinking": tuple(each for each in store.ledger.rows() if each.outcome == "open"),
            "device_seconds": store.ledger.device_seconds(),
            "wall_seconds": store.ledger.wall_seconds(),
        }
        artifacts = ArtifactStore(directory / ARTIFACTS)
        account["task"] = _task(artifacts, account.get("summary"))
        if whole:
            stored = {each.source_sha256: store.get(each.key) for each in verdicts}
            account["evaluations"] = {name: each for name, each in stored.items() if each}
            account |= _texts(artifacts, steps, verdicts)
    return RunAccount(**account)


def _journalled(entries: Iterable[Entry], path: Path) -> dict[str, Any]:
    """Return what nodes wrote into the run's state, of whichever graph they are."""
    found: dict[str, Any] = {"trajectories": {}, "soft_reviews": {}}
    rounds: dict[int, dict[str, Any]] = {}
    one_each: dict[str, type[Record]] = {
        "summary": TaskSummary, "initial": KernelPoint, "confirmation": Confirmation,
    }  # fmt: skip
    gradient: dict[str, type[Record]] = {
        "evaluated": PolicyEvaluation, "analysis": GapAnalysis, "update": ParameterUpdate,
    }  # fmt: skip
    for entry in entries:
        written = entry.written
        for key, kind in one_each.items():
            if written.get(key):
                found[key] = _record(kind, written[key], path)
        for key, kind in gradient.items():
            if written.get(key):
                said = _record(kind, written[key], path)
                # Whoever has read them empties them: the first is what was said.
                rounds.setdefault(written[key]["iteration"], {}).setdefault(key, said)
        for name, body in (written.get("trajectories") or {}).items():
            found["trajectories"][name] = _record(Trajectory, body, path)
        for name, body in (written.get("soft_reviews") or {}).items():
            found["soft_reviews"][name] = _record(SoftReview, body, path)
        if "knowledge_at" not in found and written.get("knowledge_at") is not None:
            found["knowledge_at"] = written["knowledge_at"]
    found["iterations"] = tuple(
        IterationAccount(number, **said) for number, said in sorted(rounds.items())
    )
    return found


def _record(kind: type[Read], body: Any, path: Path) -> Read:
    """Return a record from JSON: a text, or values."""
    try:
        if isinstance(body, str):
            return kind.model_validate_json(body)
        return kind.model_validate(body)
    except ValidationError as error:
        raise UserError(
            f"{path} is damaged, or of another version: it holds no {kind.__name__} where one was "
            "written; report it with the version that made it"
        ) from error


def _moments(store: RunStore) -> Iterable[Moment]:
    calls = store.ledger.rows()
    until = [0]
    for call in calls:
        until.append(until[-1] + call.tokens_in + call.tokens_out)
    for node, rows in store.journal.rows_after():
        tokens = until[min(rows.get("calls", 0), len(calls))]
        yield Moment(node, rows.get("evaluations", 0), tokens)


def _texts(
    artifacts: ArtifactStore, steps: Sequence[Step], verdicts: Sequence[Verdict]
) -> dict[str, Any]:
    """Return the texts that a report shows; what is gone is left out, the rest is told."""
    path = artifacts.directory
    accounts: dict[Place, StepAccount] = {}
    wanted: set[str | None] = {each.source_sha256 for each in verdicts}
    for step in steps:
        wanted |= {step.parent_sha256, step.child_sha256}
        told = _text(artifacts, step.account_sha256)
        if told is not None:
            account = accounts[place_of(step)] = _record(StepAccount, told, path)
            wanted |= {attempt.source_sha256 for attempt in account.attempts}
    texts = {name: _text(artifacts, name) for name in wanted if name}
    return {
        "accounts": accounts,
        "sources": {name: text for name, text in texts.items() if text is not None},
    }


def _task(artifacts: ArtifactStore, summary: TaskSummary | None) -> Task | None:
    described = _text(artifacts, summary.artifact if summary else None)
    return None if described is None else _record(Task, described, artifacts.directory)


def _text(artifacts: ArtifactStore, name: str | None) -> str | None:
    try:
        return artifacts.get_text(name) if name else None
    except UserError:
        return None
