"""What a candidate's device code must not do: read the GPU's clocks, keep memory, keep L2 lines.

And what its PTX must not hold: directives that nvcc does not write where they stand. Comments and
.loc tell lines for messages; inline assembly can write both, so no verdict rests on either alone.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from ..records.builds import Diagnostic
from .clock_flow import CLOCK, depends_on_clock
from .ptx_statements import Statement, register_name, statements_of
from .ptx_tokens import NotPtx, Token, end_of_location, tokens_of

_OWN_PLACES = re.compile(
    r"\.(?:loc|file)[ \t]*(?:\d|\\|/\*)|//[^\n]{0,9}(?:begin|end) inline asm"
)
_WAITING = ("/cuda/std/__thread/threading_support.h", "/cuda/std/__thread/threading_support_cuda.h",
            "/cuda/std/__cuda/chrono.h")  # fmt: skip
"""Files of the toolkit whose loops sleep while they wait (barriers, pipelines, atomics)."""
_SAFE_POLICIES = frozenset(
    # L2::evict_first and L2::evict_normal, as the toolkit and CUTLASS encode them
    {0x12F0000000000000, 0x10F0000000000000, 0x1000000000000000}
)
_HEAD = (".version", ".target", ".address_size")
_OUTSIDE = frozenset((
    ".visible", ".weak", ".extern", ".common", ".entry", ".func", ".global", ".const", ".shared",
    ".file", ".section",
))  # fmt: skip
_INSIDE = frozenset((".reg", ".param", ".shared", ".local", ".pragma", ".branchtargets",
                     ".calltargets", ".callprototype"))  # fmt: skip
_INLINE = frozenset((".reg", ".pragma"))
"""Directives of honest inline assembly: its own registers, and hints to ptxas."""


def device_code(ptx: str, files_are_known: bool = True) -> tuple[Diagnostic, ...]:
    """Return one diagnostic for each line of the candidate's DEVICE code that may not be there.

    Reading the GPU's clock, in whatever file, but for the toolkit's own waiting loops, and there
    too where anything but sleep depends on it; the device's heap: what it holds outlives the
    candidate, and no other than its kernels sees it; lines of the L2 that are to stay: they outlive
    a flush, and the next timed call finds them; directives that nvcc does not write.

    Args:
        ptx: the text with its own line ends (`ptx_tokens.read_ptx`).
        files_are_known: the source cannot have renamed its lines; else no file is the toolkit's.
    """
    try:
        tokens = tokens_of(ptx)
        statements = list(statements_of(tokens))
    except (NotPtx, LookupError, StopIteration) as problem:
        return (_diagnostic(f"PTX as nvcc does not write it: {problem}", None),)
    found: dict[tuple[str, int | None], None] = {}
    if "\r" in ptx.replace("\r\n", "\n"):
        found["PTX as nvcc does not write it: a carriage return within a line", None] = None
    for message, line in (
        *_directives(tokens, statements),
        *_clocks(statements, files_are_known),
        *_memory(statements),
    ):
        found[message, line] = None
    for policy in _unknown_policies(statements):
        words = "persisting-L2 tricks: a cache hint that is not evict_first or evict_normal"
        found[f"{words} ({policy})", None] = None
    return tuple(_diagnostic(message, line) for message, line in found)


def names_its_own_places(device_source: str) -> bool:
    """Say whether inline assembly may tell false places: the text is device code as nvcc reads it.

    Adjacent strings are one there, and no macro is left.
    """
    return _OWN_PLACES.search(device_source) is not None


def _diagnostic(message: str, line: int | None) -> Diagnostic:
    return Diagnostic(kind="forbidden_symbol", message=message, line=line)


_Found = Iterator[tuple[str, int | None]]


def _directives(tokens: Sequence[Token], statements: Sequence[Statement]) -> _Found:
    """Yield each directive that nvcc does not write where it stands."""
    yield from _shared_lines(tokens)
    inline_depth = 0
    files = False
    for number, statement in enumerate(statements):
        word, line = statement.word, statement.place.line
        inline = bool(statement.tokens) and statement.tokens[0].inline
        if not statement.function:
            known = word == _HEAD[number] if number < len(_HEAD) else word in _OUTSIDE
            if inline or not known or (files and word not in (".file", ".section")):
                yield f"{word or ';'} outside of functions: nvcc writes none there", line
            files = files or word == ".file"
        elif word in ("{", "}"):
            inline_depth = inline_depth + (1 if word == "{" else -1) if inline else 0
            if inline_depth < 0:
                yield "} in inline assembly closes what it did not open", line
        elif word.startswith(".") and word not in (_INLINE if inline else _INSIDE):
            if inline:
                yield f"{word} in inline assembly: only .reg and .pragma may stand there", line
            else:
                yield f"{word} in a function: nvcc writes none there", line


def _shared_lines(tokens: Sequence[Token]) -> _Found:
    """Yield each .loc or .file with something beside it, and each that is inline assembly's own."""
    for at, token in enumerate(tokens):
        if token.text not in (".loc", ".file"):
            continue
        try:
            end = end_of_location(tokens, at)
        except NotPtx:
            end = at
        alone = end > at and (at == 0 or tokens[at - 1].line < token.line)
        alone = alone and (end == len(tokens) or tokens[end].line > tokens[end - 1].line)
        if token.inline or not alone:
            words = " ".join(each.text for each in tokens[at : at + 8])
            yield f"{words[:60]}: only nvcc writes {token.text}, on a line of its own", None


