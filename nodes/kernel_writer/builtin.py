"""Built-in lowering: apply the chosen technique's rewrite with parameter values not tried yet."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from ...harness.records.record import Record
from ...harness.records.tasks import Task
from ...tools.rewriting.records import Rewritten
from ...tools.rewriting.source.named_constants import name_of, named_numbers, with_numbers
from ...tools.techniques.catalogue import rewrites
from ...tools.techniques.macros import macro_rewrite
from ..common.randomness import generator
from ..records.choices import TechniqueChoice


class Written(Record):
    """A source, or the reason why there is none."""

    source: str | None
    parameters: dict[str, Any]
    note: str


def rewrite(
    parent: str,
    task: Task,
    choice: TechniqueChoice,
    tried: Sequence[Mapping[str, Any]],
    *,
    seed: int,
    place: tuple[int, int, int],
    explore: bool,
) -> Written:
    """Return the first rewrite of the chosen kernel with parameters not in `tried`.

    The settings come in the order worth trying. A rollout that explores (`explore`) takes another
    one first in half the draws: otherwise parameters would never be tuned.
    """
    found = [candidate for candidate in rewrites() if candidate.technique == choice.technique]
    if choice.optimization and (whole := macro_rewrite(choice.optimization, rewrites())):
        found = [whole]
    if not found:
        return Written(source=None, parameters={}, note="no built-in rewrite: needs a model")
    note = "every parameter value was tried"
    kernels = [choice.launch] if choice.launch else []
    for parameters in _order(choice.settings, seed, place, explore):
        if any(dict(earlier) == parameters for earlier in tried):
            continue
        result = found[0].apply(parent, task, parameters, kernels)
        if isinstance(result, Rewritten):
            return Written(source=result.source, parameters=parameters, note=result.note)
        note = result.reason
    return Written(source=None, parameters={}, note=note)


def renumbered(
    basis: str, choice: TechniqueChoice, tried: Sequence[Mapping[str, Any]]
) -> Written:
    """Return a kernel that has the technique, the numbers that it names changed to the first
    setting not in `tried`."""
    numbers = named_numbers(basis)
    for parameters in choice.settings:
        if any(dict(earlier) == parameters for earlier in tried):
            continue
        named = {name_of(each, list(numbers)): value for each, value in parameters.items()}
        changed = {
            name: value for name, value in named.items() if name and numbers[name] != value
        }
        if changed:
            told = ", ".join(f"{name} {numbers[name]} -> {changed[name]}" for name in changed)
            return Written(
                source=with_numbers(basis, changed), parameters=parameters, note=told
            )
    return Written(source=None, parameters={}, note="every setting was tried")


def _order(
    settings: Sequence[dict[str, Any]], seed: int, place: tuple[int, int, int], explore: bool
) -> list[dict[str, Any]]:
    """Return the settings as given, or, in half the exploring draws, in a seeded shuffle."""
    stream = generator(seed, "parameters", *place)
    if not explore or stream.random() < 0.5:
        return list(settings)
    return [settings[int(index)] for index in stream.permutation(len(settings))]
