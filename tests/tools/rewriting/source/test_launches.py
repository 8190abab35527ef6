"""A kernel that is launched several times changes where all launches are alike."""

from __future__ import annotations

import re

import pytest
from builtin_support import attempt, change, gelu_task

from kernelblaster.tools.rewriting.records import Inapplicable, NotRecognised
from kernelblaster.tools.rewriting.source.syntax import Source

KERNEL = """\
#include "task.cuh"

__global__ void twice(float* out, const float* in, int count) {
    const int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < count) {
        out[i] = in[i] * 0.5f;
    }
}

"""
HEAD = 'extern "C" void launch(float* out0, const float* x, void* workspace, cudaStream_t stream) {'
GRID = "(X_NUMEL + 255) / 256"
ALIKE = {
    "written out": f"""
    float* half = static_cast<float*>(workspace);
    twice<<<{GRID}, 256, 0, stream>>>(half, x, X_NUMEL);
    twice<<<{GRID}, 256, 0, stream>>>(out0, half, X_NUMEL);
""",
    "by variables": f"""
    float* half = static_cast<float*>(workspace);
    const int grid = {GRID};
    const dim3 block(256);
    twice<<<grid, block, 0, stream>>>(half, x, X_NUMEL);
    twice<<<grid, block, 0, stream>>>(out0, half, X_NUMEL);
""",
    "by a variable that is read elsewhere too": f"""
    float* half = static_cast<float*>(workspace);
    const int grid = {GRID};
    const int other = grid + 1;
    twice<<<grid, 256, 0, stream>>>(half, x, X_NUMEL);
    twice<<<grid, 256, 0, stream>>>(out0, half, X_NUMEL);
""",
}
UNLIKE = {
    "another grid": f"""
    twice<<<{GRID}, 256, 0, stream>>>(out0, x, X_NUMEL);
    twice<<<{GRID} + 1, 256, 0, stream>>>(out0, x, X_NUMEL);
""",
    "another size": f"""
    twice<<<{GRID}, 256, 0, stream>>>(out0, x, X_NUMEL);
    twice<<<{GRID}, 256, 0, stream>>>(out0, x, X_NUMEL / 2);
""",
    "another block of statements": f"""
    {{
        twice<<<{GRID}, 256, 0, stream>>>(out0, x, X_NUMEL);
    }}
    twice<<<{GRID}, 256, 0, stream>>>(out0, x, X_NUMEL);
""",
}


@pytest.mark.parametrize("way", ALIKE)
@pytest.mark.parametrize("technique", ["thread_coarsening", "grid_stride_loop", "tune_block_size"])
def test_all_launches_of_a_kernel_change_alike(way: str, technique: str) -> None:
    made = gelu_task()
    text = change(f"{KERNEL}{HEAD}{ALIKE[way]}}}\n", made, technique)
    first, second = (part.split(">>>")[0] for part in text.split("<<<")[1:])
    assert first == second
    unchanged = f"{GRID}, 256, 0, stream" in text or "const int grid = " + GRID in text
    assert not unchanged or "read elsewhere" in way


VARYING = {
    "a size": """
    int n = X_NUMEL / 2;
    twice<<<(n + 255) / 256, 256, 0, stream>>>(out0, x, n);
    n = X_NUMEL;
    twice<<<(n + 255) / 256, 256, 0, stream>>>(out0, x, n);
""",
    "a grid": f"""
    unsigned grid = {GRID};
    twice<<<grid, 256, 0, stream>>>(out0, x, X_NUMEL);
    grid += 3;
    twice<<<grid, 256, 0, stream>>>(out0, x, X_NUMEL);
""",
    "a count up": f"""
    int n = 7;
    twice<<<{GRID}, 256, 0, stream>>>(out0, x, n);
    ++n;
    twice<<<{GRID}, 256, 0, stream>>>(out0, x, n);
""",
    "what somebody else may change": f"""
    int n = 7;
    twice<<<{GRID}, 256, 0, stream>>>(out0, x, n);
    change(&n);
    twice<<<{GRID}, 256, 0, stream>>>(out0, x, n);
""",
}


@pytest.mark.parametrize(
    ("host", "why"),
    [(host, "launched in 2 ways") for host in UNLIKE.values()]
    + [(host, "varies") for host in VARYING.values()],
    ids=[*UNLIKE, *VARYING],
)
def test_a_kernel_that_is_launched_in_several_ways_is_left_alone(host: str, why: str) -> None:
    # Those that vary are alike by their text alone.
    made = gelu_task()
    for technique in ("thread_coarsening", "grid_stride_loop", "tune_block_size"):
        outcome = attempt(f"{KERNEL}{HEAD}{host}}}\n", made, technique)
        assert isinstance(outcome, Inapplicable)
        assert why in outcome.reason


def test_one_constant_is_not_given_two_values() -> None:
    made = gelu_task()
    plane = """\
#include "task.cuh"

constexpr int T = 16;
constexpr int U = 16;

__global__ void plane(float* out, const float* in) {
    const int column = blockIdx.x * blockDim.x + threadIdx.x;
    const int row = blockIdx.y * blockDim.y + threadIdx.y;
    if (row >= 64 || column >= 64) return;
    out[row * 64 + column] = in[row * 64 + column];
}

"""
    line = KERNEL.removeprefix('#include "task.cuh"\n\n')
    host = """
    plane<<<dim3((64 + T - 1) / T, (64 + U - 1) / U), dim3(T, U), 0, stream>>>(out0, x);
    twice<<<(X_NUMEL + T - 1) / T, T, 0, stream>>>(out0, x, X_NUMEL);
"""
    square = """
    plane<<<dim3((64 + T - 1) / T, (64 + T - 1) / T), dim3(T, T), 0, stream>>>(out0, x);
"""
    text = change(f"{plane}{line}{HEAD}{host}}}\n", made, "tune_block_size", block_size=128)
    values = re.findall(r"constexpr int [TU] = (\d+);", text)
    assert len(values) == 2 and {*values} <= {"4", "16", "32", "128"}
    text = change(f"{plane}{HEAD}{square}}}\n", made, "tune_block_size", block_size=128)
    assert "dim3(32, 4)" in text and "324" not in text


def test_what_is_inserted_into_a_replaced_range_stands_before_it() -> None:
    source = Source("__global__ void k() { a; }")
    source.cut(5, 20, "new")
    source.cut(10, 10, "before ")
    source.cut(5, 5, "first ")
    source.cut(20, 20, " after")
    assert source.result() == "__globefore first new after{ a; }"
    with pytest.raises(NotRecognised), source.all_or_none():
        source.cut(0, 2, "x")
        source.cut(18, 22, "another")
    assert "x" not in source.result()


def test_one_launch_with_a_pointer_that_may_not_be_aligned_keeps_all_from_wide_accesses() -> None:
    made = gelu_task()
    moved = ALIKE["written out"].replace("(out0, half,", "(out0, half + 1,")
    outcome = attempt(f"{KERNEL}{HEAD}{moved}}}\n", made, "vectorize_memory_access")
    assert isinstance(outcome, Inapplicable) and "aligned" in outcome.reason
