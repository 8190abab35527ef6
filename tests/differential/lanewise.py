"""Writes a kernel around one instruction that works lane by lane, and compares its results."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from reference_executor.formats import FORMATS, is_nan
from reference_executor.words import TYPE_BITS

from kernelblaster.harness.simt.ptx.parser import parse

from .comparing import run_both
from .inputs import values

THREADS = 84
"""Of each block: the last warp is partial."""
BLOCKS = 2
COUNT = THREADS * BLOCKS
_HEADER = ".version 8.3\n.target sm_90\n.address_size 64\n"


@dataclass(frozen=True)
class Case:
    """One instruction, or a few; {d} is the result, {a} to {c} the sources, {p} {q} predicates."""

    text: str
    sources: tuple[str, ...]
    """Types of a, b, c: each type or type/flavour; see inputs.values."""
    result: str
    ulps: float = 0
    """How far an approximation may be off, in units of the last place of the reference's result."""
    apart: float = 0
    """The same as a number, for functions that are off by as much where they are small."""
    ignore_low: int = 0
    """Low bits that stand for nothing."""
    zero_sign: bool = True
    """Whether the sign of a zero result is defined."""
    refused: bool = False
    """The ISA has it, the core may refuse it by name."""
    source_registers: tuple[int, ...] = ()
    """Widths of the source registers, where they are wider than the types."""
    result_register: int = 0


def _width(type_name: str, register: int = 0) -> int:
    return register or max(16, TYPE_BITS[type_name.partition("/")[0]])


def kernel_text(case: Case) -> str:
    """Return a module whose kernel executes the case for every lane, then under a guard."""
    lines, names = [], {}
    registers = case.source_registers or (0,) * len(case.sources)
    for place, (source, wide) in enumerate(zip(case.sources, registers, strict=True)):
        name, width = "abc"[place], _width(source, wide)
        lines.append(f"ld.param.u64 %at, [p{place}];")
        if source == "pred":
            names[name] = f"%p{place}"
            lines.append("mad.wide.u32 %at, %i, 4, %at; ld.global.u32 %t, [%at];")
            lines.append(f"setp.ne.u32 %p{place}, %t, 0;")
            continue
        names[name] = f"%{name}{width}"
        lines.append(f"mad.wide.u32 %at, %i, {width // 8}, %at;")
        lines.append(f"ld.global.b{width} {names[name]}, [%at];")
    predicate = case.result == "pred"
    width = 32 if predicate else _width(case.result, case.result_register)
    names |= {"d": "%pd" if predicate else f"%d{width}", "q": "%pq", "e": "%e32"}
    for part, guard in enumerate(("", "@%pg ")):
        poison = 0xA5A5A5A5A5A5A5A5 & (1 << width) - 1
        if predicate:
            lines.append("setp.ne.u32 %pd, %parity, 0;")
        else:
            lines.append(f"mov.b{width} {names['d']}, {poison};")
        lines.append("setp.eq.u32 %pq, %parity, 0; mov.u32 %e32, 77;")
        for statement in case.text.format(**names).split(";"):
            if statement.strip():
                bare = statement.strip().startswith(("{", "}", ".reg"))
                end = "" if statement.strip() == "}" else ";"
                lines.append(f"{'' if bare else guard}{statement.strip()}{end}")
        if predicate:
            lines.append("selp.u32 %d32, 1, 0, %pd;")
        lines.append(f"ld.param.u64 %at, [out]; add.u64 %at, %at, {part * COUNT * width // 8};")
        lines.append(f"mad.wide.u32 %at, %i, {width // 8}, %at;")
        lines.append(f"st.global.b{width} [%at], {'%d32' if predicate else names['d']};")
        lines.append(f"selp.u32 %t, 256, 0, %pq; add.u32 %t, %t, %e32; ld.param.u64 %at, [extra];"
                     f"add.u64 %at, %at, {part * COUNT * 4}; mad.wide.u32 %at, %i, 4, %at;"
                     "st.global.u32 [%at], %t;")  # fmt: skip
    parameters = ", ".join(
        f".param .u64 {name}" for name in (*(f"p{i}" for i in range(len(case.sources))), "out",
                                           "extra")
    )  # fmt: skip
    declared = "".join(
        f".reg .b{w} {', '.join(f'%{n}{w}' for n in 'abcd')};" for w in (16, 32, 64)
    )
    return (
        f"{_HEADER}.visible .entry k({parameters}) {{\n{declared} .reg .pred %p<4>, %pd, %pq, %pg;"
        ".reg .b32 %i, %t, %parity, %e32; .reg .b64 %at;\n"
        "mov.u32 %i, %ctaid.x; mov.u32 %t, %tid.x; mad.lo.u32 %i, %i, "
        f"{THREADS}, %t; and.b32 %parity, %i, 1;\n"
        "mul.lo.u32 %t, %i, 0x9E3779B1; shr.u32 %t, %t, 30; setp.ne.u32 %pg, %t, 2;\n"
        + "\n".join(lines) + "\nret;\n}\n"
    )  # fmt: skip


