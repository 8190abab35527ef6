"""Reads code out of a model's reply: a complete file in one fenced block, or edits to a file.

Whatever a reply holds, reading it gives code, the model's refusal of a technique, or a
MalformedReply that says what to mend.
"""

from __future__ import annotations

import json
import re
from typing import Any, NamedTuple

from pydantic import Field

from ...harness.files import LARGEST_SOURCE_BYTES
from ...harness.records.record import Record
from .asking import MalformedReply

_FENCE = re.compile(r"^[ \t]*(`{3,}|~{3,})[ \t]*([\w+#.-]*)[^\n`]*$", re.MULTILINE)
_SEARCH = re.compile(r"^[ \t]*<{5,9} ?SEARCH[ \t]*$", re.MULTILINE)
_DIVIDER = re.compile(r"^[ \t]*={5,9}[ \t]*$", re.MULTILINE)
_REPLACE = re.compile(r"^[ \t]*>{5,9} ?REPLACE[ \t]*$", re.MULTILINE)
_PARAMETERS = re.compile(r"^[ \t*`]*PARAMETERS:?[ \t*`]*(\{.*\})", re.MULTILINE)
_NOT_APPLICABLE = re.compile(r"^[ \t*`]*NOT[ _]APPLICABLE[ \t*`]*:?[ \t*]*(.*)", re.MULTILINE)
_OMITTED = re.compile(
    r"^[ \t]*(?://|/\*)\s*(?:\.\.\.|…).*$"
    r"|^[ \t]*(?://|/\*)"
    r"(?>[^\n]*?\b(?:rest of|remaining|existing|unchanged|same as before|as before)\b)"
    r"[^\n]*(?:\.\.\.|…).*$",
    re.MULTILINE | re.IGNORECASE,
)
_NOT_TEXT = re.compile(r"[\x00-\x08\x0e-\x1f\x7f\ud800-\udfff]")

SHOWN = 120
"""Characters of a reply's line that a complaint repeats."""
PLACES_SHOWN = 6
"""Places of an edit that matches too often."""
MOST_EDITS = 200
"""Of one reply: each is looked for in the whole file."""


class CodeReply(Record):
    """What a reply came to: a source, or why the technique does not apply to the file."""

    source: str | None
    parameters: dict[str, Any] = Field(default_factory=dict)
    """Values the model says it used."""
    not_applicable: str = ""


class Edit(NamedTuple):
    """One SEARCH/REPLACE block."""

    search: str
    replace: str


def read_code(
    text: str,
    base: str | None = None,
    *,
    may_decline: bool = False,
    functions: tuple[str, ...] = ("launch",),
) -> CodeReply:
    """Return the code of a reply.

    Args:
        text: the reply.
        base: the file that edits change; None where only a complete file will do.
        may_decline: whether `NOT APPLICABLE: reason` is an answer.
        functions: the names without which it is not complete.

    Raises:
        MalformedReply: there is no code in it, more than one candidate, code that is cut off or
            left out, or an edit that does not match the file exactly once.
    """
    text = text.replace("\r\n", "\n")
    if _SEARCH.search(text):
        if base is None:
            raise MalformedReply("there is no file yet to edit: give the complete file")
        source = apply_edits(base, read_edits(text))
    elif "```" in text or "~~~" in text:
        source = _file_of(text, functions)
    elif may_decline and (declined := _NOT_APPLICABLE.search(text)):
        reason = " ".join(_NOT_TEXT.sub(" ", declined[1]).split())[:300]
        reason = reason or "the model gives no reason"
        return CodeReply(source=None, not_applicable=reason)
    else:
        raise MalformedReply(
            "the reply holds no code: give the complete file in one fenced block (```cuda)"
            + (", or SEARCH/REPLACE edits" if base is not None else "")
        )
    source = source.rstrip() + "\n"
    _require_whole(source, functions)
    if base is not None and source.split() == base.split():
        raise MalformedReply("the file is the same as before: nothing was changed")
    return CodeReply(source=source, parameters=_parameters(text))


def read_source(text: str) -> str:
    """Return the source that a tool is given: the text of a file, in a fenced block or as it is.

    Whether it defines launch() is the compiler's to say.

    Raises:
        MalformedReply: it is empty, too long, no text, cut off, or leaves code out.
    """
    text = text.replace("\r\n", "\n")
    if len(text) > LARGEST_SOURCE_BYTES:
        raise MalformedReply(f"the code is longer than {LARGEST_SOURCE_BYTES} bytes")
    fence = _FENCE.search(text)
    if fence and "#include" not in text[: fence.start()]:  # Else it stands in a comment.
        blocks = [block for block in _blocks(text) if block.strip()]
        text = "".join(blocks) if len(blocks) < 2 else _file_of(text, ("launch",))
    if not text.strip():
        raise MalformedReply("the code is empty: give the complete text of the file")
    source = text.strip("\n").rstrip() + "\n"
    _require_complete(source)
    return source


def holds_edits(text: str) -> bool:
    """Say whether a reply edits a file instead of giving one."""
    return _SEARCH.search(text) is not None


def read_edits(text: str) -> list[Edit]:
    """Return the SEARCH/REPLACE blocks of a reply, in order.

    Raises:
        MalformedReply: a block that is not closed.
    """
    edits = []
    for number, begin in enumerate(_SEARCH.finditer(text), 1):
        divider = _DIVIDER.search(text, begin.end())
        end = _REPLACE.search(text, divider.end()) if divider else None
        following = _SEARCH.search(text, begin.end())
        if divider is None or end is None or (following and following.start() < end.start()):
            raise MalformedReply(
                f"edit {number} is not complete: after SEARCH come the old lines, a line "
                "=======, the new lines, and a line >>>>>>> REPLACE"
            )
        search = text[begin.end() : divider.start()].strip("\n")
        replace = text[divider.end() : end.start()].strip("\n")
        edits.append(Edit(search, replace))
    return edits


