// task: linear_i8
// 8-bit integers by dp4a: four products an instruction, tiles of packed words.
#include "task.cuh"

constexpr int T = 32;

__global__ __launch_bounds__(256) void gemm(const int* __restrict__ a, const int* __restrict__ w,
                                            int* __restrict__ c, int n, int words) {
    __shared__ int as[T][T + 1], bs[T][T + 1];
    const int x = threadIdx.x, y = threadIdx.y, row = blockIdx.y * T, column = blockIdx.x * T;
    int acc[4] = {};
    for (int at = 0; at < words; at += T) {
        for (int i = y; i < T; i += 8) {
            as[i][x] = __ldcs(a + (size_t)(row + i) * words + at + x);
            bs[i][x] = __ldcs(w + (size_t)(column + i) * words + at + x);
        }
        __syncthreads();
#pragma unroll 8
        for (int i = 0; i < T; i++)
            for (int p = 0; p < 4; p++) acc[p] = __dp4a(as[y + 8 * p][i], bs[x][i], acc[p]);
        __syncthreads();
    }
    for (int p = 0; p < 4; p++) __stcs(c + (size_t)(row + y + 8 * p) * n + column + x, acc[p]);
}

extern "C" void launch(int* out0, const signed char* x, const signed char* w, void* workspace,
                       cudaStream_t stream) {
    static_assert(X_SIZE_1 % (4 * T) == 0, "whole tiles");
    gemm<<<dim3(W_SIZE_0 / T, X_SIZE_0 / T), dim3(T, 8), 0, stream>>>(
        (const int*)x, (const int*)w, out0, W_SIZE_0, X_SIZE_1 / 4);
}
