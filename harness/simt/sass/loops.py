"""Which loop of PTX each machine loop is, and out of which of them ptxas lifted an instruction."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from ..ptx.loops import Loop
from .listing import MachineBlock, MachineCode

Span = tuple[int, int]
"""A machine loop: its first and last block."""


def machine_loops(
    code: MachineCode, loops: Mapping[int, Sequence[Loop]]
) -> dict[Span, Loop]:
    """Return the PTX loop of each machine loop whose branch back is that of a PTX loop.

    Loops that ptxas makes itself (retries of compare and swap) are not among them.

    Args:
        code: the kernel's machine code.
        loops: the PTX loops around each statement, the innermost first.
    """
    found: dict[Span, Loop] = {}
    for at, block in enumerate(code.blocks):
        statement = block.instructions[-1].statement
        back = next((loop for loop in loops.get(statement, ()) if statement - 1 in loop.back), None)
        if back is None:
            continue
        for span in block.loops:
            if span[0] in block.successors and span[0] <= at:
                found[span] = back
    return found


def lifted_out_of(
    block: MachineBlock, around: Sequence[Loop], machine: Mapping[Span, Loop]
) -> Loop | None:
    """Return the outermost loop that an instruction in this block was lifted out of, if any.

    None too where it stands in a machine loop that is no known loop of PTX.

    Args:
        block: where the instruction stands.
        around: the PTX loops around its statement, the innermost first.
        machine: the PTX loop of each machine loop (`machine_loops`).
    """
    if any(span not in machine for span in block.loops):
        return None
    kept = set(machine.values())
    still = {machine[span] for span in block.loops if span in machine}
    left = None
    for loop in around:
        if loop in still:
            break
        if loop in kept:
            left = loop
    return left
