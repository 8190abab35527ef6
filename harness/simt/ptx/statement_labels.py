"""Numbers every PTX statement as a source line, so that machine code names its statement."""

from __future__ import annotations

import re

_COMMENT = re.compile(r'("[^"\n]*")|//[^\n]*|/\*.*?\*/', re.DOTALL)
_LOCATION = re.compile(r"^\s*\.(?:loc|file)\s[^\n]*$", re.MULTILINE)
_SECTION = re.compile(r"^\s*\.section\b", re.MULTILINE)
_LABEL = re.compile(r"[\w$%]+\s*:(?!:)")
_BODY = re.compile(r"\.(?:entry|func)\b")
_HEAD = re.compile(r"\.address_size\s+\d+")


def label_statements(text: str) -> str:
    """Return PTX whose n-th executable statement stands on line n of an imagined file.

    Parsing the result gives each instruction that number as its line, and ptxas carries the number
    into the line table of the machine code; the code itself is the same.
    """
    text = _COMMENT.sub(lambda match: match[1] or " ", text)
    if debug := _SECTION.search(text):
        text = text[: debug.start()]
    text = _LOCATION.sub("", text)
    out: list[str] = []
    at = number = depth = 0
    while at < len(text):
        character = text[at]
        if character.isspace() or (depth and character in "{};"):
            depth += (character == "{") - (character == "}")
            out.append(character)
            at += 1
        elif depth == 0:
            at, depth = _outside(text, at, out)
        elif label := _LABEL.match(text, at):
            out.append(label[0])
            at = label.end()
        else:
            end = text.index(";", at) + 1
            if character != ".":
                number += 1
                out.append(f"\n.loc 1 {number} 1\n")
            out.append(text[at:end])
            at = end
    return "".join(out)


def _outside(text: str, at: int, out: list[str]) -> tuple[int, int]:
    """Copy one directive outside of functions; return where it ends, and 1 inside a body."""
    if head := _HEAD.match(text, at):
        out.append(head[0] + '\n.file 1 "statements"')
        return head.end(), 0
    if text.startswith((".version", ".target"), at):
        end = text.index("\n", at)
        out.append(text[at:end])
        return end, 0
    ends = re.compile(r"[;{]")
    stop = ends.search(text, at)
    if stop is None:
        out.append(text[at:])
        return len(text), 0
    if stop[0] == "{" and _BODY.search(text, at, stop.start()):
        out.append(text[at : stop.end()])
        return stop.end(), 1
    end = text.index(";", at) + 1
    out.append(text[at:end])
    return end, 0
