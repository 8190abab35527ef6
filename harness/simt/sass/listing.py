"""Reads nvdisasm's listing: machine instructions, their basic blocks, and the loops among them."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace

_SECTION = re.compile(r"^\.text\.(\S+):")
_LINE = re.compile(r'^\s*//## File "[^"]*", line (\d+)')
_LABEL = re.compile(r"^(\.L_x_\d+|\$?[\w$.]+):\s*$")
_INSTRUCTION = re.compile(
    r"^\s*/\*([0-9a-f]{4,})\*/\s+(?:@(!?U?P\w+)\s+)?([A-Z][A-Z0-9_.]*)\s*([^;]*);"
)
_TARGET = re.compile(r"\(([^()]+)\)")
_ENDS = ("BRA", "EXIT", "RET", "CALL", "BREAK", "BRX", "JMP", "JMX", "BRXU", "KILL")


@dataclass(frozen=True)
class MachineInstruction:
    """One SASS instruction."""

    opcode: str
    """With its modifiers, for example LDG.E.128."""
    arguments: str
    predicate: str
    """For example !P0; empty where there is none."""
    statement: int
    """Number of the PTX statement that it comes from (ptx/printing.py); 0 where unknown."""

    @property
    def base(self) -> str:
        """The opcode without modifiers."""
        return self.opcode.partition(".")[0]

    @property
    def target(self) -> str:
        """Label or function that a branch or call leads to; empty for any other."""
        found = _TARGET.search(self.arguments)
        return found[1] if found and self.base in ("BRA", "CALL", "BRX", "BSSY") else ""


@dataclass
class MachineBlock:
    """Instructions that run one after the other, and the blocks that may follow."""

    instructions: list[MachineInstruction]
    successors: list[int] = field(default_factory=list)
    predecessors: list[int] = field(default_factory=list)
    function: str = ""
    """The function inside the kernel's section that it belongs to; empty for the kernel."""
    loops: list[tuple[int, int]] = field(default_factory=list)
    """First and last block of each loop around it, the innermost first."""

    @property
    def loop(self) -> tuple[int, int] | None:
        """The innermost loop around it."""
        return self.loops[0] if self.loops else None


@dataclass
class MachineCode:
    """The machine code of one kernel, in address order."""

    blocks: list[MachineBlock]


def read_listing(text: str) -> dict[str, MachineCode]:
    """Return the code of every section by its function, from `nvdisasm -gi -c`."""
    found: dict[str, list[tuple[list[str], MachineInstruction]]] = {}
    current: list[tuple[list[str], MachineInstruction]] | None = None
    statement, labels = 0, list[str]()
    for line in text.splitlines():
        if match := _INSTRUCTION.match(line):
            if current is not None:
                opcode, arguments = match[3], match[4].strip()
                made = MachineInstruction(opcode, arguments, match[2] or "", statement)
                current.append((labels, made))
                labels = []
        elif match := _LINE.match(line):
            statement = int(match[1])
        elif match := _SECTION.match(line):
            current, statement, labels = [], 0, []
            found[match[1]] = current
        elif current is not None and (match := _LABEL.match(line)) and match[1] not in found:
            # A kernel with internal linkage has a label of its own, beside its section's.
            labels.append(match[1])
    return {name: MachineCode(_blocks(code)) for name, code in found.items() if code}


def _blocks(code: list[tuple[list[str], MachineInstruction]]) -> list[MachineBlock]:
    blocks: list[MachineBlock] = []
    places: dict[str, int] = {}
    function = ""
    open_block = False
    for labels, instruction in code:
        if labels or not open_block:
            for label in labels:
                places[label] = len(blocks)
                if not label.startswith(".L"):
                    function = label
            blocks.append(MachineBlock([], function=function))
            open_block = True
        blocks[-1].instructions.append(instruction)
        open_block = instruction.base not in _ENDS
    for index, block in enumerate(blocks):
        last = block.instructions[-1]
        if last.base in ("BRA", "BRX") and last.target in places:
            block.successors.append(places[last.target])
        ends = last.base in ("EXIT", "RET", "BRA", "BRX", "JMP", "JMX", "KILL")
        follows = not ends or bool(last.predicate) or _is_conditional(last)
        if follows and index + 1 < len(blocks) and index + 1 not in block.successors:
            block.successors.append(index + 1)
    for index, block in enumerate(blocks):
        for successor in block.successors:
            blocks[successor].predecessors.append(index)
    _mark_loops(blocks)
    return blocks


def _is_conditional(branch: MachineInstruction) -> bool:
    # BRA.DIV, and uniform predicates given as an operand: BRA.U UP0, `(.L_x_3)
    return ".DIV" in branch.opcode or bool(re.match(r"!?U?P\d", branch.arguments))


def _mark_loops(blocks: list[MachineBlock]) -> None:
    """Set the loops: ptxas lays loops out whole, so a branch back spans its loop."""
    spans = sorted(
        {(to, at) for at, block in enumerate(blocks) for to in block.successors if to <= at}
    )
    widest: dict[int, int] = {}
    for first, last in spans:
        if last > first or first in blocks[first].successors:
            if len(blocks[first].instructions) == 1 and first == last:
                continue  # the trap behind the last EXIT: a branch to itself
            widest[first] = max(widest.get(first, last), last)
    for index, block in enumerate(blocks):
        around = [(a, b) for a, b in widest.items() if a <= index <= b]
        block.loops = sorted(around, key=lambda span: span[1] - span[0])


def with_statements(code: MachineCode, places: Mapping[int, int]) -> MachineCode:
    """Return the code with the PTX instructions' places in another module, by those in its own."""
    return MachineCode([
        replace(block, instructions=[
            replace(each, statement=places.get(each.statement - 1, -1) + 1)
            for each in block.instructions
        ])
        for block in code.blocks
    ])  # fmt: skip
