"""Helpers add up numbers of whichever type a kernel has."""

from __future__ import annotations

import pytest

from kernelblaster.tools.rewriting.kernels.helpers import add_helpers
from kernelblaster.tools.rewriting.source.syntax import Source

KERNEL = """\
__global__ void sum_kernel(const {given}* x, {given}* out) {{
    {kept} total = 0;
    for (int k = 0; k < 64; ++k) {{
        total += x[k];
    }}
    out[0] = total;
}}
"""


@pytest.mark.parametrize(
    ("given", "kept"),
    [("float", "float"), ("double", "double"), ("int", "long long"), ("__half", "float")],
)
@pytest.mark.parametrize(("mapping", "lanes"), [("block", 32), ("warp", 32), ("warp", 8)])
def test_what_adds_up_is_of_the_type_of_the_sum(
    given: str, kept: str, mapping: str, lanes: int
) -> None:
    source = Source(KERNEL.format(given=given, kept=kept))
    add_helpers(source, {"sum", "max"}, mapping, packs=False, lanes=lanes)
    text = source.result()
    name = "lanes8" if lanes == 8 else mapping
    for kind in ("sum", "max"):
        assert text.count(f"{kept} {name}_{kind}({kept} value)") == 1
    assert ("float" in text) is (kept == "float")
    again = Source(text)
    add_helpers(again, {"sum", "max"}, mapping, packs=False, lanes=lanes)
    assert again.result() == text


def test_what_two_kernels_of_a_source_need_is_written_once() -> None:
    source = Source("// double\n__global__ void k(float* x) { x[0] = 1.0f; }\n")
    add_helpers(source, {"sum"}, "block", False)
    add_helpers(source, {"max", "sum"}, "block", False)
    text = source.result()
    for function in ("warp_sum", "warp_max", "block_sum", "block_max"):
        for ctype in ("float", "double"):
            assert text.count(f" {ctype} {function}({ctype} value) {{") == 1
