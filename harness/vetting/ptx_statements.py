"""The statements of a PTX file, and where each stands: enough to say what may not be there."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from .ptx_tokens import Token, end_of_location

_ALONE = (".version", ".address_size", ".target")
_CANDIDATE = re.compile(r'(?:^"|/)candidate\.cu"$')

class Place(NamedTuple):
    """Where an instruction stands; as the last .loc says, which may be inline assembly's own."""

    file: str
    number: int
    """Of the line in that file."""
    caller: str
    """File it was inlined into; "" for none."""
    line: int | None
    """Of the candidate."""


class Statement(NamedTuple):
    """A directive, an instruction, or a brace of a function."""

    tokens: tuple[Token, ...]
    """Without the semicolon, and without labels before it."""
    labels: tuple[str, ...]
    """Labels before it."""
    function: str
    """Name of the function whose body it is in; empty outside of functions."""
    place: Place

    @property
    def word(self) -> str:
        """The directive or the opcode, behind a guard; empty where there is none."""
        at = _guard_length(self.tokens)
        return self.tokens[at].text if at < len(self.tokens) else ""

    @property
    def guard(self) -> str:
        """The register of its guard; empty without one."""
        length = _guard_length(self.tokens)
        return register_name(self.tokens[length - 1].text) if length else ""

    @property
    def modifiers(self) -> tuple[str, ...]:
        """Modifiers of an instruction, each with its dot."""
        return tuple(token.text for token in self.tokens[self._named() : self._begun()])

    @property
    def operands(self) -> list[list[str]]:
        """The words of each operand; commas within brackets part nothing."""
        found: list[list[str]] = [[]]
        depth = 0
        for token in self.tokens[self._begun() :]:
            depth += token.text in "{[("
            depth -= token.text in "}])"
            if token.text == "," and not depth:
                found.append([])
            else:
                found[-1].append(token.text)
        return found if found != [[]] else []

    def _named(self) -> int:
        return _guard_length(self.tokens) + 1

    def _begun(self) -> int:
        at = self._named()
        while at < len(self.tokens) and self.tokens[at].text.startswith("."):
            at += 1
        return at


def register_name(word: str) -> str:
    """Return one name for all spellings of a register: ptxas takes %r01 for %r1."""
    return word if word[:1].isdigit() else re.sub(r"(?<!\d)0+(?=\d+$)", "", word)


def statements_of(tokens: Sequence[Token]) -> Iterator[Statement]:
    """Yield the statements in order. A text that ends in the middle of one yields what there is."""
    files = {
        tokens[at + 1].text: tokens[at + 2].text
        for at, token in enumerate(tokens[:-2])
        if token.text == ".file"
    }
    at = depth = 0
    function, labels = "", list[str]()
    place = Place("", 0, "", None)
    while at < len(tokens):
        word, start = tokens[at].text, at
        if depth and word not in "{}" and at + 1 < len(tokens) and tokens[at + 1].text == ":":
            labels.append(word)
            at += 2
            continue
        if word in (".loc", ".file"):
            at = end_of_location(tokens, at)
        elif depth and word in "{}":
            depth += 1 if word == "{" else -1
            at += 1
        elif word in _ALONE:
            at += 2
            while at < len(tokens) and tokens[at].text == ",":
                at += 2
        else:
            at = _end(tokens, at, {"{", ";"} if depth == 0 else {";"})
            head = {token.text for token in tokens[start:at]}
            opened = at < len(tokens) and tokens[at].text == "{"
            if opened and depth == 0 and not head & {".entry", ".func"}:
                at = _end(tokens, at, {"}" if ".section" in head else ";"})
            elif opened and depth == 0:
                depth, function = 1, _function_name(tokens[start:at])
            taken = tuple(tokens[start:at])
            at += 1
            yield Statement(taken, tuple(labels), "" if opened else function, place)
            labels = []
            continue
        taken = tuple(tokens[start:at])
        if word == ".loc":
            place = _place(taken, files)
        else:
            yield Statement(taken, tuple(labels), function, place)
            labels = []
        if depth == 0:
            function = ""


def _end(tokens: Sequence[Token], at: int, ends: set[str]) -> int:
    while at < len(tokens) and tokens[at].text not in ends:
        at += 1
    return at


def _guard_length(tokens: Sequence[Token]) -> int:
    if not tokens or tokens[0].text != "@":
        return 0
    return min(len(tokens), 3 if tokens[1:2] and tokens[1].text == "!" else 2)


def _function_name(head: Sequence[Token]) -> str:
    """Return the name in `.visible .entry name (...)` or `.func (results) name (...)`."""
    words = [token.text for token in head]
    at = next(i for i, word in enumerate(words) if word in (".entry", ".func")) + 1
    if words[at] == "(":
        at = words.index(")", at) + 1
    return words[at]


def _place(location: Sequence[Token], files: dict[str, str]) -> Place:
    words = [token.text for token in location]
    file, line, caller, call = files.get(words[1], ""), words[2], "", ""
    if "inlined_at" in words:
        caller, call = files.get(words[-3], ""), words[-2]
    places = ((caller, call), (file, line))
    here = [int(number) for name, number in places if _CANDIDATE.search(name)]
    return Place(file.strip('"'), int(line), caller.strip('"'), here[-1] if here else None)
