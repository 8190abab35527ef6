"""Every instruction form on the C core and on the reference: results, counters and reports."""

from __future__ import annotations

import random
import re
from collections.abc import Callable, Iterable, Iterator

import numpy as np
import pytest
from often_or_seldom import every

from differential import (
    arithmetic_cases,
    bit_cases,
    conversion_cases,
    memory_programs,
    warp_programs,
)  # fmt: skip
from differential.comparing import run_both
from differential.coverage import decoded_opcodes
from differential.lanewise import Case, kernel_text
from differential.lanewise import differences as case_differences
from differential.programs import Program
from differential.programs import differences as program_differences
from kernelblaster.harness.simt.decode.decoder import decode
from kernelblaster.harness.simt.decode.encoding import Op
from kernelblaster.harness.simt.ptx.parser import Module, parse
from kernelblaster.harness.simt.run.core import UnsupportedInstruction

_CASES: tuple[Callable[[], Iterator[Case]], ...] = (
    arithmetic_cases.cases, bit_cases.cases, conversion_cases.cases,
)  # fmt: skip
_PROGRAMS: tuple[Callable[[], Iterator[Program]], ...] = (
    memory_programs.programs, warp_programs.programs,
)  # fmt: skip
MOST_CASES = 8
"""Of an instruction's forms that are tried each time: of more, as many are drawn."""
_ELSEWHERE = {
    Op.BARRIER_ARRIVE: "of part of a block: test_waiting.py",
    Op.WARP_BARRIER: "changes nothing that is compared here: test_waiting.py",
    Op.PAUSE: "lets others run: test_waiting.py",
    Op.MBARRIER: "test_waiting.py",
    Op.COPY_ARRIVE: "test_waiting.py",
    Op.CALL_FRAME: "recursion and pointers: test_rare_opcodes.py",
    Op.RETURN_FRAME: "recursion and pointers: test_rare_opcodes.py",
    Op.FRAME_ADDRESS: "recursion and pointers: test_rare_opcodes.py",
    Op.PACK_SATURATED: "cvt.pack: test_rare_opcodes.py",
    Op.MMA_INTEGER: "test_rare_opcodes.py",
    Op.MMA_DOUBLE: "test_rare_opcodes.py",
    Op.CONVERT_FP8: "against PyTorch: test_rare_opcodes.py",
    Op.ASSERT: "ends the launch: test_core_checks.py",
    Op.CLOCK: "only has to rise: test_core_execution.py",
    Op.SATURATE: "no rule of the decoder makes one",
}
_REFUSED_BY_NAME = {
    "clusterlaunchcontrol", "discard",
    "getctarank", "istypep", "mapa", "multimem", "setmaxnreg", "suld", "suq", "sured", "sust",
    "tcgen05", "tensormap", "tex", "tld4", "txq", "wgmma",
}  # fmt: skip
"""Opcodes of which the decoder knows no more than that it refuses them."""


def families(
    tables: Iterable[Callable[[], Iterator[Case | Program]]], name: str
) -> dict[str, list[Case | Program]]:
    """Return the cases or programs by the first word of their text or name."""
    found: dict[str, list[Case | Program]] = {}
    for table in tables:
        for item in table():
            word = re.search(r"(?<!\.)\b[a-z]\w*", getattr(item, name))
            assert word
            found.setdefault(word[0], []).append(item)
    return found


def _compare(
    items: list[Case | Program], differences: Callable[[Case | Program], list[str]]
) -> None:
    found: list[str] = []
    for item in items:
        try:
            found += differences(item)[:3]
        except UnsupportedInstruction as refusal:
            if not item.refused:
                found.append(f"refused: {refusal}")
    assert not found, "\n".join([f"{len(found)} differences", *found[:40]])


_CASE_FAMILIES = families(_CASES, "text")
_PROGRAM_FAMILIES = families(_PROGRAMS, "name")


def _drawn(items: list[Case | Program]) -> tuple[list[Case | Program], list[Case | Program]]:
    """Return the forms that are tried each time, always the same, and the others."""
    mixed = random.Random(0).sample(items, len(items))
    return mixed[:MOST_CASES], mixed[MOST_CASES:]


@pytest.mark.parametrize("opcode", every(3, _CASE_FAMILIES))
def test_instructions_of_one_lane(opcode: str) -> None:
    _compare(_drawn(_CASE_FAMILIES[opcode])[0], case_differences)


@pytest.mark.parametrize("name", every(3, _PROGRAM_FAMILIES))
def test_programs(name: str) -> None:
    _compare(_drawn(_PROGRAM_FAMILIES[name])[0], program_differences)


