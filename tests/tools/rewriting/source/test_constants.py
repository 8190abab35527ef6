"""A constant of a source is known by its one definition, of the file or of a function."""

from __future__ import annotations

from builtin_support import softmax_task

from kernelblaster.tools.rewriting.source.constants import Constants
from kernelblaster.tools.rewriting.source.syntax import Source

SOURCE = """\
#define WARP 32
constexpr int TILE = 4 * WARP;
#if __CUDA_ARCH__ >= 900
constexpr int BLOCK = 512;
#else
constexpr int BLOCK = 256;
#endif
__global__ void twice(float* x) {
    constexpr int items = 2;
    const int TILE = 1;
    x[threadIdx.x] *= items;
}
"""


def test_what_a_branch_of_the_preprocessor_defines_is_not_known() -> None:
    constants = Constants(Source(SOURCE), softmax_task())
    assert constants.pair("BLOCK") is None
    values = {name: constants.pair(name) for name in ("WARP", "TILE", "items")}
    assert {name: pair and pair.full for name, pair in values.items()} == {
        "WARP": 32, "TILE": 128, "items": 2,
    }  # fmt: skip
