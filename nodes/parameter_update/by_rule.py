"""Edits of the policy that measurements call for by themselves, whoever words the lessons."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from ...memory.knowledge.changes.edit_checks import Ground
from ...memory.knowledge.changes.state_rules import Asked, edits_of_states
from ...memory.knowledge.policy.facts import Rows
from ...memory.knowledge.policy.policy import unknown_technique
from ...memory.knowledge.snapshots.edits import alone_as_good, gained, lost, worse_without
from ...memory.knowledge.snapshots.snapshot import Snapshot
from ...memory.knowledge.states.conditions import KernelFacts, evidence_figures
from ...memory.records.conditions import Condition
from ...memory.records.edits import (
    MOST_CORRECTED,
    AddMacro,
    AddTechnique,
    Deprecate,
    Edit,
    Revise,
    StepProof,
)
from ...memory.records.evidence import NO_GAIN, Evidence
from ...memory.records.optimizations import MacroStep, Optimization
from ...memory.records.states import PerformanceState
from ...tools.models.records import BUILTIN
from ...tools.techniques.catalogue import techniques
from ...tools.techniques.macros import macro_name
from ..common.history.sequences import SEQUENCE_GAIN
from ..common.outlook.learned_notes import LEARNED
from ..records.gradient import Gap

LISTED_GAIN = 0.05
"""Log gain above which a technique is listed under the state (about 5 %)."""
PRIOR_SHARE = 0.5
"""Of the gain that a listed technique's prior takes: the luckiest ones are listed."""
PRIOR_STRENGTH = 1.0
DEPRECATING_TRIES = 2
"""Distinct candidates that must have failed, with none that passed, before a technique is
deprecated."""
CORRECTED_SHARE = 0.5
"""Of what tries differ from their expectation by that a correction takes."""
LEAST_CORRECTION = 0.02
"""Log gain below which nothing is corrected."""
LEARNING_KERNELS = 4
"""Kernels that a technique must have gained on, and as many that it lost on, before what tells them
apart is a condition: with fewer, chance would find one among the figures asked."""
MARGIN = 0.05
"""How far apart the figure must stand on the kernels of either kind."""
WORDS = ("op_class", "dtype")
"""Facts that are words, by which kernels may be told apart too."""


class Learned(NamedTuple):
    """What rules read, as of the end of an iteration."""

    snapshot: Snapshot
    """As the iteration read it."""
    rows: Rows
    """All evidence up to there and the iteration's own, by id."""
    described: Mapping[str, Optimization]
    """What is said of each technique that somebody described, by name."""
    op_class: str
    device_kind: str
    run: str
    iteration: int
    found: Mapping[str, PerformanceState] = {}
    """States that the iteration found, by id."""

    def ground(self, facts: Mapping[str, KernelFacts] | None = None) -> Ground:
        """Return what edits are checked against; `facts` is what more is known of kernels than
        their rows say."""
        return Ground(self.snapshot, self.rows, facts or {}, self.found)

    def of(self, technique: str) -> dict[str, Evidence]:
        """Return the rows of a technique on comparable devices, by id."""
        return self.rows.of(technique, self.device_kind)

    def signed(self, evidence: Iterable[str], reason: str, author: str = BUILTIN) -> dict[str, Any]:
        """Return what every edit says of itself."""
        return {
            "evidence": tuple(evidence), "reason": reason, "device_kind": self.device_kind,
            "author": author, "run": self.run, "iteration": self.iteration,
        }  # fmt: skip


def edits_by_rule(gaps: Sequence[Gap], known: Learned) -> tuple[Edit, ...]:
    """Return the edits that an iteration's gaps call for, each once, in the order of the gaps."""
    single = [gap for gap in gaps if gap.kind != "sequence"]
    found: list[Edit] = []
    for gap in single:
        found += [*_listing(gap, known), *_deprecations(gap, known), *_correction(gap, known)]
    for technique in dict.fromkeys(gap.technique for gap in single):
        found += _conditions(technique, known)
    found += _macros({name for gap in single for name in gap.evidence}, known)
    found += edits_of_states(
        Asked(
            known.ground(),
            known.device_kind,
            known.signed,
            about={known.snapshot.standing(gap.state_id) for gap in single},
            moves={name: technique.moves for name, technique in techniques().items()},
            settled={edit.technique for edit in found if isinstance(edit, Revise)
                     and edit.conditions},
        )
    )  # fmt: skip
    return tuple({edit.id: edit for edit in found}.values())


