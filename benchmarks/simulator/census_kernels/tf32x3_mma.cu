// task: linear_f32
// Single precision on tensor cores: each number as a large and a small tf32 part, three products.
#include "task.cuh"

constexpr int TM = 32, TN = 32, TK = 32;

__device__ __forceinline__ unsigned to_tf32(float x) {
    unsigned r;
    asm("cvt.rna.tf32.f32 %0, %1;" : "=r"(r) : "f"(x));
    return r;
}
__device__ __forceinline__ void multiply(float (&d)[4], const unsigned (&a)[4],
                                         const unsigned (&b)[2]) {
    asm volatile("mma.sync.aligned.m16n8k8.row.col.f32.tf32.tf32.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, "
                 "{%8,%9}, {%0,%1,%2,%3};"
                 : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
                 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
}
__device__ __forceinline__ void parts(float x, unsigned& large, unsigned& small) {
    large = to_tf32(x);
    small = to_tf32(x - __uint_as_float(large));
}

__global__ __launch_bounds__(128) void gemm(const float* __restrict__ a, const float* __restrict__ w,
                                            float* __restrict__ c, int n, int k) {
    __shared__ float as[TM][TK + 4], bs[TN][TK + 4];
    const int t = threadIdx.x, warp = t / 32, g = t % 32 / 4, q = t % 4;
    const int row = blockIdx.y * TM, column = blockIdx.x * TN;
    const int wm = warp / 2 * 16, wn = warp % 2 * 16;
    float acc[2][4] = {};
    for (int at = 0; at < k; at += TK) {
        for (int i = t; i < TM * TK / 4; i += 128) {
            int r = i / 8, s = i % 8 * 4;
            *(float4*)&as[r][s] = *(const float4*)(a + (size_t)(row + r) * k + at + s);
            *(float4*)&bs[r][s] = *(const float4*)(w + (size_t)(column + r) * k + at + s);
        }
        __syncthreads();
#pragma unroll
        for (int step = 0; step < TK; step += 8) {
            unsigned xl[4], xs[4], yl[2], ys[2];
            for (int i = 0; i < 4; i++)
                parts(as[wm + g + i % 2 * 8][step + q + i / 2 * 4], xl[i], xs[i]);
            for (int j = 0; j < 2; j++) {
                for (int i = 0; i < 2; i++) parts(bs[wn + 8 * j + g][step + q + 4 * i], yl[i], ys[i]);
                multiply(acc[j], xs, yl);
                multiply(acc[j], xl, ys);
                multiply(acc[j], xl, yl);
            }
        }
        __syncthreads();
    }
    for (int j = 0; j < 2; j++)
        for (int i = 0; i < 4; i++)
            c[(size_t)(row + wm + g + i / 2 * 8) * n + column + wn + 8 * j + 2 * q + i % 2] = acc[j][i];
}

extern "C" void launch(float* out0, const float* x, const float* w, void* workspace,
                       cudaStream_t stream) {
    gemm<<<dim3(W_SIZE_0 / TN, X_SIZE_0 / TM), 128, 0, stream>>>(x, w, out0, W_SIZE_0, X_SIZE_1);
}
