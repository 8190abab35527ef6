"""Built-in lowering: apply the chosen technique's rewrite with parameter values not tried yet."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from ...harness.records import Record, Task
from ..randomness import generator
from ..records import TechniqueChoice
from .rewrites import Rewritten, rewrites


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
) -> Written:
    """Return the first rewrite of `parent` with parameters not in `tried`.

    The first attempt takes the technique's own default or, by the seeded draw, another value:
    otherwise its parameters would never be tuned.
    """
    found = [candidate for candidate in rewrites() if candidate.technique == choice.technique]
    if not found:
        return Written(source=None, parameters={}, note="no built-in rewrite: needs a model")
    note = "every parameter value was tried"
    for parameters in _settings(choice.parameters, seed, place):
        if any(dict(earlier) == parameters for earlier in tried):
            continue
        result = found[0].apply(parent, task, parameters)
        if isinstance(result, Rewritten):
            return Written(source=result.source, parameters=parameters, note=result.note)
        note = result.reason
    return Written(source=None, parameters={}, note=note)


def _settings(
    values: Mapping[str, Sequence[Any]], seed: int, place: tuple[int, int, int]
) -> Iterator[dict[str, Any]]:
    """Yield every combination: the default first in half the draws, then a seeded shuffle."""
    names = sorted(values)
    combinations = [
        dict(zip(names, combination, strict=True))
        for combination in itertools.product(*(values[name] for name in names))
    ]
    stream = generator(seed, "parameters", *place)
    if stream.random() < 0.5:
        yield from combinations
        return
    for index in stream.permutation(len(combinations)):
        yield combinations[int(index)]