def _clocks(statements: Sequence[Statement], files_are_known: bool) -> _Found:
    bodies: dict[str, list[Statement]] = {}
    for statement in statements:
        if statement.function:
            bodies.setdefault(statement.function, []).append(statement)
    for body in bodies.values():
        reads = [(statement, token.text) for statement in body for token in statement.tokens
                 if CLOCK.match(token.text)]  # fmt: skip
        seen = False
        for statement, name in reads:
            file, _, caller, line = statement.place
            waiting = file.endswith(_WAITING) and caller.endswith(_WAITING)
            if not (files_are_known and waiting):
                seen = True
                yield f"{name}: device code reads the GPU's clock", line
        if reads and not seen and (acts := depends_on_clock(body)):
            words = f"{acts.word} depends on {reads[0][1]}"
            yield f"{words}: device code acts by the GPU's clock", acts.place.line


def _memory(statements: Sequence[Statement]) -> _Found:
    for statement in statements:
        line = statement.place.line
        if not statement.function:
            continue
        if any(".L2::evict_last" in word for word in statement.modifiers):
            yield "L2::evict_last: persisting-L2 tricks: its lines outlive a flush", line
        for operand in statement.operands:
            if operand in (["malloc"], ["free"]):
                words = "device memory is not for a candidate to manage: use the workspace"
                yield f"{operand[0]} in device code: {words}", line


def _unknown_policies(statements: Sequence[Statement]) -> Iterator[str]:
    """Yield the policies of cache hints that may be others than those that are harmless.

    A policy is known where all that is ever moved into its register is a harmless number or comes
    from createpolicy; registers are numbered afresh in each function, which only adds to what must
    be harmless.
    """
    sources: dict[str, list[str]] = {}
    hints: dict[str, None] = {}
    for statement in statements:
        operands = statement.operands
        if not statement.function or not operands or statement.word.startswith("."):
            continue
        last = register_name("".join(operands[-1]))
        if ".L2::cache_hint" in statement.modifiers:
            hints[last] = None
        safe = statement.word == "createpolicy" and ".cvt" not in statement.modifiers
        moved = statement.word == "mov" and len(operands) == 2
        for word in operands[0]:
            source = "created" if safe else last if moved else "computed"
            sources.setdefault(register_name(word), []).append(source)
    for hint in hints:
        if not _harmless(hint, sources):
            yield hint


def _harmless(hint: str, sources: dict[str, list[str]]) -> bool:
    seen: set[str] = set()
    waiting = [hint]
    while waiting:
        value = waiting.pop()
        if value == "created" or value in seen:
            continue
        try:
            safe = int(value.rstrip("U"), 0) & (1 << 64) - 1 in _SAFE_POLICIES
        except ValueError:
            seen.add(value)
            safe = value in sources
            waiting += sources.get(value, ())
        if not safe:
            return False
    return True
