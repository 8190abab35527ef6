"""A prompt within its budget: of its sections those that may be left out go, the least first."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from .records import Message, Section


def fitted(messages: Sequence[Message], budget: int) -> tuple[Message, ...]:
    """Return a conversation that a budget of tokens has room for, as far as its sections allow.

    Sections without `keep` stay whatever they cost; of the others the one with the smallest number
    goes first, the last of equals. What went is named in one line, so that nobody takes its absence
    for a fact. Whatever was appended to a message stays.
    """
    fitting = list(messages)
    while tokens_of(fitting) > budget:
        optional = [
            (section.keep, -at, -place)
            for at, message in enumerate(fitting)
            for place, section in enumerate(message.sections)
            if section.keep is not None
        ]
        if not optional:
            break
        _, at, place = min(optional)
        fitting[-at] = _without(fitting[-at], -place)
    return tuple(fitting)


def tokens_of(messages: Iterable[Message]) -> int:
    """Return about how many tokens messages are: a quarter of their characters, rounded up."""
    return sum(-(-message.length // 4) for message in messages)


def of_sections(sections: Sequence[Section], left_out: Sequence[str] = ()) -> Message:
    """Return the message of a user that sections make."""
    return Message(
        role="user",
        content=_joined(sections, left_out),
        sections=tuple(sections),
        left_out=tuple(left_out),
    )


def _without(message: Message, place: int) -> Message:
    before, gone = _joined(message.sections, message.left_out), message.sections[place]
    sections = (*message.sections[:place], *message.sections[place + 1 :])
    left = [*message.left_out, gone.title]
    appended = message.content.removeprefix(before)
    made = of_sections(sections, left)
    return made.model_copy(update={"content": f"{made.content}{appended}"})


def _joined(sections: Iterable[Section], left_out: Sequence[str]) -> str:
    parts = [section.rendered for section in sections]
    if left_out:
        parts.append(f"(Left out for length: {', '.join(left_out)}.)")
    return "\n\n".join(parts)
