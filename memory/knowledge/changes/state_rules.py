"""Edits of states that evidence calls for by itself: joined, split, and renamed where it is due.

States are joined where they overlap and no technique's gains tell them apart; a state is split
where a figure tells a technique's gains on its kernels from its other tries there. What these rules
write is checked as any edit is, and what was undone is not written again.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from ....harness.records.identity import sha256_of_json
from ...records.conditions import Condition
from ...records.edits import Edit, JoinStates, RenameState, SplitState
from ...records.evidence import Evidence
from ...records.states import PerformanceState
from ..snapshots.edits import gained, told_apart
from ..states.conditions import evidence_facts, evidence_figures
from ..states.dimensions import DIMENSIONS
from ..states.distances import distance
from ..states.matching import BY_RULE, DISCOVERED_SPREAD, renamed
from ..states.signature import mean_of
from .edit_checks import SEED, Ground, refusal

JOINING_TECHNIQUES = 2
"""Techniques tried in both of two states, and not told apart by their gains, from which on the
states are one."""
JOINING_TASKS = 2
"""Tasks of each state that such a technique must have been tried on."""
RULE_SPLIT_KERNELS = 4
"""Kernels of each part, of two tasks at least, before a state is split."""
SPLIT_GAIN = 0.1
"""Difference of the mean log gains of the parts from which a split is worth a name (about 10 %)."""
MARGIN = 0.05
"""How far apart the figure must stand on the kernels of either part."""
CHANCE = 0.05
"""Probability, at most, that one of the figures asked would tell the parts apart by chance."""

Sign = Callable[[Iterable[str], str], Mapping[str, Any]]
"""Makes of ids of evidence and a reason what every edit says of itself."""


class Asked(NamedTuple):
    """What the rules are asked about."""

    ground: Ground
    device_kind: str
    sign: Sign
    about: Collection[str] | None = None
    """Ids of the states; None: all."""
    moves: Mapping[str, Sequence[str]] = {}
    """By technique, the figures that it should move, `-lsu` one that it lowers: asked first. It
    pays where what it lowers is high, or what it raises is low."""
    settled: Collection[str] = ()
    """Techniques of which a condition was learned that holds everywhere: no state is split for
    them."""

    def wanted(self, state: str) -> bool:
        """Say whether a state is asked about."""
        return self.about is None or state in self.about


def edits_of_states(asked: Asked, *, joins_alone: bool = False) -> list[Edit]:
    """Return the edits of states that evidence calls for."""
    ground = asked.ground
    near = _near_pairs(ground.states(), asked)
    about = {state.id for state in ground.states() if asked.wanted(state.id)}
    tries: dict[str, dict[str, dict[str, Evidence]]] = {}
    for place in sorted(about.union(*((one.id, other.id) for one, other in near))):
        for name, row in ground.began_in(place, asked.device_kind).items():
            tries.setdefault(place, {}).setdefault(row.technique, {})[name] = row
    found: list[Edit] = []
    called_for: list[Edit] = list(_joins(asked, tries, near))
    joined = {
        name
        for edit in called_for
        if isinstance(edit, JoinStates)
        for name in (*edit.states, edit.into)
    }
    if not joins_alone:
        called_for += [each for each in _splits(asked, tries) if each.state not in joined]
    for edit in called_for:
        if refusal(edit, ground) is None:
            found += [edit, *_renamings(edit, asked, tries)]
    return found


Tries = Mapping[str, Mapping[str, Mapping[str, Evidence]]]
"""Rows by state, technique and id."""
Pairs = Sequence[tuple[PerformanceState, PerformanceState]]


def _joins(asked: Asked, tries: Tries, near: Pairs) -> Iterator[JoinStates]:
    undone = {
        frozenset((*edit.states, edit.into))
        for edit in asked.ground.snapshot.edits.undone
        if isinstance(edit, JoinStates)
    }
    gone: set[str] = set()
    for one, other in near:
        if one.id not in tries or other.id not in tries:
            continue
        # What somebody has named stays before what a rule has, then what more is known of.
        into, state = sorted((one, other), key=lambda each: (
            each.origin != SEED, each.description.startswith(BY_RULE),
            -sum(map(len, tries[each.id].values())), each.id,
        ))  # fmt: skip
        alike = [
            technique
            for technique in sorted(tries[into.id].keys() & tries[state.id].keys())
            if all(
                _tasks(tries[each.id][technique].values()) >= JOINING_TASKS
                for each in (into, state)
            )
        ]
        apart = any(
            told_apart(*(tries[each.id][technique].values() for each in (into, state)))
            for technique in tries[into.id].keys() & tries[state.id].keys()
        )
        if (
            apart
            or len(alike) < JOINING_TECHNIQUES
            or not gone.isdisjoint((into.id, state.id))
            or frozenset((into.id, state.id)) in undone
        ):
            continue
        gone |= {into.id, state.id}  # What is alike to what is joined is looked at once it is.
        cited = sorted(
            name for technique in alike for each in (state, into)
            for name in tries[each.id][technique]
        )  # fmt: skip
        away = distance(state.centroid, into.centroid)
        yield JoinStates(
            states=(state.id,),
            into=into.id,
            **asked.sign(
                cited,
                f"{away:.2f} apart, and {', '.join(alike)} gained alike in both",
            ),
        )


def _near_pairs(
    states: Sequence[PerformanceState], asked: Asked
) -> list[tuple[PerformanceState, PerformanceState]]:
    """Return the pairs of states that may be joined, the nearest first."""
    parts = {each.state for each in asked.ground.snapshot.edits.parts}
    found = []
    for at, one in enumerate(states):
        for other in states[at + 1 :]:
            if (
                {one.origin, other.origin} == {SEED}
                or one.primary != other.primary
                or not parts.isdisjoint((one.id, other.id))
                or not (asked.wanted(one.id) or asked.wanted(other.id))
            ):
                continue
            # What costs most is asked last: of a hundred pairs a few come to it.
            away = distance(one.centroid, other.centroid)
            if away <= max(one.spread, other.spread):
                found.append((away, one.id, other.id, one, other))
    return [each[3:] for each in sorted(found, key=lambda each: each[:3])]


def _splits(asked: Asked, tries: Tries) -> Iterator[SplitState]:
    snapshot = asked.ground.snapshot
    undone = {
        (edit.state, edit.condition.feature)
        for edit in snapshot.edits.undone
        if isinstance(edit, SplitState)
    }
    for state in asked.ground.states():
        if not asked.wanted(state.id) or state.id not in tries:
            continue
        for technique, rows in sorted(tries[state.id].items()):
            condition = _dividing(technique, list(rows.values()), asked)
            card = snapshot.card(technique, asked.device_kind)
            known = {each.feature for each in card.conditions} if card else set()
            if (
                condition is None
                or technique in asked.settled
                or condition.feature in known
                or (state.id, condition.feature) in undone
            ):
                continue
            paid = {condition.holds(evidence_facts(row)) for row in rows.values() if gained(row)}
            where = "there, and not elsewhere" if paid == {True} else "elsewhere alone"
            words = _in_words(condition)
            members = [
                row for each in tries[state.id].values() for row in each.values()
                if condition.holds(evidence_facts(row))
            ]  # fmt: skip
            yield SplitState(
                state=state.id,
                condition=condition,
                other=part_of(
                    state,
                    condition,
                    members,
                    f"{state.name}: {words}",
                    f"{state.description} Of these, those of which {words}: {technique} pays "
                    f"{where}.",
                ),
                **asked.sign(
                    sorted(rows), _outcomes(technique, list(rows.values()), words, paid)
                ),
            )
            break  # One at a time: what is left is asked again with what comes next.


def part_of(
    state: PerformanceState,
    condition: Condition,
    members: Iterable[Evidence],
    name: str,
    description: str,
) -> PerformanceState:
    """Return the state that the kernels of another are of which a condition holds."""
    digest = sha256_of_json([state.id, condition.model_dump(mode="json")])[:8]
    return state.model_copy(
        update={
            "id": f"{state.id}_{digest}", "name": name, "description": description,
            "centroid": mean_of(row.signature_before for row in members),
            "spread": min(state.spread, DISCOVERED_SPREAD), "origin": "discovered", "count": 0,
        }
    )  # fmt: skip


def _dividing(technique: str, rows: Sequence[Evidence], asked: Asked) -> Condition | None:
    """Return the condition that tells the kernels that a technique gained on from the others."""
    won = [row for row in rows if gained(row)]
    rest = [row for row in rows if not gained(row)]
    if any(len(_kernels(side)) < RULE_SPLIT_KERNELS or _tasks(side) < 2 for side in (won, rest)):
        return None
    means = [math.fsum(row.log_gain or 0.0 for row in side) / len(side) for side in (won, rest)]
    if means[0] - means[1] < SPLIT_GAIN or told_apart(won, rest) is not True:
        return None
    sides = [evidence_figures(side) for side in (won, rest)]
    one, other = len(_kernels(won)), len(_kernels(rest))
    moves = {move[1:]: move[0] == "-" for move in asked.moves.get(technique, ())}
    for names in (moves, dict.fromkeys(each.name for each in DIMENSIONS)):
        known = [
            (name, [side[name] for side in sides])
            for name in names
            if all(name in side for side in sides)
        ]
        # A threshold on a figure that says nothing tells them apart in 2 of this many orders.
        if not known or 2 * len(known) > CHANCE * math.comb(one + other, one):
            continue
        apart = [
            (_between(values[0], values[1], pays_high=names[name]), name) for name, values in known
        ]
        (low, high), name = max(apart, key=lambda each: (each[0][1] - each[0][0], each[1]))
        if high - low >= MARGIN:
            paid_high = dict(known)[name][0][0] >= high
            few_won = one <= other
            return Condition(
                feature=name,
                comparison="at_least" if paid_high == few_won else "at_most",
                value=round((low + high) / 2, 3),
            )
    return None


def _between(
    won: Sequence[float], rest: Sequence[float], pays_high: bool | None
) -> tuple[float, float]:
    """Return the gap between two lots of figures; where they overlap it ends before it begins."""
    above, below = (max(rest), min(won)), (max(won), min(rest))
    if pays_high is not None:
        return above if pays_high else below
    return max(above, below, key=lambda gap: gap[1] - gap[0])


def _renamings(edit: Edit, asked: Asked, tries: Tries) -> Iterator[RenameState]:
    """Rename what a rule has named where that is not what its kernels are like any more."""
    if isinstance(edit, JoinStates):
        remaining, gone = edit.into, (edit.into, *edit.states)
        rows = {
            name: row for place in gone for each in tries.get(place, {}).values()
            for name, row in each.items()
        }  # fmt: skip
    elif isinstance(edit, SplitState):
        remaining = edit.state
        rows = {
            name: row for each in tries[remaining].values() for name, row in each.items()
            if edit.condition.holds(evidence_facts(row)) is not True
        }  # fmt: skip
    else:
        return
    state = asked.ground.state(remaining)
    own = sorted(name for name, row in rows.items() if asked.ground.place(row) == remaining)
    if state is None or state.origin == SEED or not state.description.startswith(BY_RULE):
        return
    mean = mean_of(row.signature_before for row in rows.values())
    name, description = renamed(state, mean, len(_kernels(rows.values())))
    if name == state.name or not own:
        return
    yield RenameState(
        state=remaining,
        name=name,
        description=description,
        revision=asked.ground.snapshot.edits.naming(remaining) + 1,
        **asked.sign(own, f'"{state.name}" is not what its kernels are like'),
    )


def _in_words(condition: Condition) -> str:
    words = next(each.words for each in DIMENSIONS if each.name == condition.feature)
    bound = str(condition.comparison).replace("_", " ")
    value = float(condition.value)  # type: ignore[arg-type]
    if "{}" not in words:
        return words if condition.comparison == "at_least" else f"it is not so that {words}"
    return words.format(f"{bound} {value:.0%}")


def _outcomes(
    technique: str, rows: Sequence[Evidence], words: str, paid: Collection[bool | None]
) -> str:
    won, rest = (
        len(_kernels(row for row in rows if gained(row) is side)) for side in (True, False)
    )
    inside, outside = (won, f"none of {rest}") if paid == {True} else (f"none of {rest}", won)
    return (
        f"{technique} gained on {inside} kernels of which {words}, and on {outside} of which it "
        "is not so"
    )


def _kernels(rows: Iterable[Evidence]) -> set[tuple[str, str]]:
    return {(row.task_id, row.parent_sha256) for row in rows}


def _tasks(rows: Iterable[Evidence]) -> int:
    return len({row.task_id for row in rows})
