"""Values at the joints of number formats, as the PTX ISA and ptxas have them: bits in, bits out."""

from __future__ import annotations

import numpy as np
import pytest
from simt_support import execute

from kernelblaster.harness.simt.ptx.parser import parse


def word(text: str) -> str:
    """Run a few instructions in one thread and return what they leave in %r1."""
    module = parse(
        ".version 8.3\n.target sm_90\n.address_size 64\n.visible .entry k(.param .u64 out) {"
        ".reg .pred %p<4>; .reg .b16 %h<8>; .reg .b32 %r<8>; .reg .f32 %f<8>; .reg .b64 %d<8>;"
        f"{text} ld.param.u64 %d7, [out]; st.global.u32 [%d7], %r1; ret; }}"
    )
    result, (out,) = execute(module, "k", 1, 1, np.zeros(1, np.uint32))
    assert result.reports == ()
    return f"{int(out[0]):#x}"


def halves(result: str) -> str:
    """Move %h1 to where `word` looks."""
    return f"{result} cvt.u32.u16 %r1, %h1;"


@pytest.mark.parametrize("text, wanted", [
    ("add.ftz.f32 %r1, 0f00000001, 0f00000001;", "0x0"),
    ("mul.ftz.f32 %r1, 0f80800000, 0f3F000000;", "0x80000000"),
    ("fma.rz.ftz.f32 %r1, 0f00400000, 0f7F000000, 0f3F800000;", "0x3f800000"),
    ("setp.eq.ftz.f32 %p1, 0f00000001, 0f80000001; selp.u32 %r1, 1, 0, %p1;", "0x1"),
    ("cvt.rpi.ftz.s32.f32 %r1, 0f00000001;", "0x0"),
    ("cvt.rpi.s32.f32 %r1, 0f00000001;", "0x1"),
    (halves("mov.b16 %h2, 0x3ff; add.ftz.f16 %h1, %h2, %h2;"), "0x0"),
])  # fmt: skip
def test_subnormals_are_flushed_where_the_instruction_says_so(text: str, wanted: str) -> None:
    assert word(text) == wanted


@pytest.mark.parametrize("operation, first, second, wanted", [
    ("min", "80000000", "00000000", "0x80000000"), ("min", "00000000", "80000000", "0x80000000"),
    ("max", "80000000", "00000000", "0x0"), ("max", "00000000", "80000000", "0x0"),
])  # fmt: skip
def test_plus_zero_is_larger_than_minus_zero(
    operation: str, first: str, second: str, wanted: str
) -> None:
    assert word(f"{operation}.f32 %r1, 0f{first}, 0f{second};") == wanted


def test_fused_products_of_bfloat16_round_once() -> None:
    """The product lies half way between two bfloat16, the tiny addend decides."""
    text = "mov.b16 %h2, 0xc040; mov.b16 %h3, 0xe89f; mov.b16 %h4, 0x094f;"
    assert word(halves(text + "fma.rn.bf16 %h1, %h2, %h3, %h4;")) == "0x696f"


def test_a_comparison_of_pairs_combines_with_its_predicate() -> None:
    text = (
        "mov.b32 %r2, 0x3c003c00; setp.ne.u32 %p1, 0, 0;"
        "set.eq.{}.f16x2.f16x2 %r1, %r2, %r2, {}%p1;"
    )
    assert word(text.format("and", "")) == "0x0"
    assert word(text.format("and", "!")) == "0x3c003c00"


@pytest.mark.parametrize("text, wanted", [
    ("cvt.rzi.s32.f64 %r1, 0d7FF8000000000000;", "0x80000000"),
    ("cvt.rzi.u32.f64 %r1, 0d7FF8000000000000;", "0x80000000"),
    ("cvt.rzi.s32.f32 %r1, 0f7FC00000;", "0x0"),
    ("mov.u32 %r2, 2; cvt.rn.sat.f32.u32 %r1, %r2;", "0x3f800000"),
    ("mov.s32 %r2, -2; cvt.rn.sat.f32.s32 %r1, %r2;", "0x0"),
    (halves("mov.b64 %d1, 0x7fffffffffffffff; cvt.rz.bf16.u64 %h1, %d1;"), "0x5eff"),
    (halves("mov.b64 %d1, 0x4080000000000001; cvt.rn.bf16.u64 %h1, %d1;"), "0x5e81"),
])  # fmt: skip
def test_conversions_of_odd_values(text: str, wanted: str) -> None:
    assert word(text) == wanted


@pytest.mark.parametrize("mode, bits, wanted", [
    ("rna", "3F801000", "0x3f802000"), ("rn", "3F801000", "0x3f800000"),
    ("rn", "3F803000", "0x3f804000"), ("rz", "3F801FFF", "0x3f800000"),
    ("rna", "BF801000", "0xbf802000"), ("rn.relu", "BF801000", "0x0"),
])  # fmt: skip
def test_conversion_to_tf32_rounds(mode: str, bits: str, wanted: str) -> None:
    assert word(f"cvt.{mode}.tf32.f32 %r1, 0f{bits};") == wanted
