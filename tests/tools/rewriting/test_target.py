"""Which kernel a rewrite changed: what it says, else the costliest that reads otherwise now."""

from __future__ import annotations

import pytest

from kernelblaster.tools.rewriting import target
from kernelblaster.tools.rewriting.records import Rewritten
from kernelblaster.tools.rewriting.target import target_of

PARENT = """\
__global__ void first(float* x) { x[0] = expf(x[1]); }

// Adds.
__global__ void second(float* x) { x[0] = expf(x[2]); }

__global__ void third(float* x) { x[0] = 1.0f; }
"""
KERNELS = ("third", "first", "second")
"""The costliest first."""


@pytest.mark.parametrize(
    ("note", "old", "new", "wanted"),
    [
        ("second: 4 elements", "", "", "second"),
        ("second, first: 128 threads a block", "", "", "first"),
        ("fast forms: __expf", "expf(x[2])", "__expf(x[2])", "second"),
        ("fast forms: __expf", "= expf(", "= __expf(", "first"),
        # What stands before a kernel is no part of the one above it.
        ("unrolled", "// Adds.\n", "constexpr int N = 4;\n\n// Adds and adds.\n", "third"),
        ("a part", "// Adds.\n__global__ void second(float* x) { x[0] = expf(x[2]); }",
         "constexpr int N = 4;\n\n// Adds.\n__global__ void second(float* x) { x[0] = 0; }",
         "second"),
    ],
)  # fmt: skip
def test_the_kernel_that_changed_is_told(note: str, old: str, new: str, wanted: str) -> None:
    source = PARENT.replace(old, new) if old else PARENT
    assert target_of(Rewritten(source=source, note=note), PARENT, KERNELS) == wanted


def test_no_source_is_read_where_the_kernel_is_told_or_alone(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.delattr(target, "kernel_texts")
    told = Rewritten(source=PARENT, note="second: 4 elements")
    assert target_of(told, PARENT, KERNELS) == "second"
    assert target_of(Rewritten(source="", note="unrolled"), PARENT, ["third"]) == "third"
