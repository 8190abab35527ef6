"""Renders a role's template into messages, and leaves out what its budget has no room for.

A template is Jinja2 text that calls `system()` once at most and `section(title, keep)` for each
part of what is asked. Sections without `keep` stay whatever they cost; of the others the one with
the smallest number goes first. What went is named in one line, so that nobody takes its absence
for a fact.
"""

from __future__ import annotations

import functools
import json
from collections.abc import Callable
from importlib import resources
from typing import Any, NamedTuple

from jinja2 import Environment

from ....tools.models.asking import estimate_tokens
from ....tools.models.records import Message
from ....tools.wording.templates import environment, shared_text


class Section(NamedTuple):
    """A part of the user message."""

    title: str
    keep: int | None
    """None: never left out. Otherwise the smaller goes first."""
    text: str

    @property
    def rendered(self) -> str:
        """The section with its heading."""
        return f"## {self.title}\n{self.text}" if self.title else self.text


def render(template: str, budget: int, /, **context: Any) -> tuple[Message, ...]:
    """Return the messages of a template: the system's, where it has one, and the user's.

    Args:
        template: a role, whose template is prompt.md in its folder, or the name of a file in
            nodes/common/prompts or tools/wording without `.md`.
        budget: tokens that the messages may have together. What must stay stays even where it is
            more: half a kernel is of no use to anybody.
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
            sections.append(Section(title, keep, text))
        return ""

    _template(template).render(context, system=add_system, section=add_section)
    room = budget - sum(map(estimate_tokens, system))
    kept, left_out = within(sections, room)
    parts = [section.rendered for section in kept]
    if left_out:
        parts.append(f"(Left out for length: {', '.join(left_out)}.)")
    messages = [Message(role="system", content=text) for text in system]
    return (*messages, Message(role="user", content="\n\n".join(parts)))


def within(sections: list[Section], budget: int) -> tuple[list[Section], list[str]]:
    """Return the sections that a budget of tokens has room for, and the titles of the others."""
    kept = list(sections)
    left_out: list[str] = []
    while sum(estimate_tokens(section.rendered) for section in kept) > budget:
        optional = [section for section in kept if section.keep is not None]
        if not optional:
            break
        least = min(reversed(optional), key=lambda section: section.keep or 0)
        kept.remove(least)
        left_out.insert(0, least.title)
    return kept, left_out


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
