"""How many clocks one warp needs alone: a scoreboard over the machine code it goes through.

A warp issues in order and stops at the first instruction whose operands are not there, so the
loads in flight are those of ptxas' own schedule. Of several in flight each takes a time of its own:
the more there are, the later the last of them is expected.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Callable, Sequence
from functools import cache
from statistics import NormalDist

from .counts import is_of_ptxas, leaving
from .listing import MachineCode, MachineInstruction
from .mix import latency_of, reads_by_register, registers_of

BARRIER_CLOCKS = 12.0
BRANCH_CLOCKS = 6.0
_MOST_LEVELS = 8
"""Loops around more levels of loops that turn are gone through once: each doubles the work."""
_ONCE = 0.9
"""A loop of which so many turns are the first since it was come to is none that turns."""
_GROUPS = re.compile(r"SB\d, (0x[0-9a-f]+|\d+)")
_LOADS = ("LDG", "LD", "ATOMG", "ATOM", "LDGSTS")
_COPIES, _WAITED = "@copies", "@waited"
"""When the last of the asynchronous copies will be there, and when they were last waited for."""
_Step = tuple[
    tuple[str, ...], tuple[str, ...], float, float, float, tuple[tuple[str, float], ...], int
]
"""Registers written and read, latency, further clocks of issue, spread of a global load, what a
share of it waits for beside its latency, and how many groups of copies may still be on their way
behind it (-1 where it waits for none)."""


def machine_chain_clocks(
    code: MachineCode,
    executions: Sequence[float],
    warps: float,
    load_latency: Callable[[int], float],
    load_spread: Callable[[int], float] = lambda statement: 0.0,
    constant_wait: Callable[[int], float] = lambda statement: 0.0,
    echo_of: Callable[[int], int] = lambda statement: 0,
    flight_of: Callable[[int], tuple[int, float]] = lambda statement: (0, 0.0),
) -> float:
    """Return the clocks between the first instruction of an average warp and its last result.

    Args:
        code: the kernel's machine code.
        executions: how often each block ran (counts.py).
        warps: warps that start the kernel.
        load_latency: clocks of the global load of a statement.
        load_spread: standard deviation of that.
        constant_wait: clocks that a statement's read of constant memory takes beyond that of one
            word, where its lanes name several.
        echo_of: the statement of the load that has asked for the same just before, 0 for none: what
            is on its way already comes no sooner.
        flight_of: the statement of the load by which another warp has asked for a share of the same
            just before, and the share; 0 for none.
    """
    turns = [count / warps if warps else 0.0 for count in executions]
    steps: list[list[_Step]] = []
    for index, block in enumerate(code.blocks):
        steps.append([])
        if turns[index] > 1e-6 and not is_of_ptxas(block.function):
            asked = _asked_in_order(block.instructions, echo_of)
            before: set[int] = set()
            for each in block.instructions:
                flight = flight_of(each.statement)
                steps[index].append(_step(each, load_latency, load_spread, constant_wait, asked,
                                          (*flight, flight[0] in before)))  # fmt: skip
                if each.base in _LOADS:
                    before.add(each.statement)
    walk = _Walk(code, turns, steps)
    walk.through(0, len(steps) - 1, 1.0)
    return walk.clocks + max(0.0, max(walk.ready.values(), default=walk.now) - walk.now)


class _Walk:
    """An average warp's way through the blocks, and when what it has begun will be there."""

    def __init__(
        self, code: MachineCode, turns: Sequence[float], steps: Sequence[Sequence[_Step]]
    ) -> None:
        self._code, self._turns, self._steps = code, turns, steps
        loops = {loop for each in code.blocks for loop in each.loops}
        # Known before the walk, which comes to a loop as often as those around it double.
        self._entered = {loop: _entered(code, turns, *loop) for loop in loops}
        self._first_turns = {loop: self._counted_as_first(*loop) for loop in loops}
        self._flying: list[float] = []
        self.ready: dict[str, float] = {}
        self.now = self.clocks = 0.0

    def through(self, first: int, last: int, share: float) -> None:
        """Go once from block to block, and twice through each loop among them.

        The first turn of a loop waits for what was begun before the loop, those after it for what
        the turn before has begun. Loops inside do the same in either: what was begun before a nest
        of loops is waited for once, in the first turn of all.

        Args:
            first, last: the blocks; a loop's stand for one turn of it.
            share: how much of their executions is counted.
        """
        index = first
        while index <= last:
            end = self._end_of_loop(index)
            if end is None or end > last or (index, end) == (first, last):
                after = _run(self._steps[index], self.ready, self._flying, self.now)
                self.clocks += (after - self.now) * self._turns[index] * share
                self.now, index = after, index + 1
                continue
            came = self._first_turns[index, end]
            self.through(index, end, share * came)
            if came < 1.0:
                self.through(index, end, share * (1.0 - came))
            index = end + 1

    def _end_of_loop(self, index: int) -> int | None:
        """Return the last block of the loop that begins with a block."""
        around = self._code.blocks[index].loops
        return next((last for first, last in around if first == index), None)

    def _counted_as_first(self, first: int, last: int) -> float:
        """Return the share of a loop's turns that are counted as the first since it was come to."""
        blocks = self._code.blocks
        inside = (
            each.loops[: each.loops.index((first, last))] for each in blocks[first : last + 1]
        )
        levels = max(sum(self._entered[loop] < _ONCE for loop in loops) for loops in inside)
        came = self._entered[first, last]
        return 1.0 if came >= _ONCE or levels >= _MOST_LEVELS else came


