"""Several runs in one HTML report: what each came to, and the analyses over all of them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from ..bench.claims import claims_in, embedded, together
from ..memory.records.evidence import Step
from . import analyses, words
from .page import render_page
from .reading import RunAccount
from .summary import Tile, sentence
from .together import Groups, curves, group_views


@dataclass(frozen=True)
class RunRow:
    """One run among others, with its winner's way and text."""

    run: RunAccount
    label: str
    """What it is called among them."""
    why: str = ""
    """Why it failed, or what is to be known of it."""

    @property
    def sentence(self) -> str:
        """What it came to."""
        return sentence(self.run)

    @property
    def way(self) -> Sequence[Step]:
        """The steps from the initial kernel to its best."""
        return self.run.ways.get(self.run.best[0], ()) if self.run.best else ()

    @property
    def texts(self) -> tuple[str, str] | None:
        """The initial kernel's and the best one's source; None where one is not known."""
        if self.run.initial is None or self.run.best is None:
            return None
        found = (self.run.text_of(self.run.initial.source_sha256),
                 self.run.text_of(self.run.best[0]))  # fmt: skip
        return None if found[0] is None or found[1] is None else (found[0], found[1])

    @property
    def states(self) -> list[tuple[str, list[str]]]:
        """The states that each of its trajectories passed through."""
        return analyses.states_passed(self.run)


def by_policy(runs: Sequence[RunAccount]) -> Groups:
    """Return runs by their policy."""
    groups: dict[str, list[RunAccount]] = {}
    for run in runs:
        groups.setdefault(run.plan.policy, []).append(run)
    return groups


def runs_html(runs: Sequence[RunAccount]) -> str:
    """Return the report of several runs."""
    groups = by_policy(runs)
    shown, views = curves(groups), group_views(groups)
    tasks = {run.name for run in runs}
    steps = sum(len(run.steps) for run in runs)
    said = (f"{words.counted(len(runs), 'run')} of {words.counted(len(tasks), 'task')}: "
            f"{sum(run.status == 'improved' for run in runs)} made the initial kernel "
            "faster.")  # fmt: skip
    tiles = [
        Tile("runs", str(len(runs)), words.counted(len(tasks), "task")),
        Tile("policies", str(len(groups)), ", ".join(groups)),
        Tile("candidates", words.count(sum(len(run.verdicts) for run in runs)),
             words.counted(steps, "step")),
        Tile("time spent", words.seconds(sum(run.wall_seconds for run in runs))),
    ]  # fmt: skip
    return render_page(
        "suite.html",
        said,
        [*shown, *(plot for view in views for plot in view.plots)],
        kicker="report of several runs", name="Runs together", on="", status="", sentence=said,
        tiles=tiles, comparisons=(), tables=(), curves=shown, groups=views, notes=(), facts=(),
        rows=[RunRow(run, str(run.directory)) for run in runs],
        claims=embedded(together([claims_in(run.directory) for run in runs])),
    )  # fmt: skip
