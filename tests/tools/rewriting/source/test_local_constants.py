"""Sizes in a kernel's body stand before it where it is rewritten, and nowhere else."""

from __future__ import annotations

from kernelblaster.tools.rewriting.source.local_constants import with_sizes_before

KERNEL = """\
__global__ void {name}(const float* x, float* out) {{
    constexpr int i_size = 128;
    constexpr int r_size = X_SIZE_1 / 2;
    const int i = static_cast<int>(blockIdx.x) * blockDim.x + threadIdx.x;
    if (i < i_size) out[i] = x[i * r_size];
}}
"""
SOURCE = KERNEL.format(name="first") + "\n" + KERNEL.format(name="second")


def test_sizes_of_a_rewritten_kernel_are_known_to_what_launches_it() -> None:
    rewritten = SOURCE.replace("void second(const float* x", "void second(const float4* x")
    moved = with_sizes_before(SOURCE, rewritten)
    first, second = moved.split("constexpr int SECOND_I_SIZE = 128;")
    assert KERNEL.format(name="first") in first
    assert "constexpr int SECOND_R_SIZE = X_SIZE_1 / 2;" in second
    assert "if (i < SECOND_I_SIZE) out[i] = x[i * SECOND_R_SIZE];" in second
    assert "i_size" not in second


def test_sizes_that_only_a_launch_names_are_known_to_it() -> None:
    launched = SOURCE + "void launch() { first<<<1, 128>>>(); }\n"
    moved = with_sizes_before(launched, launched.replace("<<<1,", "<<<(i_size + 127) / 128,"))
    assert "constexpr int FIRST_I_SIZE = 128;" in moved


def test_what_is_not_rewritten_stays() -> None:
    assert with_sizes_before(SOURCE, SOURCE) == SOURCE
    taken = "constexpr int FIRST_I_SIZE = 1;\n" + SOURCE
    moved = with_sizes_before(taken, taken.replace("void first", "void other"))
    assert "constexpr int FIRST_I_SIZE_ = 128;" in moved
