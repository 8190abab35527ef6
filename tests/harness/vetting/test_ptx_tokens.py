"""PTX is split as ptxas splits it: what ptxas says of each text stands beside it."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from kernelblaster.harness.build.toolchain import find_toolchain
from kernelblaster.harness.vetting.ptx_statements import statements_of
from kernelblaster.harness.vetting.ptx_tokens import NotPtx, end_of_location, read_ptx, tokens_of

KERNEL = """.version 8.0
.target sm_90
.address_size 64
.visible .entry k(.param .u64 k_param_0)
{
    .reg .b32 %r<9>; .reg .b64 %rd<3>; .reg .f32 %f<3>;
    ld.param.u64 %rd1, [k_param_0];
    cvta.to.global.u64 %rd2, %rd1;
    mov.u32 %r1, 1;
BODY
    st.global.u32 [%rd2], %r1;
    ret;
}
"""


def words(text: str) -> list[str]:
    return [token.text for token in tokens_of(text)]


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("mov/**/.u32 %r1, 2;", ["mov", ".u32", "%r1", ",", "2", ";"]),
        ("/* /* */ a // */", ["a"]),
        ("// /*\na; // */", ["a", ";"]),
        ("// a \\\nb", ["b"]),
        ("// a \r b\nc", ["c"]),
        ("// a \f b\nc", ["c"]),
        ("a\r\f\tb", ["a", "b"]),
        ('.pragma "/*"; a; ".*/"', [".pragma", '"/*"', ";", "a", ";", '".*/"']),
        ('.pragma "a\\"; b; //"', [".pragma", '"a\\"', ";", "b", ";"]),
        ('"a\nb" c', ['"a\nb"', "c"]),
        ("0f3F800000 0d3FF0000000000000 0x1fU 0b11 010 1.5e3 2. .5",
         ["0f3F800000", "0d3FF0000000000000", "0x1fU", "0b11", "010", "1.5e3", "2.", ".5"]),
        ("ld.shared::cta.L2::128B.v2.f32", ["ld", ".shared::cta", ".L2::128B", ".v2", ".f32"]),
        ("%tid.x _ _a $L__BB0_1: a<4>", ["%tid", ".x", "_", "_a", "$L__BB0_1", ":", "a", "<", "4",
                                         ">"]),
        ("mov.u32%r1,-4+~1<<2", ["mov", ".u32", "%r1", ",", "-", "4", "+", "~", "1", "<<", "2"]),
    ],
)  # fmt: skip
def test_tokens(text: str, found: list[str]) -> None:
    assert words(text) == found


@pytest.mark.parametrize(
    "text",
    ["/* open", "a /* b", '"open', "# 1 \"a.cu\"", "\v", "\0", "é", "09", "12abc", "0f3F80",
     "0f3F8000001", "10u", "a \\\n b", "`"],
)  # fmt: skip
def test_what_is_no_token(text: str) -> None:
    with pytest.raises(NotPtx) as caught:
        tokens_of("a\n" + text)
    assert caught.value.line == 2


def test_what_is_no_token_is_quoted_to_the_end_of_its_line() -> None:
    with pytest.raises(NotPtx, match=r"no PTX: '`mov' \(PTX line 1\)"):
        tokens_of("ld.global.v2.f32 %f1; `mov\nret;")


def test_lines_are_counted_through_comments_and_strings() -> None:
    found = tokens_of('a /* \n */ b "\n" c // d\n\ne')
    assert [(token.text, token.line) for token in found if token.text != '"\n"'] == [
        ("a", 1), ("b", 2), ("c", 3), ("e", 5),
    ]  # fmt: skip


def test_a_file_keeps_its_line_ends(tmp_path: Path) -> None:
    (tmp_path / "k.ptx").write_bytes(b"// a \r b\r\nc \xe9")
    assert read_ptx(tmp_path / "k.ptx").startswith("// a \r b\r\nc ")


def test_what_stands_in_inline_assembly() -> None:
    text = "a\n\t// begin inline asm\n\tb // begin inline asm c\n\t// end inline asm\nd"
    assert [(token.text, token.inline) for token in tokens_of(text)] == [
        ("a", False), ("b", True), ("d", False),
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("text", "length"),
    [
        (".loc 1 2 3 mov", 4),
        (".loc\n1\n2 3 L : mov", 4),
        (".loc 1 2 3, function_name $L, inlined_at 4 5 6 mov", 12),
        (".loc 1 2 3, function_name $L+16, inlined_at 4 5 6 mov", 14),
        ('.file 1 "a" .file', 3),
        (".loc 0x1 2 3", None),
        (".loc 1 2", None),
        (".loc 1 2 3, function_name $L", None),
        (".file 1", None),
    ],
)
def test_where_a_location_ends(text: str, length: int | None) -> None:
    tokens = tokens_of(text)
    if length is None:
        with pytest.raises(NotPtx):
            end_of_location(tokens, 0)
    else:
        assert end_of_location(tokens, 0) == length


ACCEPTED = (
    "mov/**/.u32 %r1, 2;", "/* /* */ mov.u32 %r1, 2;", "// /*\nmov.u32 %r1, 2; // */",
    '.pragma "a\\"; mov.u32 %r1, 2; //";', '.pragma "/*"; mov.u32 %r1, 2; .pragma "*/";',
    "mov .u32\n%r1\n,\n2\n;", "L: L2 : mov.u32 %r1, 2;", "\r\fmov.u32 %r1, 2;",
    ".loc 1 1 1 mov.u32 %r1, 2;", "{{{ mov.u32 %r1, 2; }}}", "mov.u32%r1,2;",
    "// \r mov.u32 %r1, 3;\nmov.u32 %r1,2;", "@!%p1 mov.u32 %r1, 2;",
)  # fmt: skip
REFUSED = (
    "mo/**/v.u32 %r1, 2;", "\vmov.u32 %r1, 2;", "mov.u32 \\\n%r1, 2;", "mov.u32 %r1, 09;",
    "mov.u32 %r1, 2; /* ", "mov.u32 % r1, 2;", "mov.u32 %r1, 10u;", '.pragma "a; mov.u32 %r1, 2;',
    ".loc 1 1 mov.u32 %r1, 2;", ".loc 1 1 1; mov.u32 %r1, 2;", "mov.u32 %r1,, 2;", "; ;",
)  # fmt: skip


@pytest.mark.parametrize("body", [*ACCEPTED, *REFUSED])
def test_ptxas_agrees(tmp_path: Path, body: str) -> None:
    """What the rules above rest on, asked of the compiler that is installed."""
    ptxas = find_toolchain().tool("ptxas")
    if ptxas is None:
        pytest.skip("no ptxas")
    text = KERNEL.replace("BODY", body).replace(".reg .b32", ".reg .pred %p<2>; .reg .b32")
    (tmp_path / "k.ptx").write_bytes(text.encode())
    command = [str(ptxas), "-arch=sm_90", "k.ptx", "-o", "k.cubin"]
    status = subprocess.run(command, cwd=tmp_path, capture_output=True, check=False).returncode
    assert (status == 0) is (body in ACCEPTED)
    if body in ACCEPTED:
        moves = [statement for statement in statements_of(tokens_of(text))
                 if statement.word == "mov"]  # fmt: skip
        assert [move.operands for move in moves] == [[["%r1"], ["1"]], [["%r1"], ["2"]]]
