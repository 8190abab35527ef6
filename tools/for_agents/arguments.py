"""What models may say to the tools, and one sentence for what they may not."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Annotated, Any

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, ValidationError

from ...harness.errors import shown

LONGEST_SENTENCE = 500
"""Characters of what an agent is told of a mistake, whatever it repeats."""
LONGEST_QUERY = 2_000
"""Characters of a search."""

SOURCE = (
    "Complete text of the CUDA file that defines `launch`, or the id of one that a tool gave "
    "(kernel-...)."
)
Source = Annotated[str, Field(description=SOURCE)]


def _plain(value: Any) -> Any:
    """Return JSON that came as text as what it says: models quote it twice."""
    if not isinstance(value, str):
        return value
    try:
        return json.loads(value)
    except (ValueError, RecursionError):
        return value


def _numbers(value: Any) -> Any:
    """Return parameters with the numbers among them as numbers."""
    value = {} if value is None else _plain(value)
    if not isinstance(value, dict):
        return value
    return {name: _plain(each) if isinstance(each, str) else each for name, each in value.items()}


def short(text: str) -> str:
    """Return a text as one sentence may hold it: on one line, of bounded length, encodable."""
    words = " ".join(text[: 4 * LONGEST_SENTENCE].split())
    told = words if len(words) <= LONGEST_SENTENCE else f"{words[:LONGEST_SENTENCE]} ..."
    return told.encode("utf-8", "replace").decode()


class Arguments(BaseModel):
    """Base of what a tool takes: nothing that it does not know."""

    model_config = ConfigDict(extra="forbid", use_attribute_docstrings=True)


class NoArguments(Arguments):
    """Takes nothing."""


class OneSource(Arguments):
    """One kernel."""

    source: Source


class Reference(Arguments):
    """A part of a text that was too long, or of a kernel."""

    reference: str
    """Id that a tool gave: kernel-... or answer-..."""
    part: Annotated[int, BeforeValidator(_plain)] = 1
    """Which part, counted from 1."""


class Search(Arguments):
    """What is looked for: words, a state, or what a kernel's profile says."""

    query: str = Field(default="", max_length=LONGEST_QUERY)
    """Words, or the id or name of a performance state."""
    source: str = ""
    """Instead of a query: a kernel, text or id, whose profile says what state it is in."""


class Named(Arguments):
    """A technique."""

    technique: str
    """Its name, for example vectorize_memory_access."""


class Application(Arguments):
    """A technique and what it is applied to."""

    technique: str
    """Its name, for example tune_block_size."""
    source: Source
    parameters: Annotated[dict[str, int], BeforeValidator(_numbers)] = Field(default_factory=dict)
    """Values by name, of those that describe_technique lists; those left out have the first."""
    kernel: str = ""
    """Of a file with several, the one to change; without, the first that can be. What is done to
    all kernels alike (unroll_loop, fast_math, ...) is done to all."""


def complaint(tool: str, arguments: type[Arguments]) -> Callable[[Any], str]:
    """Return what makes one sentence of arguments that a tool does not take."""
    fields = arguments.model_fields
    listed = (
        name if field.is_required() else f"{name}=..." for name, field in fields.items()
    )
    call = f"call {tool}({', '.join(listed)})"

    def sentence(error: Any) -> str:
        if not isinstance(error, ValidationError):
            return f"{tool}: {short(str(error))}; {call}"
        first = error.errors(include_url=False, include_context=False)[0]
        name = short(".".join(str(part) for part in first["loc"])) or "the argument"
        if first["type"] == "missing":
            said = f"{name} is missing"
        elif first["type"] == "extra_forbidden":
            said = f"it takes no {shown(name)}"
        elif first["type"] == "string_too_long":
            said = f"{name} is too long: at most {LONGEST_QUERY} characters"
        elif first["type"] == "string_unicode":
            said = f"{name} holds half a surrogate pair, which is no text: give it again without"
        else:
            said = f"{name} is {shown(first['input'])}: {first['msg'].lower()}"
        return f"{tool}: {said}; {call}"

    return sentence