def _entered(code: MachineCode, turns: Sequence[float], first: int, last: int) -> float:
    """Return the share of a loop's turns that are the first since it was come to."""
    if not turns[first]:
        return 1.0
    before = [at for at in code.blocks[first].predecessors if not first <= at <= last]
    return min(1.0, sum(leaving(code, turns, at, first) for at in before) / turns[first])


def _run(
    steps: Sequence[_Step], ready: dict[str, float], flying: list[float], now: float
) -> float:
    for written, read, latency, extra, spread, others, left in steps:
        now += 1.0
        if left >= 0:
            # With N groups on their way the one that is waited for was begun N turns ago, and the
            # newest by now: of what that still takes, N turns and N + 1 waits are the whole.
            turn = now - ready.get(_WAITED, now)
            still = ready.get(_COPIES, 0.0) - now
            now += max(0.0, still - left * turn) / (left + 1)
            ready[_WAITED] = now
        for register in read:
            if ready.get(register, 0.0) > now:
                now = ready[register]
        now += extra
        arrival = now + latency
        if spread:
            flying[:] = [each for each in flying if each > now]
            arrival += spread * _last_of(len(flying) + 1)
            flying.append(arrival)
        for other, share in others:
            arrival += share * max(0.0, ready.get(other, 0.0) - arrival)
        for register in written:
            late = ready.get(register, 0.0) if register == _COPIES else 0.0
            ready[register] = max(arrival, late)
    return now


@cache
def _last_of(count: int) -> float:
    """Return by how many standard deviations the largest of some normal values is expected."""
    return NormalDist().inv_cdf((count - 0.375) / (count + 0.25)) if count > 1 else 0.0


def _asked_in_order(
    instructions: Sequence[MachineInstruction], echo_of: Callable[[int], int]
) -> Callable[[int], tuple[int, int]]:
    """Return for a load's statement whose wait it has, and the statement it is an echo of.

    ptxas may turn loads of the same around: then the one that comes first waits as the first of the
    program would have, and the others are its echoes. An echo of a later statement is one of a
    loop's turn before.
    """
    place: dict[int, int] = {}
    for at, each in enumerate(instructions):
        if each.base in _LOADS:
            place.setdefault(each.statement, at)
    alike: dict[int, list[int]] = defaultdict(list)
    for statement in place:
        root = statement
        while (other := echo_of(root)) in place and other < root:
            root = other
        alike[root].append(statement)
    turned = {}
    for root, statements in alike.items():
        first = min(statements, key=place.__getitem__)
        if first != root:
            turned[first] = root, echo_of(root)
            turned[root] = first, first
    return lambda statement: turned.get(statement) or (statement, echo_of(statement))


def _step(
    instruction: MachineInstruction,
    load_latency: Callable[[int], float],
    load_spread: Callable[[int], float],
    constant_wait: Callable[[int], float],
    asked: Callable[[int], tuple[int, int]],
    flight: tuple[int, float, bool],
) -> _Step:
    written, read = registers_of(instruction)
    spread, others = 0.0, []
    if instruction.base in _LOADS:
        waits_as, echo = asked(instruction.statement)
        latency, spread = load_latency(waits_as), load_spread(waits_as)
        if echo:
            others.append((f"@{echo}", 1.0))
        filler, share, is_before = flight
        if filler and not is_before:
            # ptxas has turned them around: this one asks first, and waits as the other would have.
            latency += share * max(0.0, load_latency(filler) - latency)
            spread += share * max(0.0, load_spread(filler) - spread)
        elif filler:
            others.append((f"@{filler}", share))
    else:
        latency = latency_of(instruction)
    if reads_by_register(instruction):
        latency += constant_wait(instruction.statement)
    extra = 0.0
    if instruction.base == "BAR":
        extra = BARRIER_CLOCKS
    elif instruction.base in ("BRA", "CALL", "RET"):
        extra = BRANCH_CLOCKS
    left = -1
    if instruction.base == "LDGSTS":
        written = (_COPIES,)
    if instruction.base == "DEPBAR":
        groups = _GROUPS.search(instruction.arguments)
        left = int(groups[1], 0) if groups else 0
    if instruction.base in _LOADS:
        written = (*written, f"@{instruction.statement}")
    return written, read, latency, extra, spread, tuple(others), left
