"""All techniques: those of this folder, a file each, and those that installed packages bring."""

from __future__ import annotations

import functools
import importlib
import inspect
import pkgutil
from collections.abc import Collection, Iterable, Iterator, Mapping
from importlib import metadata
from types import MappingProxyType
from typing import NamedTuple

from ...harness.errors import UserError
from ...harness.records.tasks import Task
from ...harness.vetting.symbols import bare_name
from ...memory.knowledge.seed import Seed, load_seed
from ...memory.knowledge.states.conditions import KernelFacts, unmet
from ..rewriting.records import Apply, Inapplicable, Kernels, Rewritten
from ..rewriting.rewrite import Rewrite
from .conditions import OTHER_TASK, AtHand
from .technique import Technique

ENTRY_POINTS = "kernelblaster.techniques"
"""Group under which a package names functions that return its techniques."""
_OF_THE_TASK = frozenset({"operators", "dtype", "innermost", "device_kind", "capability"})
"""Facts that no rewrite changes."""
_NO_TECHNIQUES = frozenset({
    "catalogue", "conditions", "launch_work", "macros", "operators", "technique",
})
"""Modules of this folder that are none."""


@functools.cache
def techniques() -> Mapping[str, Technique]:
    """Return every technique by name, in alphabetical order.

    Raises:
        UserError: an installed package brings none, or one whose name is taken.
    """
    found: dict[str, Technique] = {}
    for origin, technique in (*_of_this_folder(), *_of_packages()):
        if technique.name in found:
            raise UserError(f"{origin} brings a technique {technique.name}, which there is already")
        found[technique.name] = technique
    return MappingProxyType(dict(sorted(found.items())))


@functools.cache
def rewrites() -> tuple[Rewrite, ...]:
    """Return the built-in rewrites, in alphabetical order."""
    return tuple(found for each in techniques().values() if (found := each.rewrite))


@functools.cache
def knowledge_seed() -> Seed:
    """Return what every knowledge base starts from: priors by state, on these techniques."""
    return load_seed(
        [technique.card for technique in techniques().values()],
        {name: technique.formerly for name, technique in techniques().items()},
    )


def applicable(source: str, task: Task) -> dict[str, str | None]:
    """Return for each built-in rewrite None where it applies, else the reason why not.

    A technique applies when it does with any one of its parameter values.
    """
    return {
        technique: found.reason if isinstance(found, Inapplicable) else None
        for technique, found in first_rewrites(source, task).items()
    }


def first_rewrites(
    source: str, task: Task, kernels: Kernels = (), tried: Collection[tuple[str, str]] = ()
) -> dict[str, Rewritten | Inapplicable]:
    """Return what each built-in rewrite makes of a source with the first values that apply, or why
    none does.

    Args:
        source: a file of kernels.
        task: what it computes.
        kernels: as for `Rewrite.apply`.
        tried: techniques, each with the bare name of a kernel that it is not to change.
    """
    found: dict[str, Rewritten | Inapplicable] = {}
    for rewrite in rewrites():
        left = [each for each in kernels if (rewrite.technique, bare_name(each)) not in tried]
        found[rewrite.technique] = first_rewrite(rewrite, source, task, left or kernels)
    return found


def first_rewrite(
    rewrite: Rewrite, source: str, task: Task, kernels: Kernels = ()
) -> Rewritten | Inapplicable:
    """Return what a rewrite makes of a source with the first values that apply, or why none do."""
    reasons = []
    for choice in _choices(rewrite):
        made = rewrite.apply(source, task, choice, kernels)
        if isinstance(made, Rewritten):
            return made
        reasons.append(made)
    return reasons[0]


class Fitness(NamedTuple):
    """Which techniques can act on a program, and where."""

    unfit: Mapping[str, str]
    """Why not, in a few words, by name of the technique; those of which nothing says so are left
    out."""
    kernels: Mapping[str, tuple[str, ...]]
    """By name of each other technique, the kernels that it can act on, the costliest first."""


def fitness(names: Iterable[str], at_hand: AtHand) -> Fitness:
    """Return which techniques can act on a program: each of its kernels is asked for itself."""
    program = at_hand.facts()
    looked_at = [(each, each.facts()) for each in at_hand.each()]
    unfit: dict[str, str] = {}
    kernels: dict[str, tuple[str, ...]] = {}
    for name in names:
        reasons = {each.seen.kernel: _unfit(name, each, facts) for each, facts in looked_at}
        able = tuple(kernel for kernel, reason in reasons.items() if reason is None)
        if able:
            kernels[name] = able
        else:
            reason = next(filter(None, reasons.values()))
            if reason == OTHER_TASK and _unfit(name, at_hand, program) != OTHER_TASK:
                reason = "no kernel that takes much of the time has such work"
            unfit[name] = reason
    return Fitness(unfit, kernels)


def unfit(names: Iterable[str], at_hand: AtHand) -> dict[str, str]:
    """Return why techniques cannot act on a program in a few words, by name.

    Those of which nothing says so are left out.
    """
    return dict(fitness(names, at_hand).unfit)


def _unfit(name: str, at_hand: AtHand, facts: KernelFacts) -> str | None:
    if name in at_hand.applied:
        return "applied already, with gain"
    technique = techniques().get(name)
    if technique is None:
        return None
    failed = unmet(technique.conditions, facts)
    if failed is not None:
        return OTHER_TASK if failed.feature in _OF_THE_TASK else f"needs: {failed}"
    return technique.unfit(at_hand) if technique.unfit else None


def _takes_four(change: Apply) -> bool:
    try:
        inspect.signature(change).bind(*range(4))
    except TypeError:
        return False
    return True


def _choices(rewrite: Rewrite) -> list[dict[str, int]]:
    """Return one choice for each value of each parameter, the others at their first."""
    if not rewrite.parameters:
        return [{}]
    return [{name: value} for name, values in rewrite.parameters.items() for value in values]


def _of_this_folder() -> Iterator[tuple[str, Technique]]:
    package = importlib.import_module(__package__)
    for module in pkgutil.iter_modules(package.__path__):
        if module.name not in _NO_TECHNIQUES:
            origin = f"{__package__}.{module.name}"
            yield origin, importlib.import_module(origin).technique()


def _of_packages() -> Iterator[tuple[str, Technique]]:
    for entry in metadata.entry_points(group=ENTRY_POINTS):
        origin = f"the entry point {entry.name} = {entry.value} ({ENTRY_POINTS})"
        try:
            technique = entry.load()()
        except Exception as error:
            raise UserError(f"{origin} cannot be loaded: {error!r}; mend or remove it") from error
        if not isinstance(technique, Technique):
            raise UserError(f"{origin} gives no Technique but {type(technique).__name__}")
        if technique.change and not _takes_four(technique.change):
            raise UserError(f"{origin}: its rewrite takes (source, task, parameters, kernels)")
        yield origin, technique