def _listing(gap: Gap, known: Learned) -> Iterator[Edit]:
    """List a technique under the state that it gained in, where nobody did."""
    listed = known.snapshot.optimizations(known.device_kind).get(gap.state_id, {})
    if gap.log_gain is None or gap.log_gain <= LISTED_GAIN or gap.technique in listed:
        return
    base = known.described.get(gap.technique) or unknown_technique(gap.technique)
    card = base.model_copy(
        update={
            "notes": f"{base.notes}{LEARNED}{known.op_class}: {gap.explained}.",
            "prior_log_gain": PRIOR_SHARE * gap.log_gain,
            "prior_strength": PRIOR_STRENGTH,
            "prior_evidence": gap.evidence,
        }
    )
    reason = f"it gained {math.exp(gap.log_gain):.2f}x where nobody had listed it"
    yield AddTechnique(
        state=gap.state_id, card=card, **known.signed(gap.evidence, reason, gap.author)
    )


def _deprecations(gap: Gap, known: Learned) -> Iterator[Edit]:
    """Deprecate a technique of which no candidate of a writer was ever correct here."""
    if gap.kind != "fails":
        return
    rows = {
        name: row
        for name, row in known.of(gap.technique).items()
        if row.op_class == known.op_class
    }
    for writer in sorted({row.author for row in rows.values()}):
        own = {name: row for name, row in rows.items() if row.author == writer}
        broken = {name: row for name, row in own.items() if row.outcome.breaks_kernel}
        candidates = {(row.task_id, row.child_sha256) for row in broken.values()}
        passed = any(row.log_gain is not None for row in own.values())
        if passed or len(candidates) < DEPRECATING_TRIES:
            continue
        outcomes = ", ".join(sorted({row.outcome.replace("_", " ") for row in broken.values()}))
        reason = (
            f"{gap.technique} in {known.op_class} by {writer}: {len(candidates)} candidates, none "
            f"correct ({outcomes}); last: {gap.explained}"
        )
        yield Deprecate(
            technique=gap.technique,
            op_class=known.op_class,
            writer=writer,
            **known.signed(sorted(broken), reason),
        )


def _correction(gap: Gap, known: Learned) -> Iterator[Edit]:
    """Correct an expectation where the counters say why it was wrong."""
    listed = known.snapshot.optimizations(known.device_kind).get(gap.state_id, {})
    card = listed.get(gap.technique)
    told_down = gap.kind == "overestimated" and gap.stayed and not gap.moved
    told_up = gap.kind == "underestimated" and gap.moved
    if card is None or not (told_down or told_up):
        return
    passed = {
        name: row.log_gain
        for name, row in known.of(gap.technique).items()
        if known.snapshot.place(row) == gap.state_id and row.log_gain is not None
    }
    own = [name for name in gap.evidence if name in passed]
    if not own:
        return
    away = math.fsum(passed.values()) / len(passed) - card.prior_log_gain
    correction = min(max(CORRECTED_SHARE * away, -MOST_CORRECTED), MOST_CORRECTED)
    if abs(correction) < LEAST_CORRECTION or (correction > 0) is not bool(told_up):
        return
    yield Revise(
        technique=gap.technique,
        state=gap.state_id,
        correction=round(correction, 4),
        revision=known.snapshot.edits.revision(gap.technique, gap.state_id) + 1,
        **known.signed(own, gap.cause),
    )


def _conditions(technique: str, known: Learned) -> Iterator[Edit]:
    """Learn what all kernels that a technique lost on have, and none that it gained on."""
    rows = known.of(technique)
    sides = {
        "lost": {name: row for name, row in rows.items() if lost(row)},
        "gained": {name: row for name, row in rows.items() if gained(row)},
    }
    for side in sides.values():
        kernels = {(row.task_id, row.parent_sha256) for row in side.values()}
        if len(kernels) < LEARNING_KERNELS or len({task for task, _ in kernels}) < 2:
            return
    card = known.snapshot.card(technique, known.device_kind)
    condition = _telling(technique, *(list(side.values()) for side in sides.values()))
    if condition is None or (card is not None and condition in card.conditions):
        return
    yield Revise(
        technique=technique,
        conditions=(condition,),
        revision=known.snapshot.edits.revision(technique, None) + 1,
        **known.signed(
            sorted(sides["lost"]),
            f"{technique} lost on {len(sides['lost'])} of {len(sides['lost'])} kernels where this "
            f"is not so, and gained on none of them: {condition}",
        ),
    )


