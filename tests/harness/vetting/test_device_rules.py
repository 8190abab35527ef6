"""Device code: clocks by what depends on them, policies, the heap, and directives of nvcc alone."""

from __future__ import annotations

import pytest

from kernelblaster.harness.vetting.device_rules import device_code, names_its_own_places
from kernelblaster.harness.vetting.ptx_statements import statements_of
from kernelblaster.harness.vetting.ptx_tokens import tokens_of

HEAD = """.version 9.0
.target sm_90
.address_size 64
.visible .entry k(.param .u64 p)
{
"""
FILES = """
	ret;
}
	.file	1 "/builds/candidate.cu"
	.file	2 "/toolkit/cuda/std/__cuda/chrono.h"
	.file	3 "/toolkit/cuda/std/__thread/threading_support.h"
	.file	4 "/toolkit/atomic"
"""
INLINED = "function_name $L__info_string0, inlined_at"


def messages(body: str) -> list[tuple[str, int | None]]:
    return [(found.message, found.line) for found in device_code(HEAD + body + FILES)]


def assembly(text: str) -> str:
    return f"\t// begin inline asm\n\t{text}\n\t// end inline asm\n"


@pytest.mark.parametrize(
    ("place", "register", "function", "words"),
    [
        ("1 12 5", "%globaltimer", "vprintf", ["%globaltimer: device code reads"]),
        ("1 12 5", "%clock64", "vprintf", ["%clock64: device code reads"]),
        ("1 12 5", "%pm0", "vprintf", ["%pm0: device code reads"]),
        ("1 12 5", "%clock_rate", "vprintf", []),
        (f"2 41 3, {INLINED} 1 12 5", "%globaltimer", "vprintf",
         ["%globaltimer: device code reads"]),
        (f"2 41 3, {INLINED} 3 65 5", "%globaltimer", "vprintf", []),
        (f"3 41 3, {INLINED} 1 12 5", "%clock", "vprintf", ["%clock: device code reads"]),
        ("1 12 5", "%rd7", "malloc", ["malloc in device code"]),
        ("4 12 5", "%rd7", "free", ["free in device code"]),
    ],
)  # fmt: skip
def test_clocks_and_the_heap(place: str, register: str, function: str, words: list[str]) -> None:
    body = f"\t.loc\t{place}\n\tmov.u64 %rd1, {register};\n\tcall.uni (r),\n\t{function},\n\t(q);\n"
    found = messages(body)
    assert len(found) == len(words)
    for (message, line), beginning in zip(found, words, strict=True):
        assert message.startswith(beginning)
        assert line == (None if place == "4 12 5" else 12)


@pytest.mark.parametrize("place", ["2 41 3", "4 41 3"])
def test_a_clock_in_a_function_of_the_toolkit_that_is_not_inlined(place: str) -> None:
    assert messages(f"\t.loc\t{place}\n\tmov.u64 %rd1, %globaltimer;\n") == [
        ("%globaltimer: device code reads the GPU's clock", None)
    ]


WAIT = """
	.loc	2 41 3, function_name $L__info_string0, inlined_at 3 65 5
	mov.u64 %rd1, %globaltimer;
$L5:
	mbarrier.try_wait.shared.b64 p, [%r1], %rd3;
	setp.eq.s32 %p3, %r14, 0;
	@!%p3 bra $L9;
	mov.u64 %rd2, %globaltimer;
	sub.s64 %rd5, %rd2, %rd1;
	setp.lt.s64 %p7, %rd5, 40000;
	@%p7 bra $L5;
	cvt.u32.u64 %r23, %rd5;
	INSIDE
	nanosleep.u32 %r23;
	bra.uni $L5;
$L9:
	AFTER
"""


