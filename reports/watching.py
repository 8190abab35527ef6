"""What happened in a run since one last looked, as the events that its own process would show.

Read from the run's directory alone, whoever drives the run: a command, a server, another program.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from itertools import groupby
from pathlib import Path
from typing import Any

from ..harness.records.tasks import Task
from ..harness.task.loading import small_variant_in_words
from ..memory.records.evidence import Step
from ..memory.run.directory import is_held
from ..nodes.common.policies import RULES, by_rounds
from ..nodes.run.search.record_step import NEUTRAL
from ..tools.models.records import BUILTIN
from .reading import IterationAccount, RunAccount, place_of, read_run

Mark = tuple[Any, ...]
"""What makes an event the same one when a run is looked at again."""


class Watcher:
    """Remembers what was told of a run; each look gives what came since."""

    def __init__(self, directory: Path) -> None:
        """Watch a run directory; nothing in it is touched."""
        self.directory = directory
        self._told: set[Mark] = set()
        self._looked: tuple[object, ...] = ()

    def look(self) -> tuple[RunAccount, list[dict[str, Any]]]:
        """Return the run as it stands, and what happened since the last look.

        Raises:
            UserError: the directory is no run's, or is damaged.
        """
        self._looked = self._at()
        run = read_run(self.directory, whole=False)
        return run, [event for mark, event in _events(run) if self._is_new(mark)]

    def changed(self) -> bool:
        """Say whether another look may show something new."""
        return self._at() != self._looked

    def _at(self) -> tuple[object, ...]:
        """Return what changes when the run writes, ends or is let go."""
        found: list[object] = [is_held(self.directory)]
        for name in ("run.sqlite", "run.sqlite-wal", "result.json"):
            try:
                said = (self.directory / name).stat()
                found.append((said.st_mtime_ns, said.st_size))
            except OSError:
                found.append(None)
        return tuple(found)

    def _is_new(self, mark: Mark) -> bool:
        new = mark not in self._told
        self._told.add(mark)
        return new


def _events(run: RunAccount) -> Iterator[tuple[Mark, dict[str, Any]]]:
    """Return all that happened until now, each event with what it is known by."""
    if run.task is not None:
        yield ("task",), _task(run, run.task)
    if run.initial is not None:
        yield ("baseline",), {
            "event": "baseline",
            "microseconds": run.initial.microseconds,
            "bottleneck": run.initial.bottleneck,
            "provenance": run.initial.provenance,
            "facts": {},
        }
    gradient = {each.number: each for each in run.iterations}
    reached: dict[tuple[int, int], float] = {}
    for number, group in groupby(run.steps, key=lambda step: step.iteration):
        for step in group:
            own = step.iteration, step.rollout
            best = reached.get(own, step.microseconds_before)
            reached[own] = min(best, step.microseconds_after or best)
            yield ("step", place_of(step)), _step(run, step, reached[own])
        if number in gradient:
            yield from _gradient(gradient.pop(number))
    if run.confirmation is not None:
        said = run.confirmation
        yield ("confirmation", said.point.source_sha256, said.reason), {
            "event": "confirmation", "confirmed": said.confirmed, "reason": said.reason,
            "microseconds": said.microseconds, "gain": said.gain,
        }  # fmt: skip
    for key, review in run.soft_reviews.items():
        if review.author != BUILTIN or review.vetoed:
            yield ("soft_verification", key), {
                "event": "soft_verification", **review.told(),
            }  # fmt: skip
    yield from _models(run)


def _task(run: RunAccount, task: Task) -> dict[str, Any]:
    return {
        "event": "task",
        "task": task.name,
        "op_class": task.op_class,
        "gpu": run.plan.gpu,
        "device": run.plan.device,
        "device_why": run.plan.device_why,
        "run": str(run.directory),
        "shapes": {each.name: list(each.shape) for each in task.full.tensors},
        "verified": small_variant_in_words(task),
        "plan": run.plan.model_dump(mode="json"),
        "by_rounds": by_rounds(run.plan.policy),
        "models": {
            role: run.plan.models.model_of(role) for role in RULES[run.plan.policy].roles
        },
    }


def _step(run: RunAccount, step: Step, best: float) -> dict[str, Any]:
    went_on = run.went_on(step)
    if went_on is None:  # Nobody has begun the next: by the gain alone.
        went_on = step.log_gain is not None and step.log_gain >= math.log(NEUTRAL)
    told = {
        "iteration", "rollout", "step", "technique", "outcome", "reason", "log_gain",
        "expected_log_gain", "state_author", "choice_author", "author",
    }  # fmt: skip
    return {
        "event": "step",
        **step.model_dump(mode="json", include=told),
        "state": run.state_names.get(step.state_id, step.state_id),
        "accepted": went_on,
        "best_microseconds": best,
    }


def _gradient(said: IterationAccount) -> Iterator[tuple[Mark, dict[str, Any]]]:
    number = said.number
    if said.evaluated is not None:
        yield ("policy_evaluation", number), {
            "event": "policy_evaluation",
            "techniques": len(said.evaluated.reviews),
            **said.evaluated.model_dump(mode="json", exclude={"reviews"}),
        }
    if said.analysis is not None:
        yield ("gap_analysis", number), {
            "event": "gap_analysis", **said.analysis.model_dump(mode="json"),
        }  # fmt: skip
    if said.update is not None:
        yield ("parameter_update", number), {
            "event": "parameter_update", **said.update.model_dump(mode="json"),
        }  # fmt: skip


def _models(run: RunAccount) -> Iterator[tuple[Mark, dict[str, Any]]]:
    """Return who is asked at the moment, and what the calls took."""
    if run.spent is not None and run.spent.calls:
        for each in run.spending:
            # Those that were asked before and have answered; who still thinks follows.
            yield ("answered", each.role, run.spent.calls, len(run.thinking)), {
                "event": "answered", "role": each.role, "place": [], "model": each.model,
                "calls": run.spent.calls, "all_tokens": run.spent.tokens,
                "all_money": run.spent.money,
            }  # fmt: skip
    for call in run.thinking:
        yield ("thinking", call.key, call.attempt), {
            "event": "thinking", "role": call.role, "place": [], "model": call.model,
        }  # fmt: skip
