"""The entries of the policy that an iteration tried, as a model that may edit them sees them."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

from ...memory.knowledge.policy.listed import listed_text
from ...memory.knowledge.states.conditions import evidence_facts
from ...memory.records.conditions import Condition
from ...memory.records.evidence import Evidence, Step
from ...tools.techniques.catalogue import techniques
from ...tools.wording.experience import gain_text
from ..common.prompts.iteration import labels_of
from .by_rule import Learned

MOST_ROWS = 6
"""Earlier rows of a technique that are shown, half of them failures where there are such."""
MOST_WORDS = 6
"""Of those that a condition lists."""
SHOWN = 10
"""Characters of an earlier row's id."""


def entries_text(
    steps: Sequence[Step], learned: Learned, names: Mapping[str, str]
) -> list[str]:
    """Return a line for each technique and state of the steps, with earlier rows under it."""
    labels = labels_of(steps)
    lines = []
    told: set[str] = set()
    for technique, state in dict.fromkeys((step.technique, step.state_id) for step in steps):
        own = [
            labels[str(step.evidence_id)]
            for step in steps
            if (step.technique, step.state_id) == (technique, state) and step.evidence_id
        ]
        lines.append(f"- {_entry(technique, state, learned, names)} [{', '.join(own)}]")
        if technique not in told:
            told.add(technique)
            lines += [f"  - {_row(name, row)}" for name, row in _earlier(technique, steps, learned)]
    return lines


def shown_ids(steps: Sequence[Step], learned: Learned) -> dict[str, str]:
    """Return the ids of all rows that a model is shown, by what it is shown of them."""
    found = {label: name for name, label in labels_of(steps).items()}
    for technique in dict.fromkeys(step.technique for step in steps):
        found |= {name[:SHOWN]: name for name, _ in _earlier(technique, steps, learned)}
    return found


def _entry(technique: str, state: str, learned: Learned, names: Mapping[str, str]) -> str:
    snapshot, kind = learned.snapshot, learned.device_kind
    card = snapshot.cards(state, kind).get(technique)
    if card is None:
        return f'{technique} in "{names.get(state, state)}": not listed'
    parts = [listed_text(card.prior_log_gain)]
    parts += [f"only where {condition_text(each)}" for each in card.conditions]
    parts += [f"{name} {values}" for name, values in sorted(card.parameters.items())]
    revisions = max(snapshot.edits.revision(technique, each) for each in (state, None))
    listed = technique in snapshot.optimizations(kind).get(state, {})
    where = f'in "{names.get(state, state)}"' + ("" if listed else " (not listed there)")
    return f"{technique} {where}, revision {revisions}: {'; '.join(parts)}"


def condition_text(condition: Condition) -> str:
    """Return a condition in words; of a long list its first words, which say what it is of."""
    value = condition.value
    if not isinstance(value, tuple) or len(value) <= MOST_WORDS:
        return str(condition)
    first = (*value[:MOST_WORDS], f"{len(value) - MOST_WORDS} more")
    return str(condition.model_copy(update={"value": first}))


def _earlier(
    technique: str, steps: Sequence[Step], learned: Learned
) -> list[tuple[str, Evidence]]:
    """Return earlier rows of a technique, of what gained and of what did not."""
    own = {step.evidence_id for step in steps}
    rows = [(name, row) for name, row in learned.of(technique).items() if name not in own]
    rows.sort(key=lambda item: (-(item[1].log_gain or -math.inf), item[0]))
    if len(rows) <= MOST_ROWS:
        return rows
    half = MOST_ROWS // 2
    return [*rows[:half], *rows[-half:]]


def _row(name: str, row: Evidence) -> str:
    """Return a row in a few words, with the figures that its technique should move."""
    known, facts = techniques().get(row.technique), evidence_facts(row)
    figures = [
        f"{each[1:]} {facts[each[1:]]:.2f}"
        for each in (known.moves if known else ())
        if isinstance(facts.get(each[1:]), float)
    ]
    came = row.outcome.replace("_", " ") if row.log_gain is None else gain_text(row.log_gain)
    return ", ".join((f"{name[:SHOWN]}: {row.op_class}, {row.dtype}", *figures, came))