@pytest.mark.parametrize(
    ("inside", "after", "acts"),
    [
        ("", "st.global.u32 [%rd9], %r14;", ""),
        ("shr.u32 %r23, %r23, 2;", "mov.u32 %r30, %r31;", ""),
        ("@%p3 bra $L6; add.s32 %r23, %r23, 1; $L6:", "", ""),
        ("", "st.global.u32 [%rd9], %r23;", "st"),
        ("", "st.global.u64 [%rd01], %r14;", "st"),
        ("", "shfl.sync.idx.b32 %r40, %r23, 0, 31, -1;", "shfl"),
        ("add.s32 %r30, %r30, 1;", "st.global.u32 [%rd9], %r30;", "st"),
        ("mov.u32 %r30, 7;",
         "add.u32 %r32, %r30, 1; @%p1 mov.u32 %r33, %r32; red.add [%rd9], %r33;", "red"),
        ("st.global.u32 [%rd9], 0;", "", "st"),
        ("bar.sync 0;", "", "bar"),
        ("@%p3 ret;", "", "ret"),
        ("", "@%p7 bra $L7; st.global.u32 [%rd9], 0; $L7:", "st"),
        ("", "@%p7 st.global.u32 [%rd9], 0;", "st"),
        ("", "@%p7 exit;", "exit"),
        ("", "setp.gt.u64 %p8, %rd2, 5; @%p8 mov.f32 %f1, 0f00000000; st.global.f32 [%rd9], %f1;",
         "st"),
        ("", "brx.idx %r23, T;", "brx"),
        ("", "st.param.b64 [q+0], %rd5;", "st"),
    ],
)  # fmt: skip
def test_what_depends_on_the_toolkits_clock(inside: str, after: str, acts: str) -> None:
    found = messages(WAIT.replace("INSIDE", inside).replace("AFTER", after))
    expected = f"{acts} depends on %globaltimer: device code acts by the GPU's clock"
    assert [message for message, _ in found] == ([expected] if acts else [])


def test_a_loop_that_leaves_by_the_clock_may_count_its_turns_only_for_itself() -> None:
    turns = WAIT.replace("INSIDE", "add.s32 %r50, %r50, 1;")
    assert not messages(turns.replace("AFTER", ""))
    assert messages(turns.replace("AFTER", "st.global.u32 [%rd9], %r50;"))


def test_what_a_clock_leaves_for_the_next_turn_of_a_loop_is_followed() -> None:
    around = WAIT.replace("INSIDE", "").replace("AFTER", "mov.u32 %r60, %r23;\n@%p4 bra $L0;")
    store = "\t.loc\t1 12 5\n$L0: st.global.u32 [%rd9], %r60;\n"
    assert messages(store + around) == [
        ("st depends on %globaltimer: device code acts by the GPU's clock", 12)
    ]
    assert not messages(store.replace("%r60", "%r61") + around)


@pytest.mark.parametrize(
    ("policy", "allowed"),
    [
        ("createpolicy.fractional.L2::evict_first.b64 %rd5, 1.0;", True),
        ("@%p1 createpolicy.fractional.L2::evict_first.b64 %rd5, 1.0;", True),
        ("mov.u64 %rd5, 1364590687093260288;", True),
        ("mov.b64 %rd4, 0x12F0000000000000;\nmov.b64 %rd5, %rd4;", True),
        ("mov.b64 %rd5, 0x14F0000000000000;", False),
        ("mov.b64 %rd5, 0x12F0000000000000;\n.loc 1 3 4\nmov.b64 %rd5, 0x14F0000000000000;", False),
        ("mov.b64 %rd5, 0x12F0000000000000; /* ; */ mov.b64 %rd05, 0x14F0000000000000;", False),
        ("mov.b64 %rd5, 0x12F0000000000000; ld.global.v2.u64 {%rd6, %rd5}, [%rd1];", False),
        ("mov.b64 %rd5, 0x12F0000000000000; mov.b64 %rd5, {%r1, %r2};", False),
        ("ld.param.u64 %rd5, [p];", False),
        ("add.s64 %rd5, %rd6, 1;", False),
        ("createpolicy.cvt.L2.b64 %rd5, %rd6;", False),
        ("createpolicy.fractional.L2::evict_last.b64 %rd5, 1.0;", False),
    ],
)
def test_policies_of_the_l2(policy: str, allowed: bool) -> None:
    body = f"\t.loc 1 2 3\n{policy}\n$L1: ld.global.L2::cache_hint.f32 %f1, [%rd1], %rd5;\n"
    found = messages(body)
    assert all("persisting-L2 tricks" in message for message, _ in found)
    assert (not found) is allowed


