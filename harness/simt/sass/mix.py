"""The pipe that each machine instruction runs on, its latency, and its registers."""

from __future__ import annotations

import re

from .listing import MachineInstruction

_PIPES: dict[str, tuple[str, ...]] = {
    "fma": ("FFMA", "FADD", "FMUL", "FSWZADD", "FFMA32I", "FADD32I", "FMUL32I"),
    "fma_heavy": ("IMAD", "IDP", "IMUL"),
    "fp16": ("HFMA2", "HADD2", "HMUL2", "HFMA2_32I", "HADD2_32I", "HMUL2_32I"),
    "fp64": ("DFMA", "DADD", "DMUL", "DSETP", "DMNMX"),
    "xu": ("MUFU", "I2F", "F2I", "F2F", "FRND", "POPC", "FLO", "BREV", "FCHK", "REDUX"),
    "lsu": ("LDG", "STG", "LDS", "STS", "LD", "ST", "RED", "REDG", "ATOM", "ATOMG", "ATOMS",
            "SHFL", "LDSM", "STSM", "LDL", "STL", "LDGSTS", "MATCH"),
    "tensor": ("HMMA", "IMMA", "DMMA", "BMMA"),
    "barrier": ("BAR",),
    "control": ("BRA", "EXIT", "BSSY", "BSYNC", "CALL", "RET", "WARPSYNC", "NOP", "BREAK",
                "S2R", "S2UR", "CS2R", "LDC", "ULDC", "DEPBAR", "LDGDEPBAR", "MEMBAR", "ERRBAR",
                "CCTL", "YIELD", "NANOSLEEP", "BRX", "JMP", "KILL", "RPCMOV", "BMOV", "QSPC",
                "ELECT", "VOTE", "VOTEU", "R2UR"),
}  # fmt: skip
_PIPE = {opcode: pipe for pipe, opcodes in _PIPES.items() for opcode in opcodes}
SHARED_CLOCKS, SHARED_ATOMIC_CLOCKS, LOCAL_CLOCKS = 23.0, 60.0, 33.0
"""From issue to result of a load, an atomic, a load from local memory, measured as those below."""
_LATENCIES: dict[str, float] = {
    "LDS": SHARED_CLOCKS, "LDSM": 29.0, "SHFL": 24.0, "MUFU": 17.5, "S2R": 25.0, "S2UR": 25.0,
    "LDC": 30.0, "ULDC": 12.0, "HMMA": 27.0, "IMMA": 27.0, "DMMA": 40.0, "I2F": 17.5, "F2I": 17.5,
    "F2F": 17.5, "FRND": 17.5, "POPC": 18.5, "FLO": 18.5, "BREV": 18.5, "FCHK": 17.5,
    "LDL": LOCAL_CLOCKS, "ATOMS": SHARED_ATOMIC_CLOCKS, "DFMA": 8.4, "DADD": 8.4, "DMUL": 8.4,
    "REDUX": 40.0, "MATCH": 30.0, "VOTE": 12.0, "VOTEU": 12.0, "R2UR": 12.0,
}  # fmt: skip
"""Clocks from issue to result, measured on an H200 by chains (benchmarks/ground_truth: latency_*,
chase_*); those without a chain of their own are their neighbours'. All others: ALU_CLOCKS."""
CONSTANT_CLOCKS = 28.0
"""The same of a read of one word of constant memory by a register (constant_memory.cu)."""
ALU_CLOCKS = 4.5
_REGISTER = re.compile(r"(?<![\w.])(U?R|U?P)(\d+)(\.64)?\b")
_PREDICATE = re.compile(r"U?P(?:\d|T)$")
_WIDE_RESULT = ("F2F.F64", "F2I.S64", "F2I.U64", "I2F.F64")
_BY_REGISTER = re.compile(r"\]\[R\d")
_SPLIT = re.compile(r",(?![^\[]*\])")
_NO_RESULT = frozenset(
    ("STG", "STS", "STL", "ST", "RED", "REDG", "BAR", "BRA", "EXIT", "BSSY", "BSYNC", "CALL",
     "RET", "NOP", "WARPSYNC", "DEPBAR", "LDGDEPBAR", "LDGSTS", "MEMBAR", "STSM", "CCTL", "ERRBAR",
     "BREAK", "YIELD", "NANOSLEEP", "KILL")
)  # fmt: skip
_TWO_RESULTS = frozenset(
    ("SHFL", "ISETP", "FSETP", "DSETP", "HSETP2", "PLOP3", "UISETP", "UPLOP3", "ATOM", "ATOMG",
     "B2R", "ELECT")
)  # fmt: skip
_TWO_WITH_A_PREDICATE = frozenset(("LOP3", "ULOP3", "MATCH"))
"""A predicate stands before their result where they write one."""
_CARRIES = frozenset(("IADD3", "UIADD3", "LEA", "ULEA", "IMAD"))
"""Predicates that follow their result at once are written: carries out."""


