"""How many clocks one warp needs alone: a scoreboard over the instructions it went through.

Inside a basic block an instruction starts when its operands are ready, whatever its place: ptxas
hoists loads to the top of a block, which PTX order does not show. Between blocks order is kept.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import numpy as np
import numpy.typing as npt

from ...ptx.records import Instruction, Module
from ...ptx.registers import NO_RESULT, registers_of
from .instruction_mix import machine_instructions

ALU_CLOCKS = 4.5
BARRIER_CLOCKS = 20.0
BRANCH_CLOCKS = 6.0
_LATENCIES = {
    "shfl": 24.0, "shared": 29.0, "xu": 20.0, "tensor": 33.0, "fp64": 8.0, "atomic_shared": 60.0,
    "constant": 28.0,
}  # fmt: skip
"""Clocks from issue to result, sm_80 to sm_90, rounded from published microbenchmarks."""

_Step = tuple[tuple[str, ...], tuple[str, ...], float, float, float]
"""Sources, destinations, latency, issue clocks, extra clocks that the next block waits."""


def chain_clocks(
    module: Module,
    trace: npt.NDArray[np.int32],
    load_latency: Callable[[int], float],
    constant_wait: Callable[[int], float] = lambda index: 0.0,
) -> float:
    """Return the clocks between the first instruction of a warp and its last result.

    Args:
        module: the parsed PTX.
        trace: indices of the instructions that one warp executed, in order.
        load_latency: clocks of the global load (or returning atomic) at an index.
        constant_wait: clocks that the read of constant memory at an index takes beyond one of a
            single word.
    """
    if len(trace) == 0:
        return 0.0
    blocks, sequence = _basic_blocks(trace)
    steps = [
        [_step(module.instructions[index], load_latency, constant_wait) for index in block]
        for block in blocks
    ]
    ready: dict[str, float] = {}
    now = skipped = 0.0
    # Once a loop's turn has taken the same time twice, its further turns are not followed one by
    # one: local time stands still and the turn's duration is added at the end.
    last: dict[tuple[int, int], tuple[float, int]] = {}
    previous = -1
    for block in sequence:
        duration, repeats = last.get((previous, block), (0.0, 0))
        if repeats >= 3:
            skipped += duration
        else:
            after = _run(steps[block], ready, now)
            same = abs(after - now - duration) < 1e-6
            last[previous, block] = (after - now, repeats + 1 if same else 0)
            now = after
        previous = block
    return skipped + max([now, *ready.values()])


def _basic_blocks(trace: npt.NDArray[np.int32]) -> tuple[list[list[int]], list[int]]:
    """Split the trace where the program counter does not simply advance or is jumped to."""
    indices = trace.astype(np.int64)
    jumps = np.flatnonzero(np.diff(indices) != 1) + 1
    leaders = np.unique(np.concatenate(([indices[0]], indices[jumps])))
    starts = np.flatnonzero(np.isin(indices, leaders))
    ends = np.append(starts[1:], len(indices))
    numbers: dict[tuple[int, int], int] = {}
    blocks: list[list[int]] = []
    sequence: list[int] = []
    for start, end in zip(starts.tolist(), ends.tolist(), strict=True):
        key = (int(indices[start]), end - start)
        if key not in numbers:
            numbers[key] = len(blocks)
            blocks.append(list(range(key[0], key[0] + key[1])))
        sequence.append(numbers[key])
    return blocks, sequence


def _run(steps: Sequence[_Step], ready: dict[str, float], now: float) -> float:
    """Advance the scoreboard over one basic block and return when its last instruction issued."""
    issued, latest = now, now
    for sources, destinations, latency, issue_clocks, extra in steps:
        issued += issue_clocks
        start = issued
        for register in sources:
            if ready.get(register, 0.0) > start:
                start = ready[register]
        start += extra
        latest = max(latest, start)
        for register in destinations:
            ready[register] = start + latency
        if extra:  # a barrier or branch: nothing after it starts before it
            issued = max(issued, latest)
    return max(issued, latest)


def _step(
    instruction: Instruction,
    load_latency: Callable[[int], float],
    constant_wait: Callable[[int], float],
) -> _Step:
    opcode, operands = instruction.opcode, instruction.operands
    has_result = opcode not in NO_RESULT and bool(operands)
    destinations = registers_of(operands[0]) if has_result else ()
    sources = [name for operand in operands[has_result:] for name in registers_of(operand)]
    if instruction.guard is not None:
        sources.append(instruction.guard.key)
    cost = machine_instructions(instruction)
    latency = _latency(instruction, cost, load_latency)
    if opcode == "ld" and "const" in instruction.modifiers:
        latency = _LATENCIES["constant"] + constant_wait(instruction.index)
    extra = 0.0
    if opcode in ("bar", "barrier") and "warp" not in instruction.modifiers:
        extra = BARRIER_CLOCKS
    elif opcode == "bra":
        extra = BRANCH_CLOCKS
    return (
        tuple(sources), destinations, latency, sum(cost.values()), extra,
    )  # fmt: skip


def _latency(
    instruction: Instruction, pipes: Mapping[str, float], load_latency: Callable[[int], float]
) -> float:
    opcode, modifiers = instruction.opcode, instruction.modifiers
    if opcode in ("ld", "ldu", "atom", "wmma", "ldmatrix", "cp") and "lsu" in pipes:
        spaces = [modifier.split("::")[0] for modifier in modifiers]
        if opcode == "ldmatrix" or "shared" in spaces:
            return _LATENCIES["atomic_shared" if opcode == "atom" else "shared"]
        return load_latency(instruction.index)
    if opcode == "shfl":
        return _LATENCIES["shfl"]
    if "tensor" in pipes:
        return _LATENCIES["tensor"] * pipes["tensor"]
    instructions = sum(pipes.values())
    if "fp64" in pipes:
        return _LATENCIES["fp64"] * pipes["fp64"] + ALU_CLOCKS * (instructions - pipes["fp64"])
    if "xu" in pipes:
        return _LATENCIES["xu"] * min(1.0, pipes["xu"]) + ALU_CLOCKS * (instructions - 1)
    return ALU_CLOCKS if instructions else 0.0
