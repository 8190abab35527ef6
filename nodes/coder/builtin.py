"""Built-in Coder: the first kernel, a technique's rewrite, or one drawn by the run's seed."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ...harness.records import Record, Task
from ...tools.rewriting.records import Rewritten
from ...tools.rewriting.rewrite import Rewrite
from ...tools.techniques.catalogue import rewrites
from ..common.randomness import generator
from ..records import Feedback


class Written(Record):
    """A source, or the reason why there is none."""

    source: str | None
    technique: str
    parameters: dict[str, Any] = {}
    note: str = ""


def follow(
    good: str, task: Task, feedback: Feedback, tried: Mapping[str, Any] | None = None
) -> Written:
    """Apply the Judge's method to the last good kernel, by the first setting that changes it.

    Args:
        good: source of the last kernel that passed.
        task: what it computes.
        feedback: names the method and the settings worth trying, in order.
        tried: the setting that failed in the last round, which is left out.
    """
    known = {rewrite.technique: rewrite for rewrite in rewrites()}
    name = feedback.method
    if name not in known:
        return Written(source=None, technique=name, note="no built-in rewrite: needs a model")
    note = "every other setting was tried"
    for setting in feedback.settings:
        if setting == tried:
            continue
        result = known[name].apply(good, task, setting)
        if isinstance(result, Rewritten):
            return Written(
                source=result.source, technique=name, parameters=setting, note=result.note
            )
        note = result.reason
    return Written(source=None, technique=name, note=note)


def draw(source: str, task: Task, seed: int, place: int) -> Written:
    """Apply a technique and a setting drawn by seed and place, of those that change the source."""
    stream = generator(seed, "coder", place)
    known = rewrites()
    for index in stream.permutation(len(known)):
        rewrite = known[int(index)]
        setting = _drawn_setting(rewrite, stream)
        result = rewrite.apply(source, task, setting)
        if isinstance(result, Rewritten):
            return Written(
                source=result.source,
                technique=rewrite.technique,
                parameters=setting,
                note=result.note,
            )
    return Written(source=None, technique="rewrite", note="no built-in rewrite changes this kernel")


def _drawn_setting(rewrite: Rewrite, stream: Any) -> dict[str, Any]:
    return {
        name: values[int(stream.integers(len(values)))]
        for name, values in sorted(rewrite.parameters.items())
    }
