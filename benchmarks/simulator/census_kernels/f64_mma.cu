// task: linear_f64
// Double precision on tensor cores: mma.sync m8n8k4, a 16 x 16 tile a warp.
#include "task.cuh"

constexpr int T = 16, TK = 16;

__global__ __launch_bounds__(32) void gemm(const double* __restrict__ a, const double* __restrict__ w,
                                           double* __restrict__ c, int n, int k) {
    __shared__ double as[T][TK + 1], bs[T][TK + 1];
    const int lane = threadIdx.x, row = blockIdx.y * T, column = blockIdx.x * T;
    double acc[2][2][2] = {};
    for (int at = 0; at < k; at += TK) {
        for (int i = lane; i < T * TK; i += 32) {
            as[i / TK][i % TK] = a[(size_t)(row + i / TK) * k + at + i % TK];
            bs[i / TK][i % TK] = w[(size_t)(column + i / TK) * k + at + i % TK];
        }
        __syncwarp();
        for (int step = 0; step < TK; step += 4)
            for (int i = 0; i < 2; i++)
                for (int j = 0; j < 2; j++)
                    asm volatile("mma.sync.aligned.m8n8k4.row.col.f64.f64.f64.f64 {%0,%1}, {%2}, "
                                 "{%3}, {%0,%1};"
                                 : "+d"(acc[i][j][0]), "+d"(acc[i][j][1])
                                 : "d"(as[8 * i + lane / 4][step + lane % 4]),
                                   "d"(bs[8 * j + lane / 4][step + lane % 4]));
        __syncwarp();
    }
    for (int i = 0; i < 2; i++)
        for (int j = 0; j < 2; j++)
            *(double2*)(c + (size_t)(row + 8 * i + lane / 4) * n + column + 8 * j + lane % 4 * 2) =
                make_double2(acc[i][j][0], acc[i][j][1]);
}

extern "C" void launch(double* out0, const double* x, const double* w, void* workspace,
                       cudaStream_t stream) {
    gemm<<<dim3(W_SIZE_0 / T, X_SIZE_0 / T), 32, 0, stream>>>(x, w, out0, W_SIZE_0, X_SIZE_1);
}
