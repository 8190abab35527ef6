"""Two suites side by side: each policy in both, in pairs of tasks, with intervals."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NamedTuple

from ..bench.directory import read_outcomes, read_suite
from ..bench.records import SuiteLock
from ..bench.results import base_in_words, bases_of
from ..harness.errors import UserError
from ..harness.metrics import Against, Difference, TaskOutcome, compare_policies, counted
from . import words
from .comparison import Side, differing


class SuiteComparison(NamedTuple):
    """What two suites have to do with each other."""

    sentence: str
    differences: list[Difference]
    """Of each pair of policies, the first suite's over the second's."""
    figures: list[Side]
    """The same in words, and what each suite is."""
    tasks: list[Side]
    """What each pair came to on each task that both have; those of the first pair first."""
    settings: list[Side]
    """What was locked in each, where it differs."""


def compare_suites(first: Path, second: Path, seed: int = 0) -> SuiteComparison:
    """Return how two suites compare on the tasks that both have.

    Policies of one name are set beside each other; where the suites share none, and each has one,
    those are.

    Raises:
        UserError: one is no suite, they have no policy or task to compare, or times of two kinds.
    """
    locks = read_suite(first), read_suite(second)
    sides = [
        [ended.outcome for _, ended in read_outcomes(directory, lock)]
        for directory, lock in zip((first, second), locks, strict=True)
    ]
    against = next(each for each in bases_of(sides[0]) if each in bases_of(sides[1]))
    pairs = _pairs(locks, (first, second))
    try:
        differences = [
            compare_policies(_renamed(sides[0], one, f"{one} in {first}"),
                             _renamed(sides[1], other, f"{other} in {second}"), against, seed)
            for one, other in pairs
        ]  # fmt: skip
    except ValueError as error:
        raise UserError(f"{first} and {second} cannot be compared: {error}") from error
    return SuiteComparison(
        sentence=_sentence(differences, against, same=locks[0].device == locks[1].device),
        differences=differences,
        figures=[
            Side(name, *(said(lock, side) for lock, side in zip(locks, sides, strict=True)))
            for name, said in _FIGURES.items()
        ],
        tasks=[row for one, other in pairs for row in _tasks(sides, one, other, against)],
        settings=differing(*(_told(lock) for lock in locks)),
    )


def _pairs(locks: tuple[SuiteLock, SuiteLock], names: tuple[Path, Path]) -> list[tuple[str, str]]:
    first, second = ([variant.name for variant in lock.variants] for lock in locks)
    shared = [(name, name) for name in first if name in second]
    if shared:
        return shared
    if len(first) == len(second) == 1:
        return [(first[0], second[0])]
    raise UserError(
        f"{names[0]} ({', '.join(first)}) and {names[1]} ({', '.join(second)}) have no policy in "
        "common: compare suites that share one, or that have one each"
    )


def _renamed(outcomes: Sequence[TaskOutcome], policy: str, name: str) -> list[TaskOutcome]:
    """Return a policy's outcomes under a name that says which suite they are of."""
    found = [each.model_copy(update={"policy": name}) for each in outcomes if each.policy == policy]
    if not found:
        raise UserError(f"no run of {name} is over yet")
    return found


def _sentence(differences: Sequence[Difference], against: Against, *, same: bool) -> str:
    told = "; ".join(
        f"{each.first} is {words.gain(each.ratio.estimate)} {each.second} "
        f"({words.gain(each.ratio.low)} to {words.gain(each.ratio.high)}) on "
        f"{words.counted(each.tasks, 'task')}, "
        f"{'which is more than chance' if each.tells else 'which chance alone could give'}"
        for each in differences
    )
    where = "" if same else " They were measured on devices, or by versions, that differ."
    return f"Geometric means beside {base_in_words(against)}: {told}.{where}"


def _tasks(
    sides: Sequence[Sequence[TaskOutcome]], one: str, other: str, against: Against
) -> list[Side]:
    found: list[dict[str, list[str]]] = []
    for outcomes, policy in zip(sides, (one, other), strict=True):
        cells: dict[str, list[str]] = {}
        for each in outcomes:
            if each.policy == policy:
                failed = "" if each.valid else f" {words.plain(each.outcome)}"
                cells.setdefault(each.task, []).append(
                    f"{words.gain(counted(each, against))}{failed}"
                )
        found.append(cells)
    label = one if one == other else f"{one} / {other}"
    return [
        Side(f"{task} ({label})", *(", ".join(cells.get(task, [words.NONE])) for cells in found))
        for task in dict.fromkeys([*found[0], *found[1]])
    ]


_FIGURES: dict[str, Callable[[SuiteLock, Sequence[TaskOutcome]], str]] = {
    "suite": lambda lock, side: lock.suite,
    "device": lambda lock, side: str(lock.device),
    "runs over": lambda lock, side: f"{len(side)} of {len(lock.runs)}",
    "held": lambda lock, side: str(sum(each.valid for each in side)),
    "evaluations": lambda lock, side: words.count(sum(each.evaluations for each in side)),
    "tokens": lambda lock, side: words.count(sum(each.tokens for each in side)),
    "time": lambda lock, side: words.seconds(sum(each.seconds for each in side)),
    "of the device": lambda lock, side: words.seconds(sum(each.device_seconds for each in side)),
}


def _told(lock: SuiteLock) -> dict[str, object]:
    told = lock.model_dump(mode="json", exclude={"tasks", "left_out", "variants", "format"})
    policies = {each.name: each.settings or "as it is" for each in lock.variants}
    return {**told, "policies": policies, "tasks": {each.name: each.sha256 for each in lock.tasks}}
