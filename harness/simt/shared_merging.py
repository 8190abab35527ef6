"""Which scalar shared loads ptxas joined: PTX says which could be, SASS whether they were."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Mapping

from .ptx_records import Address, Function, Module, Register, Symbol

_WORDS = ("f32", "b32", "u32", "s32")
_HEADER = re.compile(r"^\.text\.(\S+):")
_LINE = re.compile(r'//## File "[^"]*", line (\d+)(.*)')
_INLINED = re.compile(r'inlined at "[^"]*", line (\d+)')
_LDS = re.compile(r"\bLDS(?:\.U)?\.(64|128)\b")


def merged_loads(
    module: Module, function: Function, vector_lines: Mapping[int, int]
) -> dict[int, int]:
    """Return how many scalar loads (4 or 2) share a vector load, by instruction index.

    Loads merge when they stand in one basic block between barriers, address one base register at
    neighbouring aligned offsets, and their source line has a vector shared load in the SASS.
    """
    groups: dict[tuple[int, str], list[tuple[int, int]]] = defaultdict(list)
    targets = set(function.labels.values())
    region = 0
    for index in range(function.first, function.last):
        instruction = module.instructions[index]
        if index in targets:
            region += 1
        if instruction.opcode in ("bra", "bar", "barrier", "call", "ret", "exit"):
            region += 1
        if (
            instruction.opcode != "ld"
            or instruction.guard is not None
            or not any(word.startswith("shared") for word in instruction.modifiers)
            or instruction.modifiers[-1] not in _WORDS
            or any(word in ("v2", "v4") for word in instruction.modifiers)
        ):
            continue
        address = instruction.operands[1]
        if isinstance(address, Address) and isinstance(address.base, Register | Symbol):
            base = address.base.key if isinstance(address.base, Register) else address.base.name
            groups[region, base].append((address.offset, index))
    merged: dict[int, int] = {}
    for loads in groups.values():
        by_offset = dict(loads)
        for width in (4, 2):
            for offset in sorted(by_offset):
                run = [offset + 4 * word for word in range(width)]
                indices = [by_offset[at] for at in run if at in by_offset]
                if offset % (4 * width) or len(indices) < width:
                    continue
                line = module.instructions[indices[0]].line or 0
                if vector_lines.get(line, 0) >= 32 * width and not any(
                    index in merged for index in indices
                ):
                    merged.update((index, width) for index in indices)
    return merged


def vector_load_lines(listing: str) -> dict[str, dict[int, int]]:
    """Return, by kernel, the widest shared load in bits at each source line of an SASS listing.

    `listing` is what `nvdisasm -gi` prints; inlined code counts for its outermost call site.
    """
    found: dict[str, dict[int, int]] = {}
    kernel, line = "", 0
    for row in listing.splitlines():
        if header := _HEADER.match(row):
            kernel, line = header[1], 0
            found[kernel] = {}
        elif location := _LINE.search(row):
            inlined = _INLINED.search(location[2])
            line = int(inlined[1] if inlined else location[1])
        elif kernel and (load := _LDS.search(row)):
            found[kernel][line] = max(found[kernel].get(line, 0), int(load[1]))
    return found
