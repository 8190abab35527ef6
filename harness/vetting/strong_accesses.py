"""The lines of a program whose accesses of memory are all strong: of two such, neither races.

The PTX memory model (PTX ISA, "Memory Consistency Model") calls atomics and relaxed, acquire and
release accesses strong. Compute Sanitizer takes a strong load or store of shared memory for a
plain one: in machine code it looks the same.
"""

from __future__ import annotations

from pathlib import PurePosixPath

from .ptx_statements import Statement, statements_of
from .ptx_tokens import tokens_of

_ATOMIC = ("atom", "red")
_STRONG = {".relaxed", ".acquire", ".release", ".acq_rel", ".mmio"}
"""Not `.volatile`, which is strong too: what is written so was mostly meant to need no order."""
_NOBODY_ELSES = {".param", ".local", ".const"}


def strong_lines(ptx: str) -> frozenset[tuple[str, int]]:
    """Return file (without its folder) and number of each such line. Raises NotPtx."""
    strong: dict[tuple[str, int], bool] = {}
    for statement in statements_of(tokens_of(ptx)):
        if _accesses(statement):
            line = PurePosixPath(statement.place.file).name, statement.place.number
            strong[line] = strong.get(line, True) and _is_strong(statement)
    return frozenset(line for line, all_strong in strong.items() if all_strong)


def _accesses(statement: Statement) -> bool:
    """Say whether an instruction has an operand in memory that others may see."""
    in_memory = bool(statement.function) and any(each.text == "[" for each in statement.tokens)
    return in_memory and not _NOBODY_ELSES & set(statement.modifiers)


def _is_strong(statement: Statement) -> bool:
    if statement.word in _ATOMIC:
        return True
    return statement.word in ("ld", "st") and bool(_STRONG & set(statement.modifiers))
