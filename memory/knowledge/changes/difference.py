"""What one snapshot of a knowledge base has that another has not, in words."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping

from ....harness.records.record import Record
from ...records.edits import Deprecate
from ...records.optimizations import Optimization
from ..policy.listed import listed_text
from ..snapshots.snapshot import Snapshot


class Difference(Record):
    """What changed from one snapshot to another."""

    states: tuple[str, ...] = ()
    """States that came, went, or are described otherwise."""
    optimizations: tuple[str, ...] = ()
    """What is listed under states otherwise."""
    deprecations: tuple[str, ...] = ()
    """Techniques that are not to be tried again, or may be."""
    lessons: tuple[str, ...] = ()
    """Lessons that came, went, or are contested."""
    evidence: int = 0
    """Rows that came, less those that went."""

    @property
    def lines(self) -> tuple[str, ...]:
        """All of it, a line each."""
        rows = (f"{self.evidence:+d} rows of evidence",) if self.evidence else ()
        return (
            *self.states, *self.optimizations, *self.deprecations, *self.lessons, *rows
        )  # fmt: skip


def difference(before: Snapshot, after: Snapshot, device_kind: str) -> Difference:
    """Return what changed, for simulated or for measured devices."""
    tables = before.optimizations(device_kind), after.optimizations(device_kind)
    cards = tuple(
        {
            (state, name): card
            for state, under in table.items()
            for name, card in under.items()
            # What a part has from its whole is told of the whole.
            if table.get(side.whole(state) or "", {}).get(name) != card
        }
        for side, table in zip((before, after), tables, strict=True)
    )
    everywhere = tuple(
        {
            ("", name): card
            for name in side.described()
            if (card := side.card(name, device_kind)) is not None
        }
        for side in (before, after)
    )
    # What is revised wherever it is listed is told once.
    alike = {
        (state, name)
        for state, name in cards[0].keys() & cards[1].keys()
        if ("", name) in everywhere[0]
        and _words(cards[0][state, name], cards[1][state, name])
        == _words(everywhere[0]["", name], everywhere[1]["", name])
    }
    listed = tuple(
        {key: card for key, card in side.items() if key not in alike} for side in cards
    )
    return Difference(
        states=tuple(_states(before, after)),
        optimizations=(
            *_changed(everywhere[0], everywhere[1]), *_changed(listed[0], listed[1])
        ),
        deprecations=tuple(_deprecations(before, after, device_kind)),
        lessons=tuple(_lessons(before, after, device_kind)),
        evidence=len(after.told()) - len(before.told()),
    )  # fmt: skip


def _states(before: Snapshot, after: Snapshot) -> Iterator[str]:
    old, new = ({state.id: state for state in side.states()} for side in (before, after))
    for name in [*new, *(gone for gone in old if gone not in new)]:
        if name not in old:
            yield f'+ state {name}: "{new[name].name}"'
        elif name not in new:
            into = after.state(name)
            yield f"- state {name}" + (f", joined into {into.id}" if into else "")
        elif (old[name].name, old[name].description) != (new[name].name, new[name].description):
            yield f'~ state {name}: "{old[name].name}" is "{new[name].name}"'


def _changed(
    old: Mapping[tuple[str, str], Optimization], new: Mapping[tuple[str, str], Optimization]
) -> Iterator[str]:
    for state, name in sorted(old.keys() | new.keys()):
        where = f" under {state}" if state else ""
        if (state, name) not in old:
            yield f"+ {name}{where}: {listed_text(new[state, name].prior_log_gain)}"
        elif (state, name) not in new:
            yield f"- {name}{where}"
        elif words := _words(old[state, name], new[state, name]):
            yield f"~ {name}{where}: {'; '.join(words)}"


def _words(old: Optimization, new: Optimization) -> list[str]:
    """Return what is said of an entry otherwise."""
    parts = []
    if abs(new.prior_log_gain - old.prior_log_gain) > 1e-9:
        gains = (math.exp(each.prior_log_gain) for each in (old, new))
        parts.append("listed at {:.2f}x -> {:.2f}x".format(*gains))
    parts += [f"only where {each}" for each in new.conditions if each not in old.conditions]
    parts += [f"also where not {each}" for each in old.conditions if each not in new.conditions]
    for name in sorted(old.parameters.keys() | new.parameters.keys()):
        values = old.parameters.get(name), new.parameters.get(name)
        if values[0] != values[1]:
            parts.append(f"{name} {values[0]} -> {values[1]}")
    for field in ("description", "applies_when", "avoid_when", "side_effects", "notes"):
        told = getattr(old, field), getattr(new, field)
        if told[0] != told[1]:
            added = told[1].removeprefix(told[0]).strip()
            parts.append(f"{field.replace('_', ' ')}: {added or told[1] or 'none'}")
    return parts


def _deprecations(before: Snapshot, after: Snapshot, device_kind: str) -> Iterator[str]:
    old, new = (
        {
            f"{edit.technique} in {edit.op_class}" + (f" by {edit.writer}" if edit.writer else "")
            for edit in side.edits.of(device_kind)
            if isinstance(edit, Deprecate)
        }
        for side in (before, after)
    )
    yield from (f"+ deprecated: {each}" for each in sorted(new - old))
    yield from (f"- deprecated: {each}" for each in sorted(old - new))


def _lessons(before: Snapshot, after: Snapshot, device_kind: str) -> Iterator[str]:
    simulated = device_kind == "simulated"
    old, new = (
        {
            lesson.key: lesson
            for lesson in side.lessons()
            if (lesson.device_kind == "simulated") is simulated
        }
        for side in (before, after)
    )
    for key, lesson in new.items():
        if key not in old:
            yield f"+ lesson: {lesson.text}"
        elif (old[key].text, old[key].contested) != (lesson.text, lesson.contested):
            yield f"~ lesson{' (contested)' if lesson.contested else ''}: {lesson.text}"
    yield from (f"- lesson: {lesson.text}" for key, lesson in old.items() if key not in new)
