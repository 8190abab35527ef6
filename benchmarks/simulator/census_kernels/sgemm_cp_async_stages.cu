// task: matmul_f32
// Three stages of cp.async in dynamic shared memory of more than 48 KB; 64 x 64 tiles.
#include "task.cuh"

#include <cuda_pipeline_primitives.h>

constexpr int TM = 64, TN = 64, TK = 32, STAGES = 4;
constexpr int STAGE_FLOATS = TM * (TK + 4) + TK * TN;
constexpr int BYTES = STAGES * STAGE_FLOATS * 4;

__global__ __launch_bounds__(256) void sgemm(const float* __restrict__ a, const float* __restrict__ b,
                                             float* __restrict__ c, int n, int k) {
    extern __shared__ __align__(16) float stages[];
    const int t = threadIdx.x, row = blockIdx.y * TM, column = blockIdx.x * TN;
    auto fetch = [&](int tile) {
        float* as = stages + tile % STAGES * STAGE_FLOATS;
        float* bs = as + TM * (TK + 4);
#pragma unroll
        for (int i = t; i < TM * TK / 4; i += 256) {
            int r = i / (TK / 4), q = i % (TK / 4) * 4;
            __pipeline_memcpy_async(as + r * (TK + 4) + q, a + (size_t)(row + r) * k + tile * TK + q,
                                    16);
        }
#pragma unroll
        for (int i = t; i < TK * TN / 4; i += 256) {
            int r = i / (TN / 4), q = i % (TN / 4) * 4;
            __pipeline_memcpy_async(bs + r * TN + q, b + (size_t)(tile * TK + r) * n + column + q, 16);
        }
    };
    const int tiles = k / TK, tx = t % 16 * 4, ty = t / 16 * 4;
    for (int i = 0; i < STAGES - 1; i++) {
        if (i < tiles) fetch(i);
        __pipeline_commit();
    }
    float acc[4][4] = {};
    for (int tile = 0; tile < tiles; tile++) {
        __pipeline_wait_prior(STAGES - 2);
        __syncthreads();
        if (tile + STAGES - 1 < tiles) fetch(tile + STAGES - 1);
        __pipeline_commit();
        const float* as = stages + tile % STAGES * STAGE_FLOATS;
        const float* bs = as + TM * (TK + 4);
#pragma unroll 8
        for (int i = 0; i < TK; i++) {
            float4 y = *reinterpret_cast<const float4*>(bs + i * TN + tx);
#pragma unroll
            for (int p = 0; p < 4; p++) {
                float x = as[(ty + p) * (TK + 4) + i];
                acc[p][0] += x * y.x, acc[p][1] += x * y.y;
                acc[p][2] += x * y.z, acc[p][3] += x * y.w;
            }
        }
    }
    for (int p = 0; p < 4; p++)
        *reinterpret_cast<float4*>(c + (size_t)(row + ty + p) * n + column + tx) =
            make_float4(acc[p][0], acc[p][1], acc[p][2], acc[p][3]);
}

extern "C" void launch(float* out0, const float* a, const float* b, void* workspace,
                       cudaStream_t stream) {
    static_assert(A_SIZE_0 % TM == 0 && B_SIZE_1 % TN == 0 && A_SIZE_1 % TK == 0, "whole tiles");
    cudaFuncSetAttribute(sgemm, cudaFuncAttributeMaxDynamicSharedMemorySize, BYTES);
    sgemm<<<dim3(B_SIZE_1 / TN, A_SIZE_0 / TM), 256, BYTES, stream>>>(a, b, out0, B_SIZE_1, A_SIZE_1);
}
