"""What a candidate's text must not do: read files, hide its lines, ask for the time."""

from __future__ import annotations

import re
from collections.abc import Iterator

from ..files import LARGEST_SOURCE_BYTES
from ..records import Diagnostic

_DIRECTIVE = re.compile(r"^[ \t]*(?:#|%:|\?\?=)[ \t]*(\w+)[ \t]*(.*)$")
_HOST_ASSEMBLY = re.compile(r"\b(?:asm|__asm|__asm__)\b[\s\w]*\(")
_SECTION = re.compile(
    r"(?:__attribute(?:__)?\s*\(\s*\(|\[\s*\[)[^;{}]*?\b(?:section|__section__)\s*\("
)
_PROBE = re.compile(r"__has_(?:include|include_next|embed)\s*\(\s*(?:[\"<]([^\">]*)[\">])?")
_LINE_MARKER = re.compile(r'^# (\d+)(?: "(.*)")?')


def check_source(source: str) -> tuple[Diagnostic, ...]:
    """Return why the text is not given to the compiler at all; empty where it may be."""
    size = len(source.encode("utf-8", "surrogatepass"))
    if not source.strip():
        return (Diagnostic(kind="compile_error", message="the source is empty"),)
    if size > LARGEST_SOURCE_BYTES:
        message = f"the source has {size} bytes; the limit is {LARGEST_SOURCE_BYTES}"
        return (Diagnostic(kind="compile_error", message=message),)
    for number, line in enumerate(source.split("\n"), 1):
        if re.search(r"[\x00-\x08\x0e-\x1f\x7f\ud800-\udfff]", line):
            message = "the source is not text: it holds control or undecodable characters"
            return (Diagnostic(kind="compile_error", message=message, line=number),)
    return tuple(_directives(source))


def _directives(source: str) -> Iterator[Diagnostic]:
    for number, line in logical_lines(source):
        for probe in _PROBE.finditer(line):
            if probe.group(1) is None or _leads_out(probe.group(1)):
                yield Diagnostic(
                    kind="forbidden_include",
                    message=f"{probe.group(0)[:80]}: only headers of the toolkit are asked for, by "
                    "their plain names: no absolute path and no `..`",
                    line=number,
                )
        match = _DIRECTIVE.match(line)
        if match is None:
            continue
        name, rest = match.group(1), match.group(2).strip()
        if name in ("include", "include_next", "import", "embed"):
            target = re.match(r"[\"<]([^\">]*)[\">]", rest)
            if target is None:
                reason = "a header is included by its plain name, not through a macro"
            elif _leads_out(target.group(1)):
                reason = "only headers of the toolkit and task.cuh: no absolute path and no `..`"
            else:
                continue
            yield Diagnostic(
                kind="forbidden_include", message=f"#{name} {rest[:80]}: {reason}", line=number
            )
        elif name == "line" or name.isdigit():
            yield Diagnostic(
                kind="forbidden_include",
                message=f"#{name}: a candidate may not rename its lines",
                line=number,
            )
    if re.search(r"\.incbin", source):
        yield Diagnostic(kind="forbidden_include", message=".incbin reads a file of the machine")


def _leads_out(header: str) -> bool:
    return header.startswith(("/", "\\", "~")) or ".." in header


def logical_lines(source: str) -> Iterator[tuple[int, str]]:
    """Yield (1-based first line, text) with spliced lines joined and comments blanked."""

    def blank(match: re.Match[str]) -> str:
        text = match.group(0)
        if text[0] in "\"'":
            return text
        return " " + "\n" * text.count("\n")

    # A splice is kept as a mark that no source can hold, so that line numbers survive.
    text = re.sub(r"\\[ \t]*\r?\n", "\x00", source)
    text = re.sub(
        r"\"(?:\\.|[^\"\\\n])*\"|'(?:\\.|[^'\\\n])*'|//[^\n]*|/\*.*?(?:\*/|\Z)",
        blank, text, flags=re.DOTALL,
    )  # fmt: skip
    number = 1
    for line in text.split("\n"):
        yield number, line.replace("\x00", "")
        number += 1 + line.count("\x00")


def host_assembly(host_source: str) -> tuple[Diagnostic, ...]:
    """Return one diagnostic for each line of the candidate's HOST code with machine code in it.

    `host_source` is what nvcc hands to the host compiler: device bodies stand in `#if 0` there.
    Assembly could make system calls, which leave no symbol to be seen; so could bytes that a
    `section` attribute puts among the code.
    """
    found: dict[int, Diagnostic] = {}
    lines = list(_host_lines(host_source))
    for number, line in lines:
        if _HOST_ASSEMBLY.search(line):
            found[number] = Diagnostic(
                kind="forbidden_symbol", message="inline assembly in host code", line=number
            )
    text = "\n".join(line for _, line in lines)
    for match in _SECTION.finditer(text):
        number = lines[text.count("\n", 0, match.end())][0]
        found[number] = Diagnostic(
            kind="forbidden_symbol", message="a section attribute in host code", line=number
        )
    return tuple(found[number] for number in sorted(found))


def _host_lines(host_source: str) -> Iterator[tuple[int, str]]:
    """Yield (line of the candidate, text) of the candidate's own host code.

    The body of a lambda in a kernel is a block of its own within the kernel's. No other line can
    begin with `#`: nvcc has preprocessed the text, and writes line breaks in strings as escapes.
    """
    of_candidate, skipping, number = False, 0, 0
    for line in host_source.splitlines():
        if not line.startswith("#"):
            if of_candidate and not skipping:
                yield number, line
        elif match := _LINE_MARKER.match(line):
            number = int(match.group(1))
            if match.group(2) is not None:
                of_candidate = match.group(2).rsplit("/", 1)[-1] == "candidate.cu"
            continue
        elif line.startswith("#if"):
            skipping += bool(skipping) or line.startswith("#if 0")
        elif line.startswith("#endif"):
            skipping = max(skipping - 1, 0)
        elif of_candidate and not skipping:
            yield number, line
        number += 1
