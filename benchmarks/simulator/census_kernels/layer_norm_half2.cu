// task: layer_norm_f16
// A warp a row, eight halves a load, Welford's update merged by shuffles, packed arithmetic.
#include "task.cuh"

#include <cuda_fp16.h>

__global__ __launch_bounds__(128) void layer_norm(const __half* __restrict__ x,
                                                  const __half* __restrict__ g,
                                                  const __half* __restrict__ b,
                                                  __half* __restrict__ y, int rows, int columns) {
    const int row = blockIdx.x * 4 + threadIdx.x / 32, lane = threadIdx.x % 32;
    if (row >= rows) return;
    const uint4* from = reinterpret_cast<const uint4*>(x + (size_t)row * columns);
    float count = 0, mean = 0, spread = 0;
    for (int i = lane; i < columns / 8; i += 32) {
        uint4 v = from[i];
        const __half2* h = reinterpret_cast<const __half2*>(&v);
        for (int j = 0; j < 4; j++) {
            float2 f = __half22float2(h[j]);
            for (float each : {f.x, f.y}) {
                count += 1;
                float off = each - mean;
                mean += off / count;
                spread += off * (each - mean);
            }
        }
    }
    for (int d = 16; d; d /= 2) {
        float n = __shfl_xor_sync(~0u, count, d), m = __shfl_xor_sync(~0u, mean, d);
        float s = __shfl_xor_sync(~0u, spread, d), all = count + n, off = m - mean;
        if (all > 0) mean += off * n / all, spread += s + off * off * count * n / all;
        count = all;
    }
    const float scale = rsqrtf(spread / columns + 1e-5f);
    const __half2 middle = __float2half2_rn(mean), factor = __float2half2_rn(scale);
    const __half2 *g2 = (const __half2*)g, *b2 = (const __half2*)b, *x2 = (const __half2*)from;
    __half2* y2 = (__half2*)(y + (size_t)row * columns);
    for (int i = lane; i < columns / 2; i += 32)
        y2[i] = __hfma2(__hmul2(__hsub2(x2[i], middle), factor), __ldg(g2 + i), __ldg(b2 + i));
}

extern "C" void launch(__half* out0, const __half* x, const __half* g, const __half* b,
                       void* workspace, cudaStream_t stream) {
    static_assert(X_SIZE_1 % 8 == 0, "whole vectors");
    layer_norm<<<(X_SIZE_0 + 3) / 4, 128, 0, stream>>>(x, g, b, out0, X_SIZE_0, X_SIZE_1);
}