@pytest.mark.seldom
def test_the_other_forms_of_much_used_instructions() -> None:
    for families, differences in (
        (_CASE_FAMILIES, case_differences), (_PROGRAM_FAMILIES, program_differences),
    ):  # fmt: skip
        for items in families.values():
            _compare(_drawn(items)[1], differences)


def _modules() -> Iterator[Module]:
    """Yield of every module that is compared here those in which something is new.

    New is an opcode, or a modifier of one: most of the four thousand combine what others have.
    """
    seen: set[tuple[str, str]] = set()
    for item in (*(c for t in _CASES for c in t()), *(p for t in _PROGRAMS for p in t())):
        text = kernel_text(item) if isinstance(item, Case) else item.text
        words = [word.split(".") for word in set(re.findall(r"(?<![%\w.])[a-z]\w*[.\w:]*", text))]
        found = {(opcode, modifier) for opcode, *rest in words for modifier in ("", *rest)}
        if not found <= seen:
            seen |= found
            yield parse(text)


def test_every_opcode_and_operation_has_a_case() -> None:
    """An opcode or operation new to the decoder fails here until a case is written for it."""
    opcodes: set[str] = set()
    operations: set[int] = set()
    for module in _modules():
        addresses = {name: 1 << 40 for name, v in module.variables.items() if v.space != "shared"}
        try:
            rows = decode(module, "k", 0, addresses).rows
        except UnsupportedInstruction:
            continue
        opcodes |= {instruction.opcode for instruction in module.instructions}
        operations |= set(rows["opcode"].tolist())
    assert decoded_opcodes() - opcodes - _REFUSED_BY_NAME == {"mbarrier"}  # test_waiting.py
    missing = {op.name for op in Op if op not in operations and op not in _ELSEWHERE}
    assert missing == set()


def test_a_copy_cut_short_may_end_with_its_allocation() -> None:
    """cp.async of 16 bytes with a src-size of 4: the other twelve are not read."""
    text = """.version 8.3
    .target sm_90
    .address_size 64
    .visible .entry k(.param .u64 in, .param .u64 out) {
    .reg .b32 %r<8>; .reg .b64 %d<8>; .shared .align 16 .b8 tile[512];
    ld.param.u64 %d1, [in]; ld.param.u64 %d2, [out]; mov.u32 %r1, %tid.x;
    mul.wide.u32 %d3, %r1, 16; add.u64 %d3, %d3, %d1; shl.b32 %r2, %r1, 4;
    mov.u32 %r3, tile; add.u32 %r3, %r3, %r2; sub.u32 %r4, 500, %r2; min.u32 %r4, %r4, 16;
    cp.async.cg.shared.global [%r3], [%d3], 16, %r4; cp.async.wait_all;
    ld.shared.v4.u32 {%r4, %r5, %r6, %r7}, [%r3]; add.u64 %d4, %d3, 0; sub.u64 %d4, %d4, %d1;
    add.u64 %d4, %d4, %d2; st.global.v4.u32 [%d4], {%r4, %r5, %r6, %r7}; ret; }"""
    data = np.arange(125, dtype=np.uint32)
    both = run_both(parse(text), "k", 1, 32, [data, np.zeros(128, np.uint32)])
    assert both.reports() == [] and both.differing_counters() == []
    np.testing.assert_array_equal(both.core_arrays[1], [*data, 0, 0, 0])
    np.testing.assert_array_equal(both.reference_arrays[1], both.core_arrays[1])


@pytest.mark.parametrize("atomic", ["red.global.max.s32 [out]", "atom.global.min.u32 _, [out]"])
def test_an_atomic_that_gives_nothing_back_waits_for_nothing(atomic: str) -> None:
    """Its lanes meet the others again however often it changed nothing."""
    text = f""".version 8.3
    .target sm_90
    .address_size 64
    .visible .entry k(.param .u64 p) {{
    .reg .b32 %r<4>; .reg .b64 out; .reg .pred %p<3>;
    ld.param.u64 out, [p]; mov.u32 %r1, %tid.x; setp.lt.u32 %p1, %r1, 16; mov.u32 %r2, 20;
    AGAIN: @!%p1 bra JOIN; {atomic}, 0;
    JOIN: sub.u32 %r2, %r2, 1; setp.ne.u32 %p2, %r2, 0; @%p2 bra AGAIN;
    mul.lo.u32 %r1, %r1, 3; ret; }}"""
    both = run_both(parse(text), "k", 1, 32, [np.zeros(4, np.uint32)])
    assert both.reports() == [] and both.differing_counters() == []