def apply_edits(base: str, edits: list[Edit]) -> str:
    """Return the file after the edits, each of which must match it exactly once.

    White space at the ends of lines does not count; nor does indentation where no lines match
    with it: a reply that is off by a space names its place none the less. Edits apply one after
    the other.

    Raises:
        MalformedReply: an edit matches nothing, or more than one place.
    """
    if len(edits) > MOST_EDITS:
        raise MalformedReply(f"{len(edits)} edits are too many: give the complete file")
    lines = base.split("\n")
    for number, edit in enumerate(edits, 1):
        wanted = [line.rstrip() for line in edit.search.split("\n")]
        if not any(wanted):
            raise MalformedReply(f"edit {number} has an empty SEARCH: copy lines of the file")
        places = _places(lines, wanted) or _places(_flush(lines), _flush(wanted))
        if len(places) != 1:
            raise MalformedReply(_unmatched(number, wanted, places))
        at = places[0]
        new = edit.replace.split("\n") if edit.replace else []
        lines[at : at + len(wanted)] = new
    return "\n".join(lines)


def _places(lines: list[str], wanted: list[str]) -> list[int]:
    """Return the first lines at which the wanted ones stand, the first PLACES_SHOWN of them."""
    text = "\n" + "".join(f"{line.rstrip()}\n" for line in lines)
    searched = "\n" + "".join(f"{line}\n" for line in wanted)
    places: list[int] = []
    at, counted, line = text.find(searched), 0, 0
    while at >= 0 and len(places) < PLACES_SHOWN:
        line += text.count("\n", counted, at)
        counted = at
        places.append(line)
        at = text.find(searched, at + 1)
    return places


def _flush(lines: list[str]) -> list[str]:
    return [line.strip() for line in lines]


def fenced(source: str) -> str:
    """Return a source as a reply gives it."""
    return f"```cuda\n{source.rstrip()}\n```"


def _unmatched(number: int, wanted: list[str], places: list[int]) -> str:
    first = next(line for line in wanted if line).strip()[:SHOWN]
    if places:
        found = ", ".join(str(at + 1) for at in places)
        return (
            f"the SEARCH of edit {number} (`{first}`) is at lines {found} of the file: add lines "
            "around it until it occurs once"
        )
    return (
        f"the SEARCH of edit {number} (`{first}`) is not in the file: copy its lines exactly, "
        "with their indentation and without line numbers, or give the complete file"
    )


def _defines(source: str, name: str) -> bool:
    """Say whether a source defines a function, or calls it."""
    return re.search(rf"\b{name}\s*\(", source) is not None


def _file_of(text: str, functions: tuple[str, ...]) -> str:
    """Return the one fenced block that defines all functions."""
    blocks = _blocks(text)
    files = [block for block in blocks if all(_defines(block, name) for name in functions)]
    if len(files) == 1:
        return files[0]
    wanted = _named(functions)
    if not files:
        raise MalformedReply(
            f"no fenced block defines {wanted}: give the complete file in one block, nothing left "
            "out"
        )
    distinct = {"".join(block.split()) for block in files}
    if len(distinct) == 1:
        return files[0]
    raise MalformedReply(
        f"{len(files)} different fenced blocks define {wanted}: give the complete file in one"
    )


def _named(functions: tuple[str, ...]) -> str:
    return "launch()" if functions == ("launch",) else ", ".join(functions)


def _blocks(text: str) -> list[str]:
    """Return the contents of the fenced blocks.

    Raises:
        MalformedReply: the last one is not closed: the reply was cut off.
    """
    found = []
    opened: re.Match[str] | None = None
    for fence in _FENCE.finditer(text):
        if opened is None:
            opened = fence
        elif fence[1].startswith(opened[1]) and not fence[2]:
            found.append(text[opened.end() : fence.start()].strip("\n"))
            opened = None
    if opened is not None:
        raise MalformedReply(
            "the code block is not closed: the reply seems to be cut off; give the whole file "
            "again, more briefly where you can"
        )
    return found


def _require_whole(source: str, functions: tuple[str, ...]) -> None:
    """Refuse what is no complete file that defines the functions. Raises MalformedReply."""
    _require_complete(source)
    missing = tuple(name for name in functions if not _defines(source, name))
    if missing:
        raise MalformedReply(f"the file does not define {_named(missing)}")


def _require_complete(source: str) -> None:
    """Refuse what is no complete text of a file. Raises MalformedReply."""
    if found := _NOT_TEXT.search(source):
        line = source.count("\n", 0, found.start()) + 1
        raise MalformedReply(f"line {line} of the code holds a character that is no text")
    if len(source.encode()) > LARGEST_SOURCE_BYTES:
        raise MalformedReply(f"the code is longer than {LARGEST_SOURCE_BYTES} bytes")
    if omitted := _OMITTED.search(source):
        raise MalformedReply(
            f"code is left out at `{omitted[0].strip()[:SHOWN]}`: give the complete file, or edits"
        )


def _parameters(text: str) -> dict[str, Any]:
    """Return the values a reply says it used; empty where it says none that can be read."""
    said = _PARAMETERS.search(text)
    if said is None:
        return {}
    try:
        values = json.loads(said[1].rstrip("`* "))
    except (ValueError, RecursionError):
        return {}
    if not isinstance(values, dict):
        return {}
    return {name: value for name, value in list(values.items())[:8] if _is_plain(name, value)}


def _is_plain(name: str, value: Any) -> bool:
    if not isinstance(value, bool | int | float | str) or value != value:
        return False
    return all(len(text) <= 40 and text.isascii() for text in (name, str(value)))
