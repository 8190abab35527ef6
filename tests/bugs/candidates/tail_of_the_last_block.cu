// A grid rounded up, with no guard for the threads beyond the end.
// report: out_of_bounds
// task: scale
#include "task.cuh"
__global__ void scale(const float* x, float* y) {
    const long long i = blockIdx.x * 256ll + threadIdx.x;
#ifdef FIXED
    if (i < X_NUMEL)
#endif
    y[i] = x[i] * 2.0f + 1.0f;  // BUG
}

extern "C" void launch(float* out0, const float* x, void* workspace, cudaStream_t stream) {
    scale<<<X_NUMEL / 256 + 1, 256, 0, stream>>>(x, out0);
}
