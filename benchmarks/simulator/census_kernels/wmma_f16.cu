// task: linear_f16
// wmma 16x16x16 fragments, results through shared memory.
#include "task.cuh"

#include <cuda_fp16.h>
#include <mma.h>

using namespace nvcuda;
constexpr int T = 64, TK = 32;

__global__ __launch_bounds__(128) void gemm(const __half* __restrict__ a, const __half* __restrict__ w,
                                            __half* __restrict__ c, int n, int k) {
    __shared__ __align__(32) __half as[T][TK + 8], bs[T][TK + 8];
    __shared__ __align__(32) float out[4][16][16];
    const int t = threadIdx.x, warp = t / 32, row = blockIdx.y * T, column = blockIdx.x * T;
    wmma::fragment<wmma::accumulator, 16, 16, 16, float> acc[4];
    for (auto& f : acc) wmma::fill_fragment(f, 0.f);
    for (int at = 0; at < k; at += TK) {
        for (int i = t; i < T * TK / 8; i += 128) {
            int r = i / 4, q = i % 4 * 8;
            *(uint4*)&as[r][q] = *(const uint4*)(a + (size_t)(row + r) * k + at + q);
            *(uint4*)&bs[r][q] = *(const uint4*)(w + (size_t)(column + r) * k + at + q);
        }
        __syncthreads();
        for (int step = 0; step < TK; step += 16) {
            wmma::fragment<wmma::matrix_a, 16, 16, 16, __half, wmma::row_major> x;
            wmma::fragment<wmma::matrix_b, 16, 16, 16, __half, wmma::col_major> y;
            wmma::load_matrix_sync(x, &as[16 * warp][step], TK + 8);
            for (int j = 0; j < 4; j++) {
                wmma::load_matrix_sync(y, &bs[16 * j][step], TK + 8);
                wmma::mma_sync(acc[j], x, y, acc[j]);
            }
        }
        __syncthreads();
    }
    for (int j = 0; j < 4; j++) {
        wmma::store_matrix_sync(&out[warp][0][0], acc[j], 16, wmma::mem_row_major);
        __syncwarp();
        for (int i = t % 32; i < 256; i += 32)
            c[(size_t)(row + 16 * warp + i / 16) * n + column + 16 * j + i % 16] =
                __float2half(out[warp][i / 16][i % 16]);
        __syncwarp();
    }
}

extern "C" void launch(__half* out0, const __half* x, const __half* w, void* workspace,
                       cudaStream_t stream) {
    gemm<<<dim3(W_SIZE_0 / T, X_SIZE_0 / T), 128, 0, stream>>>(x, w, out0, W_SIZE_0, X_SIZE_1);
}
