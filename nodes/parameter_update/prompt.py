"""Lessons of a model: what it is shown, what it may say, how its words join measured figures."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from ...memory.knowledge.changes.edit_checks import grounded
from ...memory.knowledge.states.conditions import FEATURES, KernelFacts
from ...memory.records.edits import AddTechnique
from ...memory.records.evidence import Step
from ...memory.records.lessons import Lesson
from ...memory.records.optimizations import Optimization
from ...tools.models.records import Answer, Message
from ...tools.wording.edits import edit_text
from ...tools.wording.experience import gain_text, lessons_text, technique_text
from ..common.history.sequences import chain_of
from ..common.outlook.learned_notes import LEARNED
from ..common.prompts.iteration import gap_lines, measured_text, resolve, steps_text
from ..common.prompts.render import render
from ..common.replies import checked
from ..records.gradient import GapAnalysis
from ..records.plan import RunPlan
from ..records.task import TaskSummary
from .builtin import Change
from .by_rule import Learned
from .entries import entries_text, shown_ids
from .model_edits import Source, edits_of
from .reply import KnowledgeNotes, ModelLesson, TechniqueCard

MOST_LESSONS = 5
"""Lessons that a model is asked for after one iteration."""

_GAIN = re.compile(r"(?<![\w.])(\d+\.\d+|\d+(?=\s?[x×]\s+(?:fast|speed|gain|slow)))\s?[x×](?!\w)")
"""A gain in a text, such as 1.35x; whole factors only where gain or speed is the next word."""
ROUNDING = 0.02
"""How far, relatively, a gain in a text may be from a measured one."""


class Iteration(NamedTuple):
    """What a model's lessons are about."""

    steps: list[Step]
    names: Mapping[str, str]
    """Of states, by id."""
    change: Change
    """What the knowledge base learns by rule, whatever a model says."""
    learned: Learned
    """What edits are checked against."""
    facts: Mapping[str, KernelFacts]
    """What is known of the kernels that the steps began with, by id of their evidence."""
    lessons: list[Lesson]
    """There already, as of the iteration's snapshot."""
    gpu: str
    device_kind: str

    def cards(self) -> dict[str, Optimization]:
        """Return the techniques that are listed now for the first time."""
        found = (edit.card for edit in self.change.update.edits if isinstance(edit, AddTechnique))
        return {card.technique: card for card in found}


def lesson_messages(
    plan: RunPlan, summary: TaskSummary, analysis: GapAnalysis, told: Iteration
) -> tuple[Message, ...]:
    """Return the prompt of parameter update."""
    return render(
        "parameter_update",
        plan.models.context_of("parameter_update"),
        **lesson_context(summary, analysis, told),
    )


def lesson_context(
    summary: TaskSummary, analysis: GapAnalysis, told: Iteration
) -> dict[str, Any]:
    """Return what the template speaks of."""
    tried = tuple(dict.fromkeys(step.technique for step in told.steps))
    return {
        "name": summary.name,
        "op_class": summary.op_class,
        "dtype": summary.dtype,
        "gpu": told.gpu,
        "iteration": analysis.iteration + 1,
        "gaps": gap_lines(analysis.gaps, told.steps),
        "steps": steps_text(told.steps, told.names),
        "lessons": lessons_text(
            told.lessons,
            state=told.steps[0].state_id,
            op_class=summary.op_class,
            device_kind=told.device_kind,
            techniques=tried,
        ),
        "cards": [technique_text(_unlearned(card)) for _, card in sorted(told.cards().items())],
        "entries": entries_text(told.steps, told.learned, told.names),
        "facts": ", ".join(FEATURES),
        "found": [
            f'{state.id} ("{state.name}")'
            for state in told.learned.snapshot.states()
            if state.origin == "discovered" and state.id in {step.state_id for step in told.steps}
        ],
        "most": MOST_LESSONS,
    }


def _unlearned(card: Optimization) -> Optimization:
    """Return a card without what was measured, which stands among the findings."""
    return card.model_copy(update={"notes": card.notes.partition(LEARNED)[0]})


# What may be said ----------------------------------------------------------------------------


def notes_on(steps: Sequence[Step]) -> type[KnowledgeNotes]:
    """Return the form of notes: on steps that happened, with no gain that nobody measured."""
    gains = _gains(steps)

    def check(reply: KnowledgeNotes) -> None:
        for lesson in reply.lessons:
            cited = steps_of(lesson, steps)
            together = math.exp(math.fsum(step.log_gain or 0.0 for step in cited))
            _require_measured(lesson.text, (*gains, together))
        for edit in reply.edits:
            _require_measured(edit.notes, gains)
        for card in reply.cards:
            for text in (card.applies_when, card.avoid_when, card.side_effects, card.notes):
                _require_measured(text, gains)

    return checked(KnowledgeNotes, check)


