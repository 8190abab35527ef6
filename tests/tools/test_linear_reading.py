"""Replies, rewritten sources and profilers' messages are read in time as their length."""

from __future__ import annotations

import graph_support
import pytest
from often_or_seldom import every
from support.linear_reading import SECONDS, run_limited

from kernelblaster.tools.models.code_reply import MOST_EDITS, MalformedReply, read_code
from kernelblaster.tools.rewriting.records import Inapplicable
from kernelblaster.tools.rewriting.rewrite import LARGEST_READ
from kernelblaster.tools.rewriting.source.syntax import MOST_KERNELS, Source, definition
from kernelblaster.tools.techniques.catalogue import rewrites

HEAD = r"""
import graph_support
from kernelblaster.harness.nsight.pages import _plain
from kernelblaster.tools.models.code_reply import MalformedReply, read_code
from kernelblaster.tools.models.reply_forms import RawReply, find_object
from kernelblaster.tools.rewriting.rewrite import LARGEST_READ
from kernelblaster.tools.techniques.catalogue import rewrites
SIZE = 100_000
def read_reply(text):
    def tried(read, *arguments):
        try:
            read(*arguments)
        except MalformedReply:
            pass
    for reply in (
        text, f"```cuda\n// {text}\nlaunch(\n```", f"```cuda\n{text}\nlaunch(\n```\n",
        f"<<<<<<< SEARCH\n{text}\n=======\nb\n>>>>>>> REPLACE\n", f"PARAMETERS: {{{text}",
    ):
        tried(read_code, reply)
        tried(lambda: read_code(reply, text, may_decline=True))
        tried(find_object, reply)
        tried(lambda: RawReply(text="<think>" + reply).words())
        tried(lambda: RawReply(text=reply).words())
def rewrite(text):
    text = text[: LARGEST_READ - 2000]
    for body in (text, f"float (*f)({text} int);", f"__shared__ float s[32][32], {text.strip()};"):
        source = KERNEL.replace("BODY", body)
        for each in rewrites():
            if each.technique in ("fast_math", "pad_shared_memory", "drop_max_subtraction",
                                  "single_pass_variance", "unroll_loop", "tune_block_size"):
                each.apply(source, graph_support.text_task(), {})
KERNEL = '''#include "task.cuh"
__global__ void k(float* out0, const float* x, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) {
        float v = x[i];
        BODY
        out0[i] = v;
    }
}
extern "C" void launch(float* out0, const float* x, void* workspace, cudaStream_t stream) {
    k<<<1024, 256, 0, stream>>>(out0, x, 262144);
}
'''
"""
UNITS: dict[str, tuple[str, ...]] = {
    "read_reply(text)": (
        "/*", "{", "[", '{"a":', '"', "\n", " ", "\t", "```", "```cuda\n", "\n```\n", "~~~\n",
        "<<<<<<< SEARCH\n", "<<<<<<< SEARCH\na\n=======\nb\n>>>>>>> REPLACE\n", "<think>",
        "</think>", "// rest of ", "rest of ", "// ...", "launch ", "PARAMETERS: {", "a\n", "* ",
        "NOT APPLICABLE",
    ),
    "rewrite(text)": (
        "(", "{", " ", "float ", "float, ", "float a[4]; ", "align", "v - ", "v += (v - v) * (",
        "warp_", "__shared__ float s[32]; ", "__global__ void z() {} ", ";", "Pack<",
    ),
    "_plain(text)": (" ", "\n", "(https://", "(http", "@url:", "@a:", "@a:a:", "@"),
}  # fmt: skip


@pytest.mark.parametrize("reading", every(8, UNITS))
def test_much_of_anything_is_read(reading: str) -> None:
    longest = reading == "rewrite(text)"
    size = "LARGEST_READ" if longest else "SIZE"
    program = f"{HEAD}\nfor unit in {UNITS[reading]!r}:\n" + (
        f"    print(repr(unit), flush=True)\n    text = (unit * {size})[:{size}]\n    {reading}\n"
    )
    run_limited(program, 3 * SECONDS if longest else SECONDS)


def applied_to(source: str) -> list[str]:
    """What the built-in rewrites say of a source that none of them can read."""
    outcomes = [each.apply(source, graph_support.text_task(), {}) for each in rewrites()]
    return [outcome.reason for outcome in outcomes if isinstance(outcome, Inapplicable)]


KERNEL = """#include "task.cuh"
__global__ void k(float* out0, const float* x, int n) {{
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) {{
        {}
        out0[i] = x[i];
    }}
}}
extern "C" void launch(float* out0, const float* x, void* workspace, cudaStream_t stream) {{
    k<<<1024, 256, 0, stream>>>(out0, x, 262144);
}}
"""


@pytest.mark.parametrize(
    "line",
    [
        # Three times as deep as Python's calls may go; the time grows with the square of the depth.
        "float v = " + "x[i] + " * 3000 + "1.0f;",
        pytest.param("float v = " + "x[i] + " * 8000 + "1.0f;", marks=pytest.mark.seldom),
        pytest.param(
            "float v = " + "(" * 20000 + "1.0f" + ")" * 20000 + ";", marks=pytest.mark.seldom
        ),
        pytest.param("{" * 20000 + "}" * 20000, marks=pytest.mark.seldom),
        "float v = " + "-" * 30001 + "1.0f;",
        ";",
    ],
)
def test_a_source_that_is_nested_too_deeply_is_not_rewritten(line: str) -> None:
    assert applied_to(KERNEL.format(line)), "a reason, and no fault of ours"


def test_a_source_that_is_too_long_or_has_too_many_kernels_is_not_rewritten() -> None:
    reasons = applied_to(KERNEL.format("//" + " " * LARGEST_READ))
    assert len(reasons) == len(rewrites()) and all("characters" in each for each in reasons)
    many = KERNEL.format("") + "__global__ void z() {}\n" * (MOST_KERNELS + 1)
    assert any("kernels" in each for each in applied_to(many))
    assert any("kernels" not in each for each in applied_to(KERNEL.format("")))


def test_functions_that_call_each_other_are_looked_at_once() -> None:
    source = Source(
        "".join(
            f"float warp_{name}(float v) {{ return warp_{other}(v) + warp_{other}(v); }}\n"
            for name, other in ("ab", "bc", "ca", "dd")
        )
    )
    text = definition(source.root, "warp_a")
    assert [text.count(f"warp_{name}(float v)") for name in "abcd"] == [1, 1, 1, 0]


def test_edits_are_found_in_any_file_and_are_not_without_number() -> None:
    base = "launch(\n" + "a\n" * 100_000 + "b  \nc"
    edit = "<<<<<<< SEARCH\n{}\n=======\nd\n>>>>>>> REPLACE\n"
    found = read_code(edit.format("a\n" * 50_000 + "b"), base).source
    assert found is not None and found.endswith("a\nd\nc\n") and found.count("a\n") == 50_000
    with pytest.raises(MalformedReply, match="lines 2, 3, 4, 5, 6, 7 of"):
        read_code(edit.format("a\n" * 50_000 + "a"), base)
    with pytest.raises(MalformedReply, match="not in the file"):
        read_code(edit.format("a\n" * 50_000 + "c"), base)
    with pytest.raises(MalformedReply, match="too many"):
        read_code(edit.format("b") * (MOST_EDITS + 1), base)