@pytest.mark.parametrize(
    "body",
    [
        assembly("{ .reg .pred p; mov.u32 %r1, 1; }"),
        assembly("{\n.reg .pred p;\nWAIT: @p bra DONE;\nbra WAIT;\nDONE:\n}"),
        assembly('.pragma "nounroll"; // .loc 1 1 1'),
        assembly(""),
        "\t.loc\t1 2 3\n\t.shared .align 4 .b8 tile[32];\n\t.local .b8 depot[8];\n"
        "\t{\n\t.param .b32 q;\n\t}\n$T: .branchtargets\n\t$A,\n\t$B;\n"
        "prototype_0 : .callprototype ()_ (.param .b64 _);\n",
    ],
)
def test_what_honest_code_holds(body: str) -> None:
    assert messages(body) == []


@pytest.mark.parametrize(
    ("body", "words"),
    [
        (assembly(".loc 1 1 1 mov.u32 %r1, 2;"), ".loc"),
        (assembly(".loc 1 1 1"), ".loc"),
        ("L: .loc 1 1 1\nmov.u32 %r1, 2;\n", ".loc"),
        (".loc 1 1 1 .loc 1 1 1\n", ".loc"),
        (".loc 1 1 1 /*\n*/ mov.u32 %r1, 2;\n", ""),
        (assembly(".shared .b32 s;"), ".shared in inline assembly"),
        (assembly(".global .b32 s;"), ".global in inline assembly"),
        (".global .b32 s;", ".global in a function"),
        (".const .b32 s = 4;", ".const in a function"),
        (assembly("ret; } .visible .entry o() { ret;"), "} in inline assembly closes"),
        (assembly("} {"), "} in inline assembly closes"),
        (assembly("{ } } {"), "} in inline assembly closes"),
        (assembly("{ { } } } {"), "} in inline assembly closes"),
        (assembly("{ { } }"), ""),
        (assembly("// end inline asm\nret;\n}\n.alias a, b;\n.visible .entry o() {"), ".alias"),
        ("ret; }\n.version 9.0\n.visible .entry o() {", ".version outside of functions"),
        ('ret; }\n.file 9 "a.h"\n.visible .entry o() {', ".visible outside of functions"),
        ("ret; }\n.maxntid 4\n.visible .entry o() {", ".maxntid outside of functions"),
        ("# 1 \"a\"\n", "PTX as nvcc does not write it"),
        ("/* ", "PTX as nvcc does not write it"),
        ("// a \r mov.u32 %r1, 1;\n", "PTX as nvcc does not write it: a carriage return"),
    ],
)
def test_directives_that_nvcc_does_not_write(body: str, words: str) -> None:
    found = messages(body)
    assert bool(found) is bool(words)
    assert not words or found[0][0].startswith(words)


@pytest.mark.parametrize(
    "text", ["", "@", "@ !", ".func (", ".entry", ".visible .entry k(", ".version"]
)
def test_a_text_that_ends_early_is_refused_not_raised(text: str) -> None:
    assert device_code(text) == () or device_code(text)[0].kind == "forbidden_symbol"
    assert device_code(HEAD + text) is not None


def test_statements() -> None:
    body = "A: B:\n@!%p01 ld.global.v2.f32 {%f1, _}, [%rd1+4];}"
    found = list(statements_of(tokens_of(HEAD + body)))
    load = found[-2]
    assert (load.word, load.modifiers, load.guard) == ("ld", (".global", ".v2", ".f32"), "%p1")
    assert load.operands == [["{", "%f1", ",", "_", "}"], ["[", "%rd1", "+", "4", "]"]]
    assert load.labels == ("A", "B") and load.function == "k"
    assert [statement.word for statement in found[:4]] == [
        ".version", ".target", ".address_size", ".visible",
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("text", "own"),
    [
        ('asm volatile(".loc 2 41 3, function_name $L, inlined_at 3 65 5");', True),
        ('asm volatile("\\t.file\\t7 \\"/x/chrono.h\\"");', True),
        ('asm volatile("nop; .loc/* */2 41 3");', True),
        ('asm volatile("// end inline asm\\n");', True),
        ('asm volatile("cp.async.wait_all;"); a.loc = b.file; a.loc(3); // file 3', False),
    ],
)
def test_places_that_assembly_tells_are_not_believed(text: str, own: bool) -> None:
    assert names_its_own_places(text) is own
    body = f"\t.loc\t2 41 3, {INLINED} 3 65 5\n\tmov.u64 %rd1, %globaltimer;\n"
    assert (device_code(HEAD + body + FILES, not own) == ()) is not own
