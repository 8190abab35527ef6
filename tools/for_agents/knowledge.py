"""Tools about what is known: performance states, techniques, what they gained, lessons."""

from __future__ import annotations

import asyncio
import difflib
import re

from ...harness.errors import shown
from ...harness.records.profiles import Profile
from ...memory.knowledge.knowledge_base import KnowledgeBase
from ...memory.knowledge.states.conditions import circumstance_facts
from ...memory.knowledge.states.signature import bottlenecks_of, explain, signature_of
from ...memory.records.states import PerformanceState
from ..models.reply_forms import MalformedReply
from ..techniques.catalogue import techniques
from ..wording.experience import expected_text, lessons_text, technique_text
from .desk import Desk

MOST_TECHNIQUES = 8
"""Told of a state; the others are worth less."""
MOST_AFTER_PROFILE = 3
MOST_OTHERS = 2
"""States besides the one that a profile is in."""
MOST_FOUND = 8
"""Texts that a search by words gives."""
MOST_NAMED = 40
"""States in an answer that says which there are."""
LONGEST_NAME = 100
"""Characters of a name that others are compared with."""


async def search_knowledge(desk: Desk, query: str = "", source: str = "") -> str:
    """Search the knowledge base: by words, by a performance state, or by a kernel's profile.

    A state is answered with what to try in it, best first, and its lessons.
    """
    if bool(query.strip()) == bool(source.strip()):
        raise MalformedReply("search_knowledge: give a query or a source, one of the two")
    if not source.strip():
        return await asyncio.to_thread(_found, desk, query)
    kernel = await asyncio.to_thread(desk.kernel, source)
    evaluation = await desk.evaluator.evaluate(desk.task, kernel.source)
    if evaluation.profile is None:
        return f"{kernel.id} has no profile, it failed: {evaluation.reason}. Ask run_kernel."
    return await asyncio.to_thread(state_text, desk, evaluation.profile, MOST_TECHNIQUES)


async def describe_technique(desk: Desk, technique: str) -> str:
    """Describe a technique: when it pays, how it is written, its parameters, its lessons."""
    return await asyncio.to_thread(_described, desk, technique)


def state_text(desk: Desk, profile: Profile, most: int = MOST_AFTER_PROFILE) -> str:
    """Return the state that a profile is in, as a run would have it, and what to try there."""
    knowledge, signature = desk.knowledge(), signature_of(profile)
    primary, secondary = bottlenecks_of(profile)
    facts = circumstance_facts(desk.context)
    state, away, is_new = knowledge.match_state(
        signature, primary, secondary, desk.at, facts=facts
    )
    near = "unlike every known one; the nearest is" if is_new else "known, at"
    others = [
        f"{each.state.id} ({each.weight:.0%})"
        for each in knowledge.near_states(signature, primary, secondary, desk.at, facts=facts)
        if each.within and each.state.id != state.id
    ][:MOST_OTHERS]
    telling = "; ".join(explain(signature))
    return "\n".join(
        (
            f"Performance state: {state.name} ({state.id}), {near} {away:.2f} away. "
            f"{state.description}",
            *([f"It may also be in: {', '.join(others)}."] if others else []),
            *([f"What tells: {telling}."] if telling else []),
            _to_try(desk, knowledge, state, most),
        )
    )


def technique_named(desk: Desk, given: str) -> str:
    """Return the name of the technique that is meant.

    Raises:
        MalformedReply: there is none of this name; the reason says which are like it.
    """
    knowledge = desk.knowledge()
    learned = knowledge.snapshot(desk.at).optimizations(desk.identity.kind).values()
    names = sorted({*knowledge.seed().techniques, *(name for each in learned for name in each)})
    wanted = _slug(given)
    if wanted in names:
        return wanted
    near = difflib.get_close_matches(wanted[:LONGEST_NAME], names, n=5, cutoff=0.5)
    like = f"; like it are {', '.join(near)}" if near else ""
    raise MalformedReply(
        f"no technique is called {shown(given)}{like}; search_knowledge finds them by words"
    )


def _described(desk: Desk, technique: str) -> str:
    name, knowledge = technique_named(desk, technique), desk.knowledge()
    learned = knowledge.snapshot(desk.at).optimizations(desk.identity.kind).values()
    by_models = (each[name] for each in learned if name in each)
    card = knowledge.seed().techniques.get(name) or next(by_models)
    lessons = lessons_text(
        [each for each in knowledge.lessons(desk.at) if name in (each.technique or "")],
        state="", op_class=desk.task.op_class, device_kind=desk.identity.kind, techniques=(name,),
    )  # fmt: skip
    known = techniques().get(name)
    how = (
        f'apply_technique(technique="{name}", ...) writes it where it recognises the kernel.'
        if known and known.rewrite
        else "It has no built-in rewrite: write it yourself."
    )
    read = [f"- sources: {'; '.join(known.sources)}"] if known and known.sources else []
    told = ["Lessons:", lessons] if lessons else []
    return "\n".join([technique_text(card), *read, how, *told])


def _found(desk: Desk, query: str) -> str:
    knowledge = desk.knowledge()
    wanted = _slug(query)
    for state in knowledge.states(desk.at):
        if wanted in (_slug(state.id), _slug(state.name)):
            text = f"{state.name} ({state.id}): {state.description}"
            return f"{text}\n{_to_try(desk, knowledge, state, MOST_TECHNIQUES)}"
    found = knowledge.search(query, desk.identity.kind, desk.at, MOST_FOUND)
    if not found:
        states = ", ".join(state.id for state in knowledge.states(desk.at)[:MOST_NAMED])
        return f"nothing is known of that; the performance states are {states}"
    return "\n".join(f"- {each.kind} {each.name}: {each.text}" for each in found)


def _to_try(desk: Desk, knowledge: KnowledgeBase, state: PerformanceState, most: int) -> str:
    """Return what could be tried in a state, best first, and the lessons that bear on it."""
    candidates = knowledge.candidates(state, desk.context, desk.at)[:most]
    lines = [
        f"- {each.optimization.technique}: {expected_text(each.expected)}. "
        f"Applies when: {each.optimization.applies_when}"
        for each in candidates
    ]
    lessons = lessons_text(
        knowledge.lessons(desk.at),
        state=state.id,
        op_class=desk.task.op_class,
        device_kind=desk.identity.kind,
        techniques=[each.optimization.technique for each in candidates],
    )
    told = ["What to try in it, the best first:", *lines] if lines else ["Nothing to try is known."]
    return "\n".join([*told, *(["Lessons:", lessons] if lessons else [])])


def _slug(text: str) -> str:
    """Return a name as ids are written: `Tune block-size` is `tune_block_size`."""
    return "_".join(re.findall(r"[a-z0-9]+", text.lower()))
