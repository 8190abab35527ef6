"""A kernel runs in its own part of a file as it does in the whole of it."""

from __future__ import annotations

import numpy as np
import pytest
from support.simt_support import compile_ptx, execute, kernel_named

from kernelblaster.harness.simt.decode.decoder import Programs

SOURCE = """
extern "C" __device__ __noinline__ float twice(float v) { return v > 0.0f ? 2.0f * v : v; }
extern "C" __global__ void first(float* y, int n) {
    for (int i = threadIdx.x; i < n; i += 32) y[i] += 1.0f;
}
extern "C" __global__ void second(float* y, int n) {
    __shared__ float part[32];
    float sum = 0.0f;
    for (int i = threadIdx.x; i < n; i += 32) sum += twice(y[i]);
    part[threadIdx.x] = sum;
    __syncthreads();
    y[threadIdx.x] = part[31 - threadIdx.x];
}
extern "C" __global__ void third(float* y, int n) { y[threadIdx.x] *= n; }
"""


@pytest.mark.parametrize("name", ["first", "second", "third"])
def test_a_kernel_alone_does_what_it_does_among_others(name: str) -> None:
    module = compile_ptx(SOURCE)
    kernel = kernel_named(module, name)
    part, places = Programs(module, {}).part(kernel)
    assert len(part.instructions) < len(module.instructions)
    assert list(places.values()) == list(range(len(part.instructions)))
    assert all(module.instructions[old].text == part.instructions[new].text
               for old, new in places.items())  # fmt: skip
    values = np.arange(64, dtype=np.float32) - 20
    (whole, expected), (alone, got) = (
        execute(each, kernel, 1, 32, values.copy(), 64) for each in (module, part)
    )
    np.testing.assert_array_equal(got[0], expected[0])
    assert [int(alone.counters["warps"][new]) for new in places.values()] == [
        int(whole.counters["warps"][old]) for old in places
    ]


def test_functions_that_are_called_by_address_keep_their_places() -> None:
    module = compile_ptx("""
typedef float (*Step)(float);
__device__ __noinline__ float up(float v) { return v + 1.0f; }
__device__ __noinline__ float down(float v) { return v - 1.0f; }
__device__ Step steps[2] = {up, down};
extern "C" __global__ void k(float* y, int n) { y[threadIdx.x] = steps[n](y[threadIdx.x]); }
extern "C" __global__ void other(float* y) { y[threadIdx.x] = 0.0f; }
""")
    part, places = Programs(module, {}).part("k")
    assert part is module and places[3] == 3
