"""What a candidate's text must not do, said before anything is compiled: a plain, early answer.

What holds is decided elsewhere: the compiler reaches no file that it should not (build/compiling),
and assembly, sections and device code are judged on what was built. A source that gets past the
reading here, which is not GCC's to the letter, gains nothing.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from ..files import LARGEST_SOURCE_BYTES
from ..records.builds import Diagnostic

_NOT_TEXT = re.compile(r"[\x00-\x08\x0e-\x1f\x7f\ud800-\udfff]")
_DIRECTIVE = re.compile(r"[ \t\f\v\r]*(?:#|%:)[ \t\f\v\r]*(\w+)[ \t\f\v\r]*(.*)")
_PROBE = re.compile(
    r"__has_(?:include|include_next|embed)[ \t]{0,9}\([ \t]{0,9}"
    r"(?:\"([^\"\n]{1,300})\"|<([^>\n]{1,300})>)"
)
_SPLICE = re.compile(r"\\[ \t\f\v]*\r?\n")
_PIECE = re.compile(
    r"(?P<raw>(?<!\w)(?:u8|[uUL])?R\"(?P<mark>[^()\\\s\"]{0,16})\()"
    r"|(?P<string>\"(?:\\.|[^\"\\\n])*\"?|'(?:\\.|[^'\\\n])*'?)"
    r"|(?P<comment>//[^\n]*|/\*.*?(?:\*/|\Z))"
    r"|\.?\d(?:'?[\w.])*"  # a number, with the quotes that separate its digits
    r"|\w+",
    re.DOTALL,
)
_RENAMES = re.compile(r"(?:^|\*/)[ \t\f\v\r]*(?:#|%:)[ \t\f\v\r]*(?:\d|line\b|/\*)", re.MULTILINE)
_MADE_BY_A_MACRO = re.compile(rb"\n(?:[ \t\f\v]+(?:#|%:)|%:)[^\n]{0,200}")


def check_source(source: str) -> tuple[Diagnostic, ...]:
    """Return why the text is not given to the compiler at all; empty where it may be."""
    size = len(source.encode("utf-8", "surrogatepass"))
    if not source.strip():
        return (Diagnostic(kind="compile_error", message="the source is empty"),)
    if size > LARGEST_SOURCE_BYTES:
        message = f"the source has {size} bytes; the limit is {LARGEST_SOURCE_BYTES}"
        return (Diagnostic(kind="compile_error", message=message),)
    if found := _NOT_TEXT.search(source):
        message = "the source is not text: it holds control or undecodable characters"
        line = source.count("\n", 0, found.start()) + 1
        return (Diagnostic(kind="compile_error", message=message, line=line),)
    return tuple(_directives(source))


def _directives(source: str) -> Iterator[Diagnostic]:
    for number, line in logical_lines(source):
        for probe in _PROBE.finditer(line):
            if _leads_out(probe[1] or probe[2]):
                yield Diagnostic(
                    kind="forbidden_include",
                    message=f"{probe[0][:80]}: only headers of the toolkit are asked for, by "
                    "their plain names: no absolute path and no `..`",
                    line=number,
                )
        match = _DIRECTIVE.match(line)
        if match is None:
            continue
        name, rest = match[1], match[2].strip()
        if name in ("include", "include_next", "import", "embed"):
            target = re.match(r"[\"<]([^\">]*)", rest)
            if target and _leads_out(target[1]):
                yield Diagnostic(
                    kind="forbidden_include",
                    message=f"#{name} {rest[:160]}: only headers of the toolkit and task.cuh: no "
                    "absolute path and no `..`",
                    line=number,
                )
        elif name == "line" or name.isdigit():
            yield Diagnostic(
                kind="forbidden_include",
                message=f"#{name}: a candidate may not rename its lines",
                line=number,
            )


def _leads_out(header: str) -> bool:
    return header.startswith(("/", "\\", "~")) or ".." in header


def may_rename_lines(source: str) -> bool:
    """Say whether the compiler may take other files and lines for this source's than it stands in.

    Whatever it might read as a `#line` counts, in comments and strings too: who asks then believes
    no file's name, which costs an honest source nothing.
    """
    return _RENAMES.search(_SPLICE.sub("", source)) is not None


def macro_directive(preprocessed: bytes) -> Diagnostic | None:
    """Return a refusal where preprocessing left a directive, which the next compiler would obey.

    GCC sets what a macro made of `#` apart by a space; its own lines begin at the first column.
    """
    found = _MADE_BY_A_MACRO.search(preprocessed)
    if found is None:
        return None
    words = found[0].decode("utf-8", "replace").strip()
    return Diagnostic(
        kind="forbidden_include", message=f"{words}: a directive that a macro or a string makes"
    )


def logical_lines(source: str) -> Iterator[tuple[int, str]]:
    """Yield (1-based first line, text) with spliced lines joined and comments blanked.

    Of a raw string only its lines are left.
    """
    # A splice is kept as a mark that no source can hold, so that line numbers survive.
    number = 1
    for line in _without_comments(_SPLICE.sub("\x00", source)).split("\n"):
        yield number, line.replace("\x00", "")
        number += 1 + line.count("\x00")


def _without_comments(text: str) -> str:
    """Return the text with comments blanked and raw strings emptied; takes time as its length."""
    kept: list[str] = []
    at = 0
    while match := _PIECE.search(text, at):
        kept.append(text[at : match.start()])
        at = match.end()
        if match["raw"] is not None:
            ends = text.find(f'){match["mark"]}"', at)
            at = len(text) if ends < 0 else ends + len(match["mark"]) + 2
            kept.append('""' + _breaks(text[match.start() : at]))
        elif match["comment"] is not None:
            kept.append(" " + _breaks(match[0]))
        else:
            kept.append(match[0])
    kept.append(text[at:])
    return "".join(kept)


def _breaks(text: str) -> str:
    """Return the line breaks of a text, and its marks of splices."""
    return "\n" * text.count("\n") + "\x00" * text.count("\x00")
