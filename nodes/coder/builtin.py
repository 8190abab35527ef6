"""Built-in Coder: the first kernel, the Judge's technique by its rewrite, or one drawn by seed."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping
from typing import Any

from ...harness.records.record import Record
from ...harness.records.tasks import Task
from ...tools.rewriting.records import Kernels, Rewritten
from ...tools.rewriting.rewrite import Rewrite
from ...tools.rewriting.target import kernel_texts
from ...tools.techniques.catalogue import rewrites
from ..common.randomness import generator


class Written(Record):
    """A source, or the reason why there is none."""

    source: str | None
    rewrite: str
    """Technique of the library that it was made by."""
    parameters: dict[str, Any] = {}
    note: str = ""


def follow(
    good: str, task: Task, technique: str, kernels: Kernels,
    failed: Mapping[str, Any] | None = None,
) -> Written:  # fmt: skip
    """Apply a technique to the last kernel that passed, by the first setting that changes it.

    Args:
        good: source of that kernel.
        task: what it computes.
        technique: a name of the library.
        kernels: those of the program, the costliest first.
        failed: the setting that failed in the last round: those after it are tried.
    """
    known = {rewrite.technique: rewrite for rewrite in rewrites()}
    if technique not in known:
        note = "no built-in rewrite: needs a model"
        return Written(source=None, rewrite=technique, note=note)
    note = "every setting was tried"
    settings = list(_settings(known[technique]))
    begin = settings.index(dict(failed)) + 1 if failed in settings else 0
    for setting in settings[begin:]:
        result = known[technique].apply(good, task, setting, kernels)
        if isinstance(result, Rewritten):
            return Written(
                source=result.source, rewrite=technique, parameters=setting, note=result.note
            )
        note = result.reason
    return Written(source=None, rewrite=technique, note=note)


def draw(source: str, task: Task, seed: int, place: int) -> Written:
    """Apply a technique with a setting to a kernel, all three drawn by seed and place, of those
    that change the source."""
    stream = generator(seed, "coder", place)
    known = rewrites()
    names = list(kernel_texts(source))
    kernels = [names[int(index)] for index in stream.permutation(len(names))]
    for index in stream.permutation(len(known)):
        rewrite = known[int(index)]
        settings = list(_settings(rewrite))
        setting = settings[int(stream.integers(len(settings)))]
        result = rewrite.apply(source, task, setting, kernels)
        if isinstance(result, Rewritten):
            return Written(
                source=result.source,
                rewrite=rewrite.technique,
                parameters=setting,
                note=result.note,
            )
    return Written(source=None, rewrite="", note="no built-in rewrite changes this kernel")


def _settings(rewrite: Rewrite) -> Iterator[dict[str, Any]]:
    """Yield every combination of parameter values, the default first."""
    names = sorted(rewrite.parameters)
    for values in itertools.product(*(rewrite.parameters[name] for name in names)):
        yield dict(zip(names, values, strict=True))
