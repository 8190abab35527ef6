"""Splits PTX text into tokens, and finds the source line that each .loc directive stands for."""

from __future__ import annotations

import re
from collections.abc import Iterator

_TOKEN = re.compile(
    r'"[^"]*"'
    r"|0[fF][0-9A-Fa-f]{8}|0[dD][0-9A-Fa-f]{16}|0[xX][0-9A-Fa-f]+U?"
    r"|\d+\.\d+(?:[eE][-+]?\d+)?|\d+U?"
    r"|[%$_A-Za-z.][\w$.%]*(?:::[\w.]+)*"
    r"|[-+@!,;:<>{}()\[\]=|~]"
)
_LOCATION = re.compile(
    r"^[ \t]*\.loc\s+(\d+)\s+(\d+)\s+(\d+)"
    r"(?:[^\n]*?inlined_at\s+(\d+)\s+(\d+)\s+(\d+))?[^\n]*$",
    re.MULTILINE,
)
_FILE = re.compile(r'^[ \t]*\.file\s+(\d+)\s+"([^"]*)"[^\n]*$', re.MULTILINE)

_DECLARATIONS = (".reg.", ".param.", ".local.", ".shared.", ".const.", ".global.", ".align.")


def tokens_of(text: str) -> Iterator[tuple[str, int]]:
    """Yield (token, line of the text) without comments and debug sections.

    Each `.loc` becomes `.loc <outermost line or 0> <innermost line in the source file or 0> ;`.
    """
    text = re.sub(r"/\*.*?\*/", lambda match: "\n" * match[0].count("\n"), text, flags=re.DOTALL)
    # A path in a string may hold `//`: strings are kept whole.
    text = re.sub(r'("[^"\n]*")|//[^\n]*', lambda match: match[1] or "", text)
    sections = re.search(r"^\s*\.section\b", text, re.MULTILINE)
    if sections:
        text = text[: sections.start()]
    files = {int(number): name for number, name in _FILE.findall(text)}
    sources = sorted(number for number, name in files.items() if name.endswith(".cu"))
    source_file = sources[0] if sources else 1
    call_sites: dict[tuple[str, str, str], tuple[str, str, str]] = {}

    def outermost(match: re.Match[str]) -> str:
        here = (match[1], match[2], match[3])
        if match[4]:
            call_sites[here] = (match[4], match[5], match[6])
        else:
            call_sites.pop(here, None)
        # Inlining nests: the call site may itself have been inlined, as an earlier .loc says.
        inner = "0"
        for _ in range(64):
            if inner == "0" and int(here[0]) == source_file:
                inner = here[1]
            if here not in call_sites:
                break
            here = call_sites[here]
        return f" .loc {here[1] if int(here[0]) == source_file else 0} {inner} ;"

    text = _LOCATION.sub(outermost, text)
    text = _FILE.sub("", text)
    for number, line in enumerate(text.split("\n"), 1):
        for token in _TOKEN.findall(line):
            if token.startswith(_DECLARATIONS):
                # Inline assembly writes `.reg.b32 f` without a space, nvcc `.reg .b32 f`.
                for word in re.findall(r"\.\w+", token):
                    yield word, number
            else:
                yield token, number


def joined(tokens: list[str]) -> str:
    """Put tokens together again as one readable line."""
    text = " ".join(tokens)
    text = re.sub(r" ([,;\])}>])", r"\1", text)
    return re.sub(r"([@!\[({<-]) ", r"\1", text)
