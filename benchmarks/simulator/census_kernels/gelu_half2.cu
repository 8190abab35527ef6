// task: gelu_f16
// Eight halves a thread, tanh.approx in packed halves where it is exact enough, cache hints.
#include "task.cuh"

#include <cuda_fp16.h>

__device__ __forceinline__ float tanh_fast(float x) {
    float y;
    asm("tanh.approx.f32 %0, %1;" : "=f"(y) : "f"(x));
    return y;
}
__device__ __forceinline__ float gelu(float x) {
    return 0.5f * x * (1.f + tanh_fast(0.7978845608f * (x + 0.044715f * x * x * x)));
}

__global__ __launch_bounds__(256) void gelus(const uint4* __restrict__ x, uint4* __restrict__ y,
                                             int n) {
    int i = blockIdx.x * 256 + threadIdx.x;
    if (i >= n) return;
    uint4 v;
    asm volatile("ld.global.nc.L1::no_allocate.L2::128B.v4.u32 {%0,%1,%2,%3}, [%4];"
                 : "=r"(v.x), "=r"(v.y), "=r"(v.z), "=r"(v.w) : "l"(x + i));
    __half2* h = reinterpret_cast<__half2*>(&v);
#pragma unroll
    for (int j = 0; j < 4; j++) {
        float2 f = __half22float2(h[j]);
        h[j] = __floats2half2_rn(gelu(f.x), gelu(f.y));
    }
    __stwt(y + i, v);
}

extern "C" void launch(__half* out0, const __half* x, void* workspace, cudaStream_t stream) {
    static_assert(X_NUMEL % 8 == 0, "whole vectors");
    gelus<<<(X_NUMEL / 8 + 255) / 256, 256, 0, stream>>>((const uint4*)x, (uint4*)out0, X_NUMEL / 8);
}
