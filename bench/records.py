"""The words of a bench: what is locked when it begins, its runs, and what became of each."""

from __future__ import annotations

from typing import Any, Literal

from pydantic import Field

from ..harness.metrics import TaskOutcome
from ..harness.records.evaluations import DeviceIdentity
from ..harness.records.readings import Reading
from ..harness.records.record import Integer, Record
from ..harness.suites.records import LeftOut
from ..nodes.common.policies import under_policy
from ..nodes.records.plan import RunContext

SUITE_FORMAT = "kernelblaster-suite/1"

Knowledge = Literal["shared", "each"]
"""shared: one base a policy and seed, which its tasks write and read in their order; each: one a
run."""


class Variant(Record):
    """A policy with settings of its own, as it stands in tables."""

    name: str
    """For example `kernelblaster[memory=off]`."""
    folder: str
    """The same as a folder's name."""
    settings: dict[str, Any]
    """Fields of `RunContext` that it sets."""

    def in_place_of(self, common: RunContext) -> RunContext:
        """Return the context of its runs, where all have `common`."""
        return under_policy(RunContext.model_validate(dict(common) | self.settings))


class LockedTask(Record):
    """A task as it was when the bench began."""

    name: str
    sha256: str
    """Of the text in tasks/NAME.py."""
    origin: str
    """Where it was read."""
    tolerance: dict[str, float | bool | None] = Field(default_factory=dict)
    """What its origin accepts; ours judges."""


class SuiteLock(Record):
    """suite.json: all that has a part in the numbers, and does not change while they are made."""

    format: str = SUITE_FORMAT
    suite: str
    """Name of the set of tasks."""
    origin: str
    """Where it was read."""
    versions: dict[str, str]
    """Of this package, Python and the packages that have a part in the numbers."""
    device: DeviceIdentity
    """Device, GPU, architecture, toolchain and judge."""
    knowledge: Knowledge
    knowledge_from: str = ""
    """Directory whose copy each base begins with; empty: the seed alone."""
    seeds: tuple[Integer, ...]
    variants: tuple[Variant, ...]
    context: RunContext
    """What all runs have in common; variants and seeds are over it."""
    reading: Reading
    tasks: tuple[LockedTask, ...]
    """In the order in which they are done."""
    left_out: tuple[LeftOut, ...] = ()
    """Of the suite, what cannot be a task here."""

    @property
    def runs(self) -> tuple[PlannedRun, ...]:
        """All runs, task by task: of a bench that is stopped the first are over in all variants."""
        return tuple(
            PlannedRun(variant=variant.name, folder=variant.folder, seed=seed, task=task.name)
            for task in self.tasks for seed in self.seeds for variant in self.variants
        )  # fmt: skip

    def context_of(self, run: PlannedRun) -> RunContext:
        """Return the context of a run, but for its knowledge base."""
        found = next(each for each in self.variants if each.name == run.variant)
        return found.in_place_of(self.context).model_copy(update={"seed": run.seed})


class PlannedRun(Record):
    """One task under one variant and seed."""

    variant: str
    folder: str
    seed: int
    task: str

    @property
    def place(self) -> str:
        """Where its files lie below runs/, outcomes/ and knowledge/."""
        return f"{self.folder}/seed-{self.seed}/{self.task}"

    @property
    def chain(self) -> str:
        """Where the base lies that its variant and seed share."""
        return f"{self.folder}/seed-{self.seed}"

    @property
    def label(self) -> str:
        """It in words."""
        return f"{self.variant}, seed {self.seed}, {self.task}"


class Ended(Record):
    """outcomes/FOLDER/seed-S/TASK.json: a run that is over, failed ones too."""

    outcome: TaskOutcome
    reason: str = ""
    """Why it failed; notes of its result where it did not."""
    began: str = ""
    """Which kernel of an earlier run its search began with; empty where with none."""
    run: str = ""
    """Its directory, from the suite's; empty where none is left."""