def pipe_of(instruction: MachineInstruction) -> str:
    """Return the pipe: fma, fma_heavy, alu, xu, fp64, fp16, lsu, tensor, uniform or control."""
    base = instruction.base
    if base == "IMAD" and instruction.opcode.startswith(("IMAD.MOV", "IMAD.U32", "IMAD.IADD",
                                                         "IMAD.SHL")):  # fmt: skip
        return "fma_heavy"
    found = _PIPE.get(base)
    if found:
        return found
    return "uniform" if base.startswith("U") else "alu"


def latency_of(instruction: MachineInstruction) -> float:
    """Return the clocks from issue to result; global loads are not meant.

    Of a read of constant memory, where all lanes name one word.
    """
    if reads_by_register(instruction):
        return CONSTANT_CLOCKS
    return _LATENCIES.get(instruction.base, ALU_CLOCKS)


def reads_by_register(instruction: MachineInstruction) -> bool:
    """Say whether it reads constants at addresses that each lane holds in a register."""
    return instruction.base == "LDC" and bool(_BY_REGISTER.search(instruction.arguments))


def width_of(instruction: MachineInstruction) -> int:
    """Return how many 32-bit registers a memory instruction moves for each thread."""
    if ".128" in instruction.opcode:
        return 4
    return 2 if ".64" in instruction.opcode else 1


_TENSOR_FULL = {"HMMA": 16, "IMMA": 32, "DMMA": 4, "BMMA": 256}
"""Depth (k) of the product of 16 x 8 that takes TENSOR_CLOCKS."""


def tensor_units(instruction: MachineInstruction) -> float:
    """Return the full products of one tensor instruction: half for half the depth, and so on.

    tf32 counts double: its full depth is 8. Measured: products of m16n8k16 on fp16 and bf16, of
    k8 on tf32 and of k32 on int8 take the same time.
    """
    match = re.search(r"\.(8|16)8(4|8|16|32|64|128|256)(?=\.|$)", instruction.opcode)
    if match is None:
        return 1.0
    rows, depth = int(match[1]), int(match[2])
    full = _TENSOR_FULL.get(instruction.base, 16)
    if "TF32" in instruction.opcode:
        full = 8
    return rows / 16 * depth / full


def registers_of(instruction: MachineInstruction) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Return the registers and predicates that an instruction writes, and those that it reads."""
    base, opcode = instruction.base, instruction.opcode
    arguments = [part.strip() for part in _SPLIT.split(instruction.arguments)]
    carries = [each for each in arguments[1:3] if base in _CARRIES and _PREDICATE.match(each)]
    arguments = [arguments[0], *arguments[1 + len(carries) :]]
    results = _results(base, arguments[0])
    written = [each for each in carries if not each.endswith("T")]
    read: list[str] = []
    wide = width_of(instruction)
    if "WIDE" in opcode or base in ("DFMA", "DADD", "DMUL") or opcode.startswith(_WIDE_RESULT):
        wide = 2
    if base == "LDSM":
        wide = 4 if ".4" in opcode[-4:] else 2 if ".2" in opcode else 1
    for place, argument in enumerate(arguments):
        for kind, number, pair in _REGISTER.findall(argument):
            first = int(number)
            span = 1
            if kind in ("R", "UR"):
                span = _span(base, opcode, place, argument, wide, pair, results)
            names = [f"{kind}{first + step}" for step in range(span)]
            if place < results and "[" not in argument:
                written += names
            else:
                read += names
    if instruction.predicate:
        read.append(instruction.predicate.lstrip("!"))
    return tuple(written), tuple(read)


def _results(base: str, first: str) -> int:
    """Return how many operands, from the first on, are results."""
    if base == "LDGSTS" or base in _NO_RESULT:
        return 0
    has_predicate = bool(_PREDICATE.match(first))
    if base == "VOTE":  # A predicate alone, or the lanes and a predicate.
        return 1 if has_predicate else 2
    return 2 if base in _TWO_RESULTS or (has_predicate and base in _TWO_WITH_A_PREDICATE) else 1


def _span(
    base: str, opcode: str, place: int, argument: str, wide: int, pair: str, results: int
) -> int:
    if base in ("HMMA", "IMMA", "DMMA"):
        return 4 if place in (0, 1, 3) else 2
    if "[" in argument:
        return 2 if pair else 1
    if place < results:
        return wide
    if base in ("STG", "STS", "STL", "ST"):
        return wide
    if base in ("DFMA", "DADD", "DMUL", "DSETP"):
        return 2
    if "WIDE" in opcode and place == 3:
        return 2
    return 1
