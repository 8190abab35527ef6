"""wmma of tf32, 8-bit integers and f64: products, and where each access of a fragment lies.

The accesses are those of nvcc's machine code for sm_90 (nvdisasm of these very kernels).
"""

from __future__ import annotations

import numpy as np
import pytest
from simt_support import compile_ptx, counted, execute, kinds

from kernelblaster.harness.simt.ptx.parser import Module

SOURCE = r"""
#include <mma.h>
using namespace nvcuda;

template <int M, int N, int K, class T, class Acc, class Left, class Right>
__device__ void product(const T *a, const T *b, Acc *c, int lda, int ldb, int ldc,
                        wmma::layout_t order) {
    using In = std::conditional_t<std::is_same_v<T, float>, wmma::precision::tf32, T>;
    wmma::fragment<wmma::matrix_a, M, N, K, In, Left> fa;
    wmma::fragment<wmma::matrix_b, M, N, K, In, Right> fb;
    wmma::fragment<wmma::accumulator, M, N, K, Acc> fc;
    wmma::load_matrix_sync(fc, c, ldc, order);
    wmma::load_matrix_sync(fa, a, lda);
    wmma::load_matrix_sync(fb, b, ldb);
    wmma::mma_sync(fc, fa, fb, fc);
    wmma::store_matrix_sync(c, fc, ldc, order);
}
#define KERNEL(NAME, M, N, K, T, ACC, LEFT, RIGHT, ORDER)                                         \
    extern "C" __global__ void NAME(const T *a, const T *b, ACC *c, int lda, int ldb, int ldc) {  \
        product<M, N, K, T, ACC, wmma::LEFT##_major, wmma::RIGHT##_major>(                        \
            a, b, c, lda, ldb, ldc, wmma::mem_##ORDER##_major);                                   \
    }
KERNEL(tf32_rows, 16, 16, 8, float, float, row, row, row)
KERNEL(tf32_columns, 16, 16, 8, float, float, col, col, col)
KERNEL(bytes, 16, 16, 16, signed char, int, row, col, row)
KERNEL(bytes_across, 16, 16, 16, signed char, int, col, row, col)
KERNEL(bytes_tall, 32, 8, 16, signed char, int, row, col, row)
KERNEL(bytes_wide, 8, 32, 16, unsigned char, int, row, col, row)
KERNEL(doubles, 8, 8, 4, double, double, row, col, row)
"""

# Name: shape, types, whether A, B and the sums are row-major, requests and sectors of the loads of
# A, B and sums where the lines of a matrix are 256 elements apart.
KERNELS = {
    "tf32_rows": ((16, 16, 8), "f4", "f4", (1, 1, 1), ((4, 32), (4, 16), None)),
    "tf32_columns": ((16, 16, 8), "f4", "f4", (0, 0, 0), ((4, 16), (4, 32), None)),
    "bytes": ((16, 16, 16), "i1", "i4", (1, 0, 1), ((2, 16), (2, 16), (4, 32))),
    "bytes_across": ((16, 16, 16), "i1", "i4", (0, 1, 0), ((8, 32), (8, 32), (8, 32))),
    "bytes_tall": ((32, 8, 16), "i1", "i4", (1, 0, 1), ((4, 32), (1, 8), (4, 32))),
    "bytes_wide": ((8, 32, 16), "u1", "i4", (1, 0, 1), ((1, 8), (4, 32), (8, 32))),
    "doubles": ((8, 8, 4), "f8", "f8", (1, 0, 1), ((1, 8), (1, 8), (1, 16))),
}
PITCH = 256


@pytest.fixture(scope="module")
def module() -> Module:
    return compile_ptx(SOURCE)


@pytest.mark.parametrize("name", KERNELS)
def test_a_product_and_its_accesses(module: Module, name: str) -> None:
    (rows, columns, inner), kind, sums, orders, accesses = KERNELS[name]
    random = np.random.default_rng(3)
    shapes = ((rows, inner), (inner, columns), (rows, columns))
    matrices, stored = [], []
    for shape, dtype, by_rows in zip(shapes, (kind, kind, sums), orders, strict=True):
        matrix = random.integers(0 if dtype == "u1" else -9, 9, shape).astype(dtype)
        matrices.append(matrix)
        lines = matrix if by_rows else matrix.T
        padded = np.zeros((lines.shape[0], PITCH), dtype)
        padded[:, : lines.shape[1]] = lines
        stored.append(padded)
    a, b, c = (matrix.astype(np.float64) for matrix in matrices)
    result, (*_, got) = execute(module, name, 1, 32, *stored, PITCH, PITCH, PITCH)
    assert not kinds(result)
    lines = got[:, : columns if orders[2] else rows]
    assert np.array_equal((lines if orders[2] else lines.T).astype(np.float64), a @ b + c)
    for which, expected in zip("abc", accesses, strict=True):
        if expected:
            counts = [counted(module, result, "wmma", field, "load", which)
                      for field in ("global_requests", "sectors")]  # fmt: skip
            assert tuple(counts) == expected, which
