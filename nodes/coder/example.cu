#include "task.cuh"

// Four elements a thread, neighbouring threads on neighbouring addresses.
__global__ void add(float4* __restrict__ out, const float4* __restrict__ a,
                    const float4* __restrict__ b, long long n) {
    long long i = static_cast<long long>(blockIdx.x) * blockDim.x + threadIdx.x;
    if (i < n) {
        float4 x = a[i], y = b[i];
        out[i] = make_float4(x.x + y.x, x.y + y.y, x.z + y.z, x.w + y.w);
    }
}

extern "C" void launch(float* out0, const float* a, const float* b, void* workspace, cudaStream_t stream) {
    static_assert(OUT0_NUMEL % 4 == 0, "both sizes of this task are multiples of four");
    constexpr long long packs = OUT0_NUMEL / 4;
    add<<<(packs + 255) / 256, 256, 0, stream>>>(
        reinterpret_cast<float4*>(out0), reinterpret_cast<const float4*>(a),
        reinterpret_cast<const float4*>(b), packs);
}
