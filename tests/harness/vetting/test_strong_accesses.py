"""Which lines of PTX hold accesses that cannot race with each other."""

from __future__ import annotations

import pytest

from kernelblaster.harness.vetting.strong_accesses import strong_lines

HEAD = """.version 8.0
.target sm_90
.address_size 64
.visible .entry scale(.param .u64 x)
{
.loc 1 5 1
ld.param.u64 %rd1, [x];
"""
TAIL = """ret;
}
.file 1 "/a/folder/candidate.cu"
"""


@pytest.mark.parametrize(
    ("instructions", "strong"),
    [
        ("ld.relaxed.cta.shared.u32 %r1, [%rd1];", True),
        ("st.release.gpu.u32 [%rd1], %r1;", True),
        ("@%p1 atom.shared.add.u32 %r1, [%rd1], 1;", True),
        ("red.global.add.u32 [%rd1], 1;", True),
        ("ld.shared.u32 %r1, [%rd1];", False),
        ("ld.volatile.shared.u32 %r1, [%rd1];", False),
        ("ldmatrix.sync.aligned.m8n8.x1.shared.b16 {%r1}, [%rd1];", False),
        ("cp.async.ca.shared.global [%r1], [%rd1], 16;", False),
        ("ld.relaxed.cta.shared.u32 %r1, [%rd1];\nst.shared.u32 [%rd1], %r1;", False),
        ("add.u32 %r1, %r1, 1;", False),
    ],
)
def test_a_line_is_strong_where_every_access_is(instructions: str, strong: bool) -> None:
    text = f"{HEAD}.loc 1 7 1\n{instructions}\n{TAIL}"
    assert strong_lines(text) == (frozenset({("candidate.cu", 7)}) if strong else frozenset())


def test_a_line_that_inline_assembly_also_claims_is_judged_with_it() -> None:
    text = f"{HEAD}.loc 1 7 1\nred.global.add.u32 [%rd1], 1;\n"
    text += f".loc 1 8 1\nret;\n.loc 1 7 1\nst.shared.u32 [%rd1], %r1;\n{TAIL}"
    assert strong_lines(text) == frozenset()
