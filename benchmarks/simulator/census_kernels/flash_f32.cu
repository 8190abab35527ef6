// task: attention_f32
// Flash attention: tiles of K and V pass by, running maximum and sum, four threads a query.
#include "task.cuh"

constexpr int D = 64, TQ = 32, TKV = 32, SPREAD = 4, EACH = D / SPREAD;

__global__ __launch_bounds__(TQ* SPREAD) void flash(const float* __restrict__ q,
                                                    const float* __restrict__ k,
                                                    const float* __restrict__ v,
                                                    float* __restrict__ out, int tokens, float scale) {
    __shared__ __align__(16) float ks[TKV][D + 4], vs[TKV][D + 4];
    const int t = threadIdx.x, part = t % SPREAD;
    const size_t head = (size_t)blockIdx.y * tokens * D;
    const int token = blockIdx.x * TQ + t / SPREAD;
    float x[EACH], acc[EACH] = {}, largest = -INFINITY, sum = 0;
    for (int i = 0; i < EACH; i++) x[i] = q[head + (size_t)token * D + part + i * SPREAD] * scale;
    for (int at = 0; at < tokens; at += TKV) {
        __syncthreads();
        for (int i = t; i < TKV * D / 4; i += TQ * SPREAD) {
            int r = i / (D / 4), c = i % (D / 4) * 4;
            *(float4*)&ks[r][c] = *(const float4*)(k + head + (size_t)(at + r) * D + c);
            *(float4*)&vs[r][c] = *(const float4*)(v + head + (size_t)(at + r) * D + c);
        }
        __syncthreads();
        float scores[TKV], top = largest;
#pragma unroll
        for (int j = 0; j < TKV; j++) {
            float s = 0;
#pragma unroll
            for (int i = 0; i < EACH; i++) s += x[i] * ks[j][part + i * SPREAD];
            s += __shfl_xor_sync(~0u, s, 1);
            s += __shfl_xor_sync(~0u, s, 2);
            scores[j] = s;
            top = fmaxf(top, s);
        }
        const float shrink = __expf(largest - top);
        largest = top, sum *= shrink;
#pragma unroll
        for (int i = 0; i < EACH; i++) acc[i] *= shrink;
#pragma unroll
        for (int j = 0; j < TKV; j++) {
            const float p = __expf(scores[j] - top);
            sum += p;
#pragma unroll
            for (int i = 0; i < EACH; i++) acc[i] += p * vs[j][part + i * SPREAD];
        }
    }
    for (int i = 0; i < EACH; i++)
        out[head + (size_t)token * D + part + i * SPREAD] = __fdividef(acc[i], sum);
}

extern "C" void launch(float* out0, const float* q, const float* k, const float* v, void* workspace,
                       cudaStream_t stream) {
    static_assert(Q_SIZE_1 % TQ == 0 && Q_SIZE_2 == D, "whole tiles");
    flash<<<dim3(Q_SIZE_1 / TQ, Q_SIZE_0), TQ * SPREAD, 0, stream>>>(q, k, v, out0, Q_SIZE_1, 0.125f);
}