def _array(case: Case, place: int) -> np.ndarray:
    source = case.sources[place]
    registers = case.source_registers or (0,) * len(case.sources)
    width = 32 if source == "pred" else _width(source, registers[place])
    bits = values(source, place, COUNT)
    if registers[place]:  # what lies above the type's bits must not matter
        noise = np.random.default_rng(place).integers(0, 1 << 64, COUNT, np.uint64)
        kept = np.uint64((1 << TYPE_BITS[source.partition("/")[0]]) - 1)
        bits = bits & kept | noise & ~kept
    return bits.astype(f"u{width // 8}")


def _agree(case: Case, type_name: str, ours: int, theirs: int) -> bool:
    ours, theirs = ours >> case.ignore_low, theirs >> case.ignore_low
    if ours == theirs:
        return True
    if type_name.endswith("x2"):
        half = type_name.removesuffix("x2")
        return all(_agree(case, half, ours >> s & 0xFFFF, theirs >> s & 0xFFFF) for s in (0, 16))
    if type_name not in FORMATS:
        return False
    form = FORMATS[type_name]
    sign, infinity = 1 << form.bits - 1, ((1 << form.exponent_bits) - 1) << form.fraction_bits
    if is_nan(form, ours << case.ignore_low) or is_nan(form, theirs << case.ignore_low):
        # The ISA leaves the payload of a NaN open but where it says canonical: min, max, .relu.
        return is_nan(form, ours << case.ignore_low) and is_nan(form, theirs << case.ignore_low)
    if not case.zero_sign and not (ours | theirs) & ~sign:
        return True
    if case.apart and type_name == "f32" and abs(_value(ours) - _value(theirs)) <= case.apart:
        return True
    if not case.ulps or (ours & ~sign) >= infinity or (theirs & ~sign) >= infinity:
        return False
    if (ours ^ theirs) & sign:
        return (ours & ~sign) + (theirs & ~sign) <= case.ulps
    return abs(ours - theirs) <= case.ulps


def _value(bits: int) -> float:
    return float(np.uint32(bits).view(np.float32))


def differences(case: Case) -> list[str]:
    """Return what the core and the reference do not agree on, at most a few lines.

    Raises:
        UnsupportedInstruction: the core refuses the instruction.
    """
    width = 32 if case.result == "pred" else _width(case.result, case.result_register)
    inputs = [_array(case, place) for place in range(len(case.sources))]
    both = run_both(
        parse(kernel_text(case)), "k", BLOCKS, THREADS,
        [*inputs, np.zeros(2 * COUNT, f"u{width // 8}"), np.zeros(2 * COUNT, np.uint32)],
    )  # fmt: skip
    found = [f"{case.text}: {line}" for line in (*both.reports(), *both.differing_counters())]
    type_name = case.result if case.result_register == 0 else "b64"
    for ours, theirs, kind in (
        (both.core_arrays[-2], both.reference_arrays[-2], type_name),
        (both.core_arrays[-1], both.reference_arrays[-1], "b32"),
    ):
        for at in np.flatnonzero(ours != theirs).tolist():
            x, y = int(ours[at]), int(theirs[at])
            if not _agree(case, kind, x, y):
                shown = ", ".join(hex(int(array[at % COUNT])) for array in inputs)
                found.append(f"{case.text}: of ({shown}) core {x:#x}, reference {y:#x}")
    return found
