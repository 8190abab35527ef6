"""The report of one run as HTML: what it came to, how, by whom, and what it cost."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import groupby
from typing import Literal, NamedTuple

from ..bench.claims import claims_in, embedded
from ..harness.bound.speed_of_light import speed_of_light
from ..harness.gpus import known_gpu
from ..harness.records.evaluations import Evaluation
from ..harness.records.outcomes import Outcome
from ..memory.records.evidence import NO_GAIN, Step
from ..nodes.common.policies import by_rounds
from ..nodes.records.accounts import StepAccount
from ..nodes.records.trajectories import Trajectory
from . import analyses, profiles, words
from .page import render_page
from .plots import (
    OnRoof,
    Plot,
    expectation_plot,
    path_plot,
    present,
    progress_plot,
    roofline_plot,
    states_plot,
    step_id,
    techniques_plot,
    transitions_plot,
)
from .reading import RunAccount, place_of
from .roofline import Roofs, counted_operations, roof_point, roofs_of
from .summary import facts_of_run, levels_of, sentence, tiles

Came = Literal["gained", "neutral", "slower", "failed", "unwritten"]
_CAME: dict[Came, str] = {
    "gained": "faster", "neutral": "as fast", "slower": "slower", "failed": "refused",
    "unwritten": "not written",
}  # fmt: skip


class Operations(NamedTuple):
    """By which operations a run's kernels are put on a roofline: one way for all of a page."""

    which: str
    """In words."""
    defined: float
    """Of a call, as the task defines them; 0 where those that each profile counted are taken."""


@dataclass(frozen=True)
class StepView:
    """One step as the page shows it."""

    run: RunAccount
    step: Step
    operations: Operations

    @property
    def id(self) -> str:
        """Of its element."""
        return step_id(self.step)

    @property
    def place(self) -> str:
        """Its numbers, from 1."""
        return ".".join(str(number + 1) for number in place_of(self.step))

    @property
    def came(self) -> Came:
        """What came of it."""
        if self.step.log_gain is None:
            return "failed" if Outcome(self.step.outcome).has_candidate else "unwritten"
        if abs(self.step.log_gain) <= NO_GAIN:
            return "neutral"
        return "gained" if self.step.log_gain > 0 else "slower"

    @property
    def account(self) -> StepAccount | None:
        """What the agents said."""
        return self.run.accounts.get(place_of(self.step))

    @property
    def state(self) -> str:
        """What the parent's state is called."""
        return self.run.state_names.get(self.step.state_id, self.step.state_id)

    @property
    def went_on(self) -> bool | None:
        """Whether the trajectory went on from the child."""
        return self.run.went_on(self.step)

    @property
    def before(self) -> Evaluation | None:
        """Of the parent."""
        return self.run.evaluation_of(self.step.parent_sha256)

    @property
    def after(self) -> Evaluation | None:
        """Of the child."""
        return self.run.evaluation_of(self.step.child_sha256)

    @property
    def texts(self) -> tuple[str, str] | None:
        """Source of parent and child; None where there is no child or a text is gone."""
        parent = self.run.sources.get(self.step.parent_sha256)
        child = self.run.sources.get(self.step.child_sha256 or "")
        return None if parent is None or child is None else (parent, child)

    @property
    def parent_text(self) -> str | None:
        """Source of the parent."""
        return self.run.sources.get(self.step.parent_sha256)

    def text_of(self, source: str | None) -> str | None:
        """Return a source; None where it is gone."""
        return self.run.sources.get(source or "")

    @cached_property
    def roofline(self) -> Plot | None:
        """The parent and the child under the roofs."""
        kernels = _on_roof(
            self.run,
            self.operations,
            (("before", "before", self.step.parent_sha256, "var(--before)"),
             ("after", "after", self.step.child_sha256, "var(--accent)")),
        )  # fmt: skip
        roofs = _roofs(self.run)
        if roofs is None or len(kernels) < 2:
            return None
        title = "Roofline before and after"
        return roofline_plot(f"roof-{self.id}", title, roofs, self.operations.which, kernels)


@dataclass(frozen=True)
class TrajectoryView:
    """One trajectory as the page shows it."""

    id: str
    """Its numbers, from 1."""
    steps: tuple[StepView, ...]
    ended: Trajectory | None
    best: float | None
    """Microseconds of its fastest kernel; None where none passed."""

    @property
    def told(self) -> str:
        """What came of its steps, in order, in words."""
        return ", ".join(f"{view.step.technique} {_CAME[view.came]}" for view in self.steps)

    @property
    def failed(self) -> int:
        """Steps that a gate refused."""
        return sum(view.came == "failed" for view in self.steps)


