"""Calls a candidate as if it had been called often: what it counts on the device is set forward.

A kernel may keep numbers in variables of the device from call to call. Of a few calls on the same
input those that count calls are known by their steps; a call that finds them after millions of
steps must still give the same answer.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from ..ptx.records import Immediate
from .candidate import Candidate

CALLS = (5_040_000, 50_400, 5_040, 720)
"""Calls to set forward by, of which the first is taken that no counter is too small for: what
happens every few calls happens at a multiple of any of these, or just before."""
PLAIN_CALLS = 60
"""Calls one after the other beside these, where they are little work: a counter may be one that
begins anew after fifty."""
PLAIN_INSTRUCTIONS = 20_000_000
"""Warp instructions that they may take together."""
BESIDE = 3
"""Calls where a counter comes to a number that the code names: before, at and behind it."""
MOST_NUMBERS = 64
"""Numbers named in the code that counters are set before."""
_COMPARES = ("setp", "set", "rem", "sub", "xor", "selp", "min", "max", "add", "and", "mad")
"""What may tell one number from others."""
LEAST_FLOAT = 1e-30
"""Smaller ones are whole numbers that look like one."""
NO_NUMBER = 0x7FF1BEEF
"""Stands where calls leave something else each time, in no even steps: no answer may hang on it."""

Words = NDArray[np.uint32]


def kept_words(candidate: Candidate) -> list[Words]:
    """Return a copy of what each variable of the device holds, in whole words."""
    found = []
    for view in _variables(candidate):
        whole = np.zeros(-(-view.size // 4) * 4, np.uint8)
        whole[: view.size] = view
        found.append(whole.view(np.uint32))
    return found


def put_back(candidate: Candidate, kept: Sequence[Words]) -> None:
    """Let the variables of the device hold what `kept_words` returned, or `set_forward`."""
    for view, words in zip(_variables(candidate), kept, strict=True):
        view[:] = words.view(np.uint8)[: view.size]


def is_as_kept(candidate: Candidate, kept: Sequence[Words]) -> bool:
    """Say whether the variables of the device hold what they did."""
    return all(map(np.array_equal, kept_words(candidate), kept))


def set_forward(calls: Sequence[Sequence[Words]]) -> list[Words] | None:
    """Return what variables hold before a call with a high number, by what the first three calls on
    one input left; None where all is as it was, or takes turns between two states.
    """
    each = [_Steps(*kept) for kept in zip(*calls, strict=True)]
    if not any(found.moves for found in each):
        return None
    room = (count for count in CALLS if all(found.has_room(count - 4) for found in each))
    count = next(room, CALLS[-1]) - 4
    return [found.after(count) for found in each]


def named_numbers(candidate: Candidate) -> list[int]:
    """Return the whole numbers, beyond those that plain calls come to, that a kernel's code names.

    What happens at one call of many is told from the others by a number, mostly written there.
    """
    found = {
        operand.bits & 0xFFFFFFFF
        for instruction in candidate.module.instructions
        if instruction.opcode in _COMPARES
        for operand in instruction.operands
        if isinstance(operand, Immediate) and operand.kind == "integer"
    }
    return sorted(number for number in found if PLAIN_CALLS < number < 1 << 31)[:MOST_NUMBERS]


def set_before(calls: Sequence[Sequence[Words]], number: int) -> list[Words] | None:
    """Return what variables hold where each counter comes to a number within the next call but one.

    By what three calls left, as in `set_forward`; None where none goes on by whole numbers.
    """
    each = [_Steps(*kept) for kept in zip(*calls, strict=True)]
    if not any(found.counts for found in each):
        return None
    return [found.before(number) for found in each]


class _Steps:
    """How the words of one variable go on from call to call."""

    def __init__(self, first: Words, second: Words, third: Words) -> None:
        self._now = third
        # A sum that another order of blocks rounds otherwise is back with the first order.
        changed = ((first != second) | (second != third)) & (first != third)
        step = np.where(third - second == second - first, third - second, 0)
        self._step = step.view(np.int32).astype(np.int64)
        with np.errstate(all="ignore"):
            before, between, now = (
                words.view(np.float32).astype(np.float64) for words in (first, second, third)
            )
            self._float_step = now - between
            even = (self._float_step == between - before) & (np.abs(now) > LEAST_FLOAT)
        self._float_counts = changed & even & (self._float_step != 0)
        self._counts = changed & ~self._float_counts & (self._step != 0)
        self._others = changed & ~self._float_counts & ~self._counts
        self.moves = bool(changed.any())
        self.counts = bool((self._counts | self._others).any())

    def has_room(self, count: int) -> bool:
        """Say whether no counter comes to its end within so many calls."""
        return not (self._counts & self._ends(count)).any()

    def after(self, count: int) -> Words:
        """Return the words after so many calls."""
        words = (self._now.astype(np.int64) + count * self._step).astype(np.uint32)
        with np.errstate(all="ignore"):
            floats = self._now.view(np.float32) + count * self._float_step
            floats = np.where(self._float_counts, floats, 0).astype(np.float32)
        found = np.where(self._counts, words, self._now)
        found = np.where(self._float_counts, floats.view(np.uint32), found)
        unknown = self._others | (self._counts & self._ends(count))
        return np.where(unknown, np.uint32(NO_NUMBER), found)

    def before(self, number: int) -> Words:
        """Return the words where counters stand two steps before a number, or where they stood.

        What goes on by no even steps, as a register that is shifted does, is that number.
        """
        now, step = self._now.astype(np.int64), np.where(self._counts, self._step, 1)
        turns = np.maximum((number - now) // step - 1, 0)
        counted = np.where(self._counts, now + turns * self._step, now).astype(np.uint32)
        return np.where(self._others, np.uint32(number), counted)

    def _ends(self, count: int) -> NDArray[np.bool_]:
        ends: NDArray[np.int64] = np.abs(self._now.view(np.int32) + count * self._step)
        return ends >= 1 << 31


def _variables(candidate: Candidate) -> list[NDArray[np.uint8]]:
    arena, places = candidate.arena, set(candidate.addresses.values())
    return [arena.view(each) for each in arena.allocations if each.address in places]
