// A kernel is launched with 64 KiB of dynamic shared memory that nobody asked leave for.
// report: invalid_launch
// task: scale
#include "task.cuh"
constexpr int SHARED = 64 << 10;
__global__ void scale(const float* x, float* y) {
    extern __shared__ float tile[];
    const long long i = blockIdx.x * 256ll + threadIdx.x;
    if (i >= X_NUMEL) return;
    tile[threadIdx.x] = x[i];
    y[i] = tile[threadIdx.x] * 2.0f + 1.0f;
}

extern "C" void launch(float* out0, const float* x, void* workspace, cudaStream_t stream) {
#ifdef FIXED
    cudaFuncSetAttribute(scale, cudaFuncAttributeMaxDynamicSharedMemorySize, SHARED);
#endif
    scale<<<(X_NUMEL + 255) / 256, 256, SHARED, stream>>>(x, out0);  // BUG
}
