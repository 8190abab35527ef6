"""The PTX parser on text that only inline assembly produces: what ptxas runs, and no other."""

from __future__ import annotations

import pytest

from kernelblaster.harness.simt.ptx.parser import PtxError, parse
from kernelblaster.harness.simt.ptx.records import Immediate, Register, Special, Symbol

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


def operands(body: str) -> list[tuple[object, ...]]:
    module = parse(KERNEL.replace("BODY", ".reg .pred %p<3>; .reg .b32 %r<9>; " + body))
    return [each.operands for each in module.instructions[4:-1]]


@pytest.mark.parametrize(
    ("text", "bits"),
    [
        ("010", 8), ("0b11U", 3), ("0X1fU", 31), ("- 4", -4), ("--4", 4), ("+4", 4), ("~0", -1),
        ("1+2*3", 7), ("(1+2)*3", 9), ("7-2-1", 4), ("-7/2", -3), ("-7 % 4", -3), ("1<<4>>2", 4),
        ("WARP_SZ - 32", 0), ("1 ? 4 : 5", 4), ("2 > 1 ? 0 ? 7 : 8 : 9", 8), ("3 && 0 || 2", 1),
        ("6 & 3 ^ 1 | 8", 11), ("1 == 1 != 0", 1), ("!0", None), ("(.s64)-1", -1),
        ("(.u64)-1", (1 << 64) - 1), ("4294967299", 4294967299),
    ],
)  # fmt: skip
def test_whole_numbers(text: str, bits: int | None) -> None:
    if bits is None:
        with pytest.raises(PtxError):  # ptxas takes it for one; nobody writes it
            operands(f"mov.u32 %r1, {text};")
    else:
        assert operands(f"mov.u32 %r1, {text};") == [
            (Register("k|%r1", "b32"), Immediate("integer", bits))
        ]


@pytest.mark.parametrize(
    ("text", "kind", "bits"),
    [
        ("0f3F800000", "f32", 0x3F800000), ("0D3ff0000000000000", "f64", 0x3FF0000000000000),
        ("1.", "f64", 0x3FF0000000000000), (".5", "f64", 0x3FE0000000000000),
        ("-1.0", "f64", 0xBFF0000000000000), ("1e2", "f64", 0x4059000000000000),
    ],
)  # fmt: skip
def test_fractions(text: str, kind: str, bits: int) -> None:
    assert operands(f"mov.b32 %r1, {text};")[0][1] == Immediate(kind, bits)


@pytest.mark.parametrize("text", ["1/0", "1 << 64", "1.0 + 2", "~1.0", "(1", "1 ? 2", "- %r1"])
def test_numbers_that_are_refused(text: str) -> None:
    with pytest.raises(PtxError):
        operands(f"mov.u32 %r1, {text};")


def test_two_spellings_of_a_register_are_one() -> None:
    assert operands("mov.u32 %r01, %r1;") == [(Register("k|%r1", "b32"), Register("k|%r1", "b32"))]
    assert operands("mov.u32 %r1, %r9;")[0][1] == Symbol("%r9"), "beyond the family"


def test_special_registers() -> None:
    assert operands("mov.u32 %r1, %tid.r;")[0][1] == Special("%tid.x")
    assert operands("mov.u32 %r1, %tid /**/ .y;")[0][1] == Special("%tid.y")
    assert operands(".reg .b32 %tid; mov.u32 %r1, %tid;")[0][1] == Register("k|%tid", "b32")
    with pytest.raises(PtxError):
        operands("mov.u32 %r1, %r2.x;")


def test_a_label_is_that_of_the_innermost_scope() -> None:
    module = parse(KERNEL.replace("BODY", """
        { bra OVER; bra OUT; OVER: }
        { bra OVER; { bra OVER; } OVER: bar.sync 0; }
        OUT: .reg .b32 %r<2>; brx.idx %r1, T; T: .branchtargets OUT, OUT;
    """))
    function = module.functions["k"]
    jumps = [each.operands[0] for each in module.instructions if each.opcode == "bra"]
    names = [jump.name for jump in jumps if isinstance(jump, Symbol)]
    assert names[0] != names[2] == names[3] and names[1] == "OUT"
    assert module.instructions[function.labels[names[2]]].opcode == "bar"
    assert function.branch_tables == {"T": ("OUT", "OUT")}
    for wrong in ("{ A: } bra A;", "A: A: ret;", ".reg .b32 A; A: ret;", "bra NOWHERE;"):
        with pytest.raises(PtxError):
            parse(KERNEL.replace("BODY", wrong))


@pytest.mark.parametrize(
    "body",
    [
        ".loc 1 12 1 mov.u32 %r1, 2;", "L: .loc 1 12 1 mov.u32 %r1, 2;", "mov/**/.u32 %r1, 2;",
        '.pragma "/*"; mov.u32 %r1, 2; .pragma "*/";', "// /*\nmov.u32 %r1, 2; // */",
        '.pragma "\n.section .debug_str\n"; mov.u32 %r1, 2;', "mov\n.u32\n%r1\n,\n2\n;",
        "// a \r mov.u32 %r1, 3;\nmov.u32 %r1, 2;",
    ],
)  # fmt: skip
def test_nothing_hides_an_instruction(body: str) -> None:
    assert operands(body) == [(Register("k|%r1", "b32"), Immediate("integer", 2))]


@pytest.mark.parametrize(
    "body",
    ["mov.u32 %r1, , 2;", "mov.u32 %r1 2;", ".reg .v2 .b32 %v;", ".global .b32 g;", ".byte 1;",
     "mov.u32 %r1, [%r2", "@%r7x mov.u32 %r1, 2;", ".extern .func f();", "call f, (3);"],
)  # fmt: skip
def test_what_is_not_understood_is_refused(body: str) -> None:
    with pytest.raises(PtxError):
        operands(body)


def test_variables() -> None:
    module = parse("""
        .version 8.0 .target sm_90 .address_size 64
        .visible .global .align 8 .u64 table[3] = {generic(other), 7-4, k};
        .global .align 4 .f32 other[2][2] = {{0f3F800000, 0f40000000}, {0f00000000}};
        .weak .entry k(.param .align 8 .b8 p[16]) .maxntid 8, 4, 2 .minnctapersm 2 { ret; }
        .visible .entry plain() { ret; }
    """)
    table = module.variables["table"]
    assert table.relocations == ((0, "other"), (16, "k")) and table.generic == (0,)
    assert table.initial == bytes(8) + (3).to_bytes(8, "little") + bytes(8)
    assert module.variables["other"].size == 16
    assert module.functions["k"].parameters[0].size == 16
    assert module.functions["k"].limits[:4] == (".maxntid", "8", ",", "4")
    for wrong in (".global .u64 a[2] = {b+8, 1};", ".global .b8 a[8] = {0xFF(b)};",
                  ".global .b32 a; .global .b32 a;", ".alias a, b;"):  # fmt: skip
        with pytest.raises(PtxError):
            parse(f".version 8.0 .target sm_90 .address_size 64 {wrong}")
