"""The PTX parser on text that only inline assembly produces."""

from __future__ import annotations

import pytest

from kernelblaster.harness.simt.ptx.parser import PtxError, parse

KERNEL = """
.version 8.0
.target sm_90
.address_size 64
.file 1 "candidate.cu"
.visible .entry k(.param .u64 k_param_0)
{
    .reg .b16 %rs<3>;
    .loc 1 7 3
    {.reg.b32 f, C, nZ; .reg.b16 h, r;
     mov.b16 h, %rs1; cvt.f32.f16 f, h; cvt.rn.f16.f32 r, f; mov.b16 %rs2, r;
    }
    BODY
    ret;
}
"""


def test_a_declaration_may_be_one_word() -> None:
    module = parse(KERNEL.replace("BODY", ""))
    opcodes = [instruction.opcode for instruction in module.instructions]
    assert opcodes == ["mov", "cvt", "cvt", "mov", "ret"]
    assert module.instructions[1].operands[0].type == "b32"  # type: ignore[union-attr]


def test_an_error_names_the_line_of_the_source() -> None:
    with pytest.raises(PtxError) as caught:
        parse(KERNEL.replace("BODY", ".loc 1 12 1\n ld.global.u32 %r1, [%rd1*2];"))
    assert caught.value.line == 12
