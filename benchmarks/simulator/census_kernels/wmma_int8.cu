// task: linear_i8
// wmma on 8-bit integers straight from global memory.
#include "task.cuh"

#include <mma.h>

using namespace nvcuda;

__global__ void gemm(const signed char* __restrict__ a, const signed char* __restrict__ w,
                     int* __restrict__ c, int n, int k) {
    const int row = blockIdx.y * 16, column = (blockIdx.x * blockDim.y + threadIdx.y) * 16;
    wmma::fragment<wmma::accumulator, 16, 16, 16, int> acc;
    wmma::fill_fragment(acc, 0);
    for (int at = 0; at < k; at += 16) {
        wmma::fragment<wmma::matrix_a, 16, 16, 16, signed char, wmma::row_major> x;
        wmma::fragment<wmma::matrix_b, 16, 16, 16, signed char, wmma::col_major> y;
        wmma::load_matrix_sync(x, a + (size_t)row * k + at, k);
        wmma::load_matrix_sync(y, w + (size_t)column * k + at, k);
        wmma::mma_sync(acc, x, y, acc);
    }
    wmma::store_matrix_sync(c + (size_t)row * n + column, acc, n, wmma::mem_row_major);
}

extern "C" void launch(int* out0, const signed char* x, const signed char* w, void* workspace,
                       cudaStream_t stream) {
    gemm<<<dim3(W_SIZE_0 / 64, X_SIZE_0 / 16), dim3(32, 4), 0, stream>>>(x, w, out0, W_SIZE_0,
                                                                      X_SIZE_1);
}
