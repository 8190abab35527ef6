"""Renders a role's template into messages, and leaves out what its budget has no room for.

A template is Jinja2 text that calls `system()` once at most and `section(title, keep)` for each
part of what is asked. Sections without `keep` stay whatever they cost. What is appended later (the
form of the reply, what was wrong with the last) counts too: who asks leaves out more for it.
"""

from __future__ import annotations

import functools
import itertools
import json
from collections.abc import Callable, Mapping, Sequence
from importlib import resources
from typing import Any, NamedTuple

from jinja2 import Environment

from ....tools.models.fitting import fitted, of_sections, tokens_of
from ....tools.models.records import Message, Section
from ....tools.wording.templates import environment, shared_text


class Besides(NamedTuple):
    """What is asked at the end of another template, in the same message."""

    template: str
    context: Mapping[str, Any]
    """What it speaks of besides."""


def render(
    template: str, budget: int, besides: Besides | None = None, /, **context: Any
) -> tuple[Message, ...]:
    """Return the messages of a template: the system's, where it has one, and the user's.

    Args:
        template: a role, whose template is prompt.md in its folder, or the name of a file in
            nodes/common/prompts or tools/wording without `.md`.
        budget: tokens that the messages may have together. What must stay stays even where it is
            more: half a kernel is of no use to anybody.
        besides: of which the sections follow, within the same budget.
        context: what the template speaks of.

    Raises:
        jinja2.UndefinedError: the template speaks of something that `context` does not hold.
    """
    system: list[str] = []
    sections: list[Section] = []

    def add_system(caller: Callable[[], str]) -> str:
        system.append(caller().strip())
        return ""

    def add_section(title: str, keep: int | None = None, *, caller: Callable[[], str]) -> str:
        text = caller().strip("\n").rstrip()
        if text.strip():
            sections.append(Section(title=title, keep=keep, text=text))
        return ""

    for name, more in [(template, {}), *([besides] if besides else [])]:
        _template(name).render({**context, **more}, system=add_system, section=add_section)
    messages = [Message(role="system", content=text) for text in system]
    return fitted((*messages, of_sections(sections)), budget)


def conversation(
    template: str, budget: int, /, exchanges: Sequence[tuple[Message, ...]], **context: Any
) -> tuple[Message, ...]:
    """Return a template's messages and what was said since, within one budget.

    Args:
        template: as of `render`.
        budget: tokens of all messages together, as far as what must stay allows.
        exchanges: replies with what was said to each, in order. The earliest are left out where
            they would take more than half of the budget; the newest stays.
        context: as of `render`.
    """
    kept: list[tuple[Message, ...]] = []
    for exchange in reversed(exchanges):
        if kept and tokens_of(itertools.chain(exchange, *kept)) > budget / 2:
            break
        kept.insert(0, exchange)
    said = tuple(itertools.chain(*kept))
    return (*render(template, budget - tokens_of(said), **context), *said)


@functools.cache
def _environment() -> Environment:
    found = environment(_text)
    found.filters["json"] = lambda value: json.dumps(value, ensure_ascii=False)
    return found


def _template(name: str) -> Any:
    return _environment().get_template(f"{name}.md")


def _text(name: str) -> str | None:
    shared = resources.files(__package__)
    nodes = resources.files(__package__.removesuffix(".common.prompts"))
    for file in (nodes.joinpath(name.removesuffix(".md"), "prompt.md"), shared.joinpath(name)):
        if file.is_file():
            return file.read_text(encoding="utf-8")
    return shared_text(name)
