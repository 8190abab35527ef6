"""A kernel that is launched several times changes where all launches are alike."""

from __future__ import annotations

import pytest
from builtin_support import attempt, change, gelu_task

from kernelblaster.tools.rewriting.records import Inapplicable

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


@pytest.mark.parametrize("way", UNLIKE)
def test_a_kernel_that_is_launched_in_several_ways_is_left_alone(way: str) -> None:
    made = gelu_task()
    for technique in ("thread_coarsening", "grid_stride_loop", "tune_block_size"):
        outcome = attempt(f"{KERNEL}{HEAD}{UNLIKE[way]}}}\n", made, technique)
        assert isinstance(outcome, Inapplicable)
        assert "launched in 2 ways" in outcome.reason


def test_one_launch_with_a_pointer_that_may_not_be_aligned_keeps_all_from_wide_accesses() -> None:
    made = gelu_task()
    moved = ALIKE["written out"].replace("(out0, half,", "(out0, half + 1,")
    outcome = attempt(f"{KERNEL}{HEAD}{moved}}}\n", made, "vectorize_memory_access")
    assert isinstance(outcome, Inapplicable) and "aligned" in outcome.reason
