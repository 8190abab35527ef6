// task: linear_bf16
// mma.sync m16n8k16 in bfloat16; fragments read as packed pairs from padded tiles, two buffers.
#include "task.cuh"

#include <cuda_bf16.h>

constexpr int TM = 64, TN = 32, TK = 32, PAD = 8;

__device__ __forceinline__ void multiply(float (&d)[4], const unsigned (&a)[4],
                                         const unsigned (&b)[2]) {
    asm volatile("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0,%1,%2,%3}, "
                 "{%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
                 : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
                 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
}
__device__ __forceinline__ unsigned pair(const __nv_bfloat16* p) {
    return *reinterpret_cast<const unsigned*>(p);
}

__global__ __launch_bounds__(128) void gemm(const __nv_bfloat16* __restrict__ a,
                                            const __nv_bfloat16* __restrict__ w,
                                            __nv_bfloat16* __restrict__ c, int n, int k) {
    __shared__ __align__(16) __nv_bfloat16 as[2][TM][TK + PAD], bs[2][TN][TK + PAD];
    const int t = threadIdx.x, warp = t / 32, g = t % 32 / 4, q = t % 4 * 2;
    const int row = blockIdx.y * TM, column = blockIdx.x * TN;
    uint4 av[2], bv;
    auto load = [&](int at) {
        for (int i = 0; i < 2; i++)
            av[i] = __ldg(reinterpret_cast<const uint4*>(a + (size_t)(row + t / 4 + 32 * i) * k + at) +
                          t % 4);
        bv = __ldg(reinterpret_cast<const uint4*>(w + (size_t)(column + t / 4) * k + at) + t % 4);
    };
    auto put = [&](int s) {
        for (int i = 0; i < 2; i++)
            *reinterpret_cast<uint4*>(&as[s][t / 4 + 32 * i][t % 4 * 8]) = av[i];
        *reinterpret_cast<uint4*>(&bs[s][t / 4][t % 4 * 8]) = bv;
    };
    float acc[4][4] = {};
    load(0);
    put(0);
    __syncthreads();
    for (int at = 0, s = 0; at < k; at += TK, s ^= 1) {
        if (at + TK < k) load(at + TK);
#pragma unroll
        for (int step = 0; step < TK; step += 16) {
            unsigned x[4], y[2];
            for (int i = 0; i < 4; i++)
                x[i] = pair(&as[s][warp * 16 + g + i % 2 * 8][step + q + i / 2 * 8]);
            for (int j = 0; j < 4; j++) {
                for (int i = 0; i < 2; i++) y[i] = pair(&bs[s][8 * j + g][step + q + 8 * i]);
                multiply(acc[j], x, y);
            }
        }
        if (at + TK < k) put(s ^ 1);
        __syncthreads();
    }
    for (int j = 0; j < 4; j++)
        for (int h = 0; h < 2; h++)
            *reinterpret_cast<__nv_bfloat162*>(
                c + (size_t)(row + warp * 16 + g + 8 * h) * n + column + 8 * j + q) =
                __floats2bfloat162_rn(acc[j][2 * h], acc[j][2 * h + 1]);
}

extern "C" void launch(__nv_bfloat16* out0, const __nv_bfloat16* x, const __nv_bfloat16* w,
                       void* workspace, cudaStream_t stream) {
    static_assert(X_SIZE_0 % TM == 0 && W_SIZE_0 % TN == 0 && X_SIZE_1 % TK == 0, "whole tiles");
    gemm<<<dim3(W_SIZE_0 / TN, X_SIZE_0 / TM), 128, 0, stream>>>(x, w, out0, W_SIZE_0, X_SIZE_1);
}
