"""The kernels of a PTX file as a launch has to know them: parameters and launch bounds."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import takewhile
from math import prod

from ..vetting.ptx_statements import statements_of
from ..vetting.ptx_tokens import tokens_of

_BYTES = {f".{kind}{bits}": bits // 8 for kind in "busf" for bits in (8, 16, 32, 64)}
MOST_THREADS = 1024


@dataclass(frozen=True)
class Entry:
    """One kernel."""

    parameters: tuple[int, ...]
    """Bytes of each, in order."""
    max_threads: int
    """Of one block, by `__launch_bounds__`; 1024 without."""
    block: tuple[int, ...] | None = None
    """Threads of one block by axis, where no other launch is possible (`__block_size__`)."""
    waits: bool = False
    """Whether it, or a function that it may call, waits for the launch before it where that may
    still run."""


def read_entries(ptx: str) -> dict[str, Entry]:
    """Return the kernels of a PTX file (`ptx_tokens.read_ptx`), by mangled name.

    Raises NotPtx where it is none.
    """
    found, waiting = {}, set()
    for statement in statements_of(tokens_of(ptx)):
        words = [token.text for token in statement.tokens]
        if statement.word == "griddepcontrol" and ".wait" in statement.modifiers:
            waiting.add(statement.function)
        if not statement.function and ".entry" in words:
            name = words[words.index(".entry") + 1]
            found[name] = Entry(
                tuple(_sizes(words)), _threads(words), _numbers(words, ".reqntid") or None
            )
    shared = bool(waiting - found.keys())
    return {
        name: replace(entry, waits=shared or name in waiting) for name, entry in found.items()
    }


def _sizes(words: Sequence[str]) -> list[int]:
    """Return the bytes of each parameter between the brackets of a kernel's head."""
    sizes: list[int] = []
    for at, word in enumerate(words):
        if word == ".param":
            sizes.append(0)
        elif word in _BYTES:
            sizes[-1] = _BYTES[word]
        elif word == "[":
            sizes[-1] *= int(words[at + 1])
    return sizes


def _threads(words: Sequence[str]) -> int:
    given = _numbers(words, ".reqntid") or _numbers(words, ".maxntid")
    return prod(given) if given else MOST_THREADS


def _numbers(words: Sequence[str], directive: str) -> tuple[int, ...]:
    """Return what follows a directive, by axis; nothing where it is not there."""
    if directive not in words:
        return ()
    rest = words[words.index(directive) + 1 :]
    numbers = takewhile(lambda word: word == "," or word.isdigit(), rest)
    return tuple(int(word) for word in numbers if word != ",")
