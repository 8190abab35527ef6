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
        fitting[-at] = without(fitting[-at], -place)
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


def without(message: Message, place: int, *, named: bool = True) -> Message:
    """Return a message that lacks one of its sections; what was appended to it stays.

    Args:
        message: of sections.
        place: of the one that goes.
        named: whether the message says that it went.
    """
    gone, rest = message.sections[place], appended_to(message)
    sections = (*message.sections[:place], *message.sections[place + 1 :])
    made = of_sections(sections, (*message.left_out, *([gone.title] if named else [])))
    return made.model_copy(update={"content": f"{made.content}{rest}"})


def appended_to(message: Message) -> str:
    """Return what stands in a message behind its sections."""
    if not message.sections:
        return ""
    return message.content.removeprefix(_joined(message.sections, message.left_out))


def _joined(sections: Iterable[Section], left_out: Sequence[str]) -> str:
    parts = [section.rendered for section in sections]
    if left_out:
        parts.append(f"(Left out for length: {', '.join(left_out)}.)")
    return "\n\n".join(parts)