def _telling(
    technique: str, losing: Sequence[Evidence], gaining: Sequence[Evidence]
) -> Condition | None:
    """Return the condition that holds on all kernels of one kind and on none of the other.

    Asked are the figures that the technique should move (it needs what it lowers to be high), then
    what kind of task it is.
    """
    known = techniques().get(technique)
    figures = [evidence_figures(side) for side in (losing, gaining)]
    for move in known.moves if known else ():
        name, lowers = move[1:], move[0] == "-"
        if any(name not in each for each in figures):
            continue
        bad, good = (each[name] for each in figures)
        low, high = (max(bad), min(good)) if lowers else (max(good), min(bad))
        if high - low >= MARGIN:
            at = round((low + high) / 2, 3)
            comparison = "at_least" if lowers else "at_most"
            return Condition.model_validate(
                {"feature": name, "comparison": comparison, "value": at}
            )
    for name in WORDS:
        bad_words = {getattr(row, name) for row in losing}
        if bad_words.isdisjoint(getattr(row, name) for row in gaining):
            return Condition(feature=name, comparison="lacks", value=tuple(sorted(bad_words)))
    return None


def _macros(own: set[str], known: Learned) -> Iterator[Edit]:
    """Join two steps that gained together where the second alone lost."""
    named = {name: known.rows[name] for name in own if name in known.rows}
    for second_id, second in sorted(named.items()):
        alone = {
            name: row
            for name, row in known.of(second.technique).items()
            if row.task_id == second.task_id and lost(row)
        }
        if not gained(second) or not alone:
            continue
        for first_id, first in sorted(named.items()):
            together = (first.log_gain or 0.0) + (second.log_gain or 0.0)
            without = [
                name for name, row in sorted(alone.items()) if worse_without(row, first, second)
            ]
            if (
                first.log_gain is None
                or first.child_sha256 != second.parent_sha256
                or first.technique == second.technique
                or together < SEQUENCE_GAIN
                or not without
                or alone_as_good((first, second), _tries_of(first, second, known=known))
            ):
                continue
            yield from _macro((first_id, second_id), without, together, known)


def _tries_of(*steps: Evidence, known: Learned) -> Iterator[Evidence]:
    """Yield all tries of the techniques of these steps."""
    for step in steps:
        yield from known.of(step.technique).values()


def _macro(
    steps: tuple[str, str], without: Sequence[str], together: float, known: Learned
) -> Iterator[Edit]:
    first, second = (known.rows[name] for name in steps)
    cards = [known.described.get(row.technique) for row in (first, second)]
    name = macro_name((first.technique, second.technique))
    listed = known.snapshot.optimizations(known.device_kind).get(first.state_before, {})
    if name in listed or any(card is None or card.steps for card in cards):
        return
    before, after = (card for card in cards if card is not None)
    measured = f"{math.exp(together):.2f}x together; {second.technique} alone lost"
    card = Optimization(
        technique=name,
        description=f"{before.description} Then: {after.description}",
        applies_when=before.applies_when,
        avoid_when=before.avoid_when,
        side_effects=" ".join(filter(None, (before.side_effects, after.side_effects))),
        notes=f"As one change.{LEARNED}{known.op_class}: {measured}.",
        conditions=before.conditions,
        steps=tuple(
            MacroStep(technique=row.technique, parameters=row.parameters)
            for row in (first, second)
        ),
        prior_log_gain=PRIOR_SHARE * together,
        prior_strength=PRIOR_STRENGTH,
        prior_evidence=steps,
    )
    own = (steps[0],) if (first.log_gain or 0.0) > NO_GAIN else ()
    yield AddMacro(
        state=first.state_before,
        card=card,
        proofs=(
            StepProof(gained=own, without=tuple(without)),
            StepProof(gained=(steps[1],)),
        ),
        **known.signed(steps, measured),
    )