def steps_of(lesson: ModelLesson, steps: Sequence[Step]) -> list[Step]:
    """Return the steps that a lesson rests on.

    Of one technique, steps of others are left out: they may show its condition, but what is
    measured of it is its own.

    Raises:
        ValueError: there are no such steps, or none is about what the lesson says.
    """
    if lesson.kind == "composite":
        chain = chain_of(lesson.evidence, steps)
        names = tuple(step.technique for step in chain)
        if lesson.techniques != names:
            raise ValueError(
                f"the steps of this composite are {' then '.join(names)}: give these techniques "
                "in this order"
            )
        return chain
    if len(lesson.techniques) > 1:
        raise ValueError(f"a {lesson.kind} is about one technique; use `composite` for several")
    cited = resolve(lesson.evidence, steps)
    own = [step for step in cited if step.technique == lesson.techniques[0]]
    if not own:
        raise ValueError(
            f"the step {str(cited[0].evidence_id)[:12]} is about {cited[0].technique}, not "
            f"{lesson.techniques[0][:48]}"
        )
    return own


def _gains(steps: Iterable[Step]) -> tuple[float, ...]:
    found: list[float] = []
    for step in steps:
        found.append(math.exp(step.expected_log_gain))
        if step.log_gain is not None:
            found += [math.exp(step.log_gain), math.exp(-step.log_gain)]
    return tuple(found)


def _require_measured(text: str, gains: Sequence[float]) -> None:
    for match in _GAIN.finditer(text):
        said = float(match[1])
        digits = len(match[1].partition(".")[2])
        allowed = ROUNDING * said + 0.5 * 10.0**-digits
        if not any(abs(said - gain) <= allowed for gain in gains):
            raise ValueError(
                f"the text says {match[0]}, which no step measured: leave gains out, the measured "
                "ones are added"
            )


# What becomes of it --------------------------------------------------------------------------


def with_notes(answer: Answer[KnowledgeNotes], told: Iteration, op_class: str) -> Change:
    """Return the change by rule with a model's words and edits in it.

    Its lessons take the place of the rule's on the same technique and state. Gains are those of the
    steps cited. Edits that evidence does not bear out are refused; the rest stands.
    """
    reply, change = answer.value, told.change.update
    assert reply is not None
    written = [_lesson(lesson, told, op_class, answer.author) for lesson in reply.lessons]
    written = list({lesson.id: lesson for lesson in written}.values())
    said = {(lesson.technique, lesson.state) for lesson in written}
    kept = [
        lesson for lesson in change.lessons if (lesson.technique, lesson.state) not in said
    ]
    cards = {card.technique: card for card in reply.cards}
    ruled = [
        _carded(edit, cards[edit.card.technique], answer.author)
        if isinstance(edit, AddTechnique) and edit.card.technique in cards
        else edit
        for edit in change.edits
    ]
    ids = shown_ids(told.steps, told.learned)
    ground = told.learned.ground(told.facts)
    source = Source(told.learned, ids, ground, answer.author)
    asked, senseless = edits_of(reply.edits, source)
    edits, refused = grounded(asked, ground)
    return Change(
        change.model_copy(
            update={
                "lessons": (*kept, *written),
                "edits": tuple({edit.id: edit for edit in (*ruled, *edits)}.values()),
            }
        ),
        (
            *told.change.refused,
            *(f"{said.action} {', '.join(said.techniques)}: {why}" for said, why in senseless),
            *(f"{edit_text(edit, told.names)}: {why}" for edit, why in refused),
        ),
    )


def _lesson(lesson: ModelLesson, told: Iteration, op_class: str, author: str) -> Lesson:
    cited = steps_of(lesson, told.steps)
    composite = lesson.kind == "composite"
    states = list(dict.fromkeys(step.state_id for step in cited))
    # A composite begins where its first step did; of one technique in several states, in all.
    state = states[0] if composite or len(states) == 1 else None
    technique = " then ".join(lesson.techniques)
    gains = [step.log_gain for step in cited if step.log_gain is not None]
    claimed = math.fsum(gains) / (1 if composite else len(gains)) if gains else None
    where = f'"{told.names.get(state, state)}"' if state else "several states"
    text = lesson.text.rstrip(".")
    how = "Simulated" if told.device_kind == "simulated" else "Measured"
    measured = f"{gain_text(claimed or 0.0)} together" if composite else measured_text(cited)
    return Lesson(
        text=f"{technique} in {where} ({op_class}): {text}. {how}: {measured}.",
        kind=lesson.kind,
        technique=technique,
        state=state,
        op_class=op_class,
        claimed_log_gain=claimed,
        evidence=tuple(str(step.evidence_id) for step in cited),
        device_kind=told.device_kind,
        author=author,
        run=told.learned.run,
        iteration=told.learned.iteration,
    )


def _carded(edit: AddTechnique, card: TechniqueCard, author: str) -> AddTechnique:
    said = edit.card
    words = {
        "description": card.description or said.description,
        "applies_when": card.applies_when,
        "avoid_when": card.avoid_when,
        "side_effects": card.side_effects or said.side_effects,
        "notes": " ".join(filter(None, (card.notes, said.notes))),
    }
    return edit.model_copy(
        update={"card": said.model_copy(update=words), "author": author}
    )