def run_html(run: RunAccount) -> str:
    """Return the report of a run, of whichever policy, finished or not."""
    operations = _operations(run)
    views = [StepView(run, step, operations) for step in run.steps]
    best = run.best
    way = run.ways.get(best[0], ()) if best else ()
    shown = {
        "progress": progress_plot(run, levels_of(run)),
        "path": path_plot(run, way),
        "roofline": _whole_roofline(run, operations),
        "expectation": expectation_plot(run),
        "techniques": techniques_plot(analyses.technique_counts([run])),
        "states": states_plot(analyses.state_shares([run]), analyses.states_by_step([run])),
        "transitions": transitions_plot(analyses.transitions([run])),
    }
    initial = run.initial.source_sha256 if run.initial else (
        run.verdicts[0].source_sha256 if run.verdicts else None)  # fmt: skip
    return render_page(
        "run.html",
        f"{run.name} on {run.plan.gpu}: {words.plain(run.status)}",
        present([*shown.values(), *(view.roofline for view in views)]),
        run=run,
        sentence=sentence(run),
        tiles=tiles(run),
        shown=shown,
        way=[StepView(run, step, operations) for step in way],
        iterations=_iterations(run, views),
        initial_text=run.sources.get(initial or ""),
        best_text=run.sources.get(best[0]) if best else None,
        first=run.evaluation_of(initial),
        last=run.evaluation_of(best[0]) if best else None,
        facts=facts_of_run(run),
        profiles=profiles,
        by_rounds=by_rounds(run.plan.policy),
        claims=embedded(claims_in(run.directory)),
    )


def _iterations(
    run: RunAccount, views: Sequence[StepView]
) -> list[tuple[int, list[TrajectoryView]]]:
    """Return the tree: iterations, each with its trajectories, each with its steps."""
    found: dict[int, list[TrajectoryView]] = {}
    grouped = groupby(views, key=lambda view: (view.step.iteration, view.step.rollout))
    for (iteration, rollout), group in grouped:
        steps = tuple(group)
        times = [view.step.microseconds_after for view in steps if view.step.microseconds_after]
        ended = run.trajectories.get(f"{iteration}.{rollout}")
        found.setdefault(iteration, []).append(
            TrajectoryView(
                f"{iteration + 1}.{rollout + 1}", steps, ended,
                min(times) if times else ended.best.microseconds if ended else None,
            )
        )  # fmt: skip
    return list(found.items())


def _whole_roofline(run: RunAccount, operations: Operations) -> Plot | None:
    """Return all candidates under the roofs, the initial kernel and the best apart."""
    roofs, best = _roofs(run), run.best
    if roofs is None or best is None or run.initial is None:
        return None
    ends = {run.initial.source_sha256, best[0]}
    between = [each.source_sha256 for each in run.verdicts
               if each.microseconds is not None and each.source_sha256 not in ends]  # fmt: skip
    reached = "winner" if run.result else "best so far"
    kernels = _on_roof(
        run,
        operations,
        (*((_labelled(run, source), "candidates", source, "var(--faint)") for source in between),
         ("initial kernel", "initial kernel", run.initial.source_sha256, "var(--before)"),
         (reached, reached, best[0], "var(--accent)")),
    )  # fmt: skip
    if len(kernels) < 2:
        return None
    title = "All candidates under the roofs"
    return roofline_plot("roofline", title, roofs, operations.which, kernels)


def _labelled(run: RunAccount, source: str) -> str:
    way = run.ways.get(source, ())
    return way[-1].technique if way else "another try"


def _on_roof(
    run: RunAccount,
    operations: Operations,
    wanted: Sequence[tuple[str, str, str | None, str]],
) -> list[OnRoof]:
    """Return those of the kernels (label, kind, source, colour) whose counters were read."""
    anchors: Mapping[str | None, str] = {
        step.child_sha256: step_id(step) for step in reversed(run.steps)
    }
    found = []
    for label, kind, source, color in wanted:
        evaluation = run.evaluation_of(source)
        if evaluation is None or evaluation.profile is None:
            continue
        done = operations.defined or counted_operations(evaluation.profile)
        point = roof_point(evaluation.profile, done)
        if point is not None:
            found.append(OnRoof(label, kind, point, color, anchors.get(source, "")))
    return found


def _operations(run: RunAccount) -> Operations:
    """Return the counted operations where every profile has them, else the task's own."""
    profiled = [each.profile for each in run.evaluations.values() if each.profile]
    gpu = known_gpu(run.plan.gpu)
    if all(counted_operations(profile) for profile in profiled) or not (run.task and gpu):
        return Operations("FP32, as counted", 0.0)
    defined = sum(speed_of_light(run.task, gpu).operations.values())
    return Operations("as the task defines them", float(defined))


def _roofs(run: RunAccount) -> Roofs | None:
    profile = next((each.profile for each in run.evaluations.values() if each.profile), None)
    return roofs_of(profile) if profile else None
