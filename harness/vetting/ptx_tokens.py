"""Splits PTX into tokens as ptxas does; what ptxas takes for no token is refused.

What is said here of ptxas was tried on it (13.0): white space is space, tab, line feed, carriage
return and form feed; `//` ends at a line feed and nowhere else; block comments do not nest; a
string has no escapes and may hold line breaks; an opcode and each of its modifiers are tokens of
their own, so that a comment may stand between them; a directive ends with its operands, not with
its line. A line `# 1 "file"` is accepted by ptxas too, but nvcc writes none: refused.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

_TOKEN = re.compile(
    r"""(?P<space>(?:[ \t\r\f\n]+|//[^\n]*|/\*.*?\*/)+)
    |(?P<token>"[^"]*"
    |(?:0[fF][0-9A-Fa-f]{8}|0[dD][0-9A-Fa-f]{16}
       |\d+\.\d*(?:[eE][-+]?\d+)?|\.\d+(?:[eE][-+]?\d+)?|\d+[eE][-+]?\d+
       |(?:0[xX][0-9A-Fa-f]+|0[bB][01]+|0[0-7]*|[1-9]\d*)U?)(?![\w$%])
    |\.\w+(?:::\w+)*
    |[A-Za-z][\w$]*|[_$%][\w$]+
    |<<|>>|<=|>=|==|!=|&&|\|\||[-+*%@!,;:<>{}()\[\]=|&^~?_]|/(?!\*))""",
    re.DOTALL | re.ASCII | re.VERBOSE,
)
_MARKER = re.compile(r"^[ \t]*// (begin|end) inline asm$", re.MULTILINE)


class Token(NamedTuple):
    """A token of PTX: a word, a number, a string with its quotes, or a sign."""

    text: str
    line: int
    """1-based line of the PTX text on which it begins."""
    inline: bool = False
    """It stands in inline assembly, as nvcc's comments say; what stands there can say so too."""


class NotPtx(ValueError):
    """A text that ptxas, or nvcc, would not have written so."""

    def __init__(self, message: str, line: int) -> None:
        super().__init__(f"{message} (PTX line {line})")
        self.line = line
        """1-based line of the PTX text."""


def read_ptx(path: Path) -> str:
    """Return the text of a PTX file with its own line ends; ptxas knows no other bytes than ASCII.

    Raises OSError where it cannot be read.
    """
    return path.read_bytes().decode("ascii", errors="replace")


def tokens_of(text: str) -> list[Token]:
    """Return the tokens of PTX without comments.

    `text` must hold the file's own line ends (`read_ptx`): with universal newlines a carriage
    return would end a comment that goes on for ptxas.

    Raises:
        NotPtx: a place that is no token of PTX.
    """
    found: list[Token] = []
    at, line, inline = 0, 1, False
    while match := _TOKEN.match(text, at):
        read, at = match[0], match.end()
        if match.lastgroup == "token":
            found.append(Token(read, line, inline))
            if read[0] != '"':
                continue
        elif "inline asm" in read and (marks := _MARKER.findall(read)):
            inline = marks[-1] == "begin"
        line += read.count("\n")
    if at < len(text):
        raise NotPtx(f"no PTX: {text[at : at + 20].split(chr(10))[0]!r}", line)
    return found


def end_of_location(tokens: Sequence[Token], at: int) -> int:
    """Return where a `.loc` or `.file` that begins at a place of the tokens ends.

    Neither has a sign at its end: the next statement may stand behind it on its line.

    Raises:
        NotPtx: one that is not written as nvcc writes it.
    """
    words = [token.text for token in tokens[at : at + 16]]
    if words[0] == ".file":
        if _fits(words, 1, "1s"):
            return at + 3
    elif _fits(words, 1, "111"):
        end = 4
        if words[end : end + 2] == [",", "function_name"]:
            end += 3
            if words[end : end + 1] == ["+"]:
                end += 2
            if words[end : end + 2] != [",", "inlined_at"] or not _fits(words, end + 2, "111"):
                raise NotPtx(f"unknown form of {words[0]}", tokens[at].line)
            end += 5
        return at + end
    raise NotPtx(f"unknown form of {words[0]}", tokens[at].line)


def _fits(words: Sequence[str], at: int, form: str) -> bool:
    """Say whether words from a place on are numbers (1) and strings (s)."""
    found = words[at : at + len(form)]
    return len(found) == len(form) and all(
        word.isdigit() if kind == "1" else word.startswith('"')
        for word, kind in zip(found, form, strict=True)
    )
