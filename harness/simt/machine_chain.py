"""How many clocks one warp needs alone: a scoreboard over the machine code it goes through.

A warp issues in order and stops at the first instruction whose operands are not there, so the
loads in flight are those of ptxas' own schedule.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from .machine_listing import MachineCode, MachineInstruction
from .machine_mix import latency_of, registers_of

BARRIER_CLOCKS = 12.0
BRANCH_CLOCKS = 6.0
_LOADS = ("LDG", "LD", "ATOMG", "ATOM", "LDGSTS")
_Step = tuple[tuple[str, ...], tuple[str, ...], float, float]


def machine_chain_clocks(
    code: MachineCode,
    executions: Sequence[float],
    warps: float,
    load_latency: Callable[[int], float],
) -> float:
    """Return the clocks between the first instruction of an average warp and its last result.

    Args:
        code: the kernel's machine code.
        executions: how often each block ran (machine_counts).
        warps: warps that start the kernel.
        load_latency: clocks of the global load of a statement.
    """
    ready: dict[str, float] = {}
    now = clocks = 0.0
    turns = [count / warps if warps else 0.0 for count in executions]
    steps = [
        [_step(instruction, load_latency) for instruction in block.instructions]
        if turns[index] > 1e-6 and not block.function
        else []
        for index, block in enumerate(code.blocks)
    ]
    index = 0
    while index < len(steps):
        span = code.blocks[index].loop
        inner = span is not None and span[0] == index and all(
            block.loop == span for block in code.blocks[span[0] : span[1] + 1]
        )  # fmt: skip
        end = span[1] if inner and span is not None else index
        if inner and turns[index] > 1.5:
            # The second turn is the first that waits for what the turn before has begun.
            for place in range(index, end + 1):
                now = _run(steps[place], ready, now)
        for place in range(index, end + 1):
            after = _run(steps[place], ready, now)
            clocks += (after - now) * turns[place]
            now = after
        index = end + 1
    return clocks + max(0.0, max(ready.values(), default=now) - now)


def _run(steps: Sequence[_Step], ready: dict[str, float], now: float) -> float:
    for written, read, latency, extra in steps:
        now += 1.0
        for register in read:
            if ready.get(register, 0.0) > now:
                now = ready[register]
        now += extra
        for register in written:
            ready[register] = now + latency
    return now


def _step(
    instruction: MachineInstruction, load_latency: Callable[[int], float]
) -> _Step:
    written, read = registers_of(instruction)
    if instruction.base in _LOADS:
        latency = load_latency(instruction.statement)
    else:
        latency = latency_of(instruction)
    extra = 0.0
    if instruction.base == "BAR":
        extra = BARRIER_CLOCKS
    elif instruction.base in ("BRA", "CALL", "RET"):
        extra = BRANCH_CLOCKS
    if instruction.base == "LDGSTS":
        written = ("@copies",)  # a group of asynchronous copies is waited for as a whole
    if instruction.base == "DEPBAR":
        read = (*read, "@copies")
    return written, read, latency, extra


