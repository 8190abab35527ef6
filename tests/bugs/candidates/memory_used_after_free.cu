// Scratch memory is given back before the second kernel reads it.
// report: forbidden
// task: scale
#include "task.cuh"
__global__ void scale(const float* x, float* y, float factor, float offset) {
    const long long i = blockIdx.x * 256ll + threadIdx.x;
    if (i < X_NUMEL) y[i] = x[i] * factor + offset;
}

#ifdef FIXED
extern "C" size_t workspace_bytes() { return X_NUMEL * sizeof(float); }
#endif

extern "C" void launch(float* out0, const float* x, void* workspace, cudaStream_t stream) {
    constexpr int BLOCKS = (X_NUMEL + 255) / 256;
#ifdef FIXED
    float* scratch = (float*)workspace;
    scale<<<BLOCKS, 256, 0, stream>>>(x, scratch, 2.f, 0.f);
#else
    float* scratch;
    cudaMallocAsync(&scratch, X_NUMEL * sizeof(float), stream);  // BUG
    scale<<<BLOCKS, 256, 0, stream>>>(x, scratch, 2.f, 0.f);
    cudaFreeAsync(scratch, stream);  // BUG
#endif
    scale<<<BLOCKS, 256, 0, stream>>>(scratch, out0, 1.f, 1.f);
}
