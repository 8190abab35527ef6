// The workspace, which belongs to the caller, is freed, and so twice in two calls.
// report: forbidden
// task: scale
#include "task.cuh"
__global__ void scale(const float* x, float* y) {
    const long long i = blockIdx.x * 256ll + threadIdx.x;
    if (i < X_NUMEL) y[i] = x[i] * 2.0f + 1.0f;
}

extern "C" size_t workspace_bytes() { return 1024; }

extern "C" void launch(float* out0, const float* x, void* workspace, cudaStream_t stream) {
    scale<<<(X_NUMEL + 255) / 256, 256, 0, stream>>>(x, out0);
#ifndef FIXED
    cudaFree(workspace);  // BUG
#endif
}
