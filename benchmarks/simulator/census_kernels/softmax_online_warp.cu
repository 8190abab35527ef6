// task: softmax_f32
// A warp a row: running maximum and sum in one pass, float4, merged by shuffles.
#include "task.cuh"

struct Running {
    float largest, sum;
};
__device__ __forceinline__ Running merged(Running a, Running b) {
    float top = fmaxf(a.largest, b.largest);
    return {top, a.sum * __expf(a.largest - top) + b.sum * __expf(b.largest - top)};
}

__global__ __launch_bounds__(128) void softmax(const float4* __restrict__ x, float4* __restrict__ y,
                                               int rows, int quads) {
    const int row = blockIdx.x * 4 + threadIdx.x / 32, lane = threadIdx.x % 32;
    if (row >= rows) return;
    x += (size_t)row * quads, y += (size_t)row * quads;
    Running r = {-1e30f, 0};
    for (int i = lane; i < quads; i += 32) {
        float4 v = __ldg(x + i);
        float top = fmaxf(fmaxf(v.x, v.y), fmaxf(v.z, v.w));
        Running here = {top, __expf(v.x - top) + __expf(v.y - top) + __expf(v.z - top) +
                                 __expf(v.w - top)};
        r = merged(r, here);
    }
#pragma unroll
    for (int d = 16; d; d /= 2)
        r = merged(r, {__shfl_xor_sync(~0u, r.largest, d), __shfl_xor_sync(~0u, r.sum, d)});
    const float scale = 1 / r.sum;
    for (int i = lane; i < quads; i += 32) {
        float4 v = __ldg(x + i);
        __stcs(y + i, make_float4(__expf(v.x - r.largest) * scale, __expf(v.y - r.largest) * scale,
                                  __expf(v.z - r.largest) * scale, __expf(v.w - r.largest) * scale));
    }
}

extern "C" void launch(float* out0, const float* x, void* workspace, cudaStream_t stream) {
    static_assert(X_SIZE_1 % 4 == 0, "whole vectors");
    softmax<<<(X_SIZE_0 + 3) / 4, 128, 0, stream>>>((const float4*)x, (float4*)out0, X_SIZE_0,
                                                   X_SIZE_1 / 4);
}
