// The second kernel runs on the default stream and does not wait for the first.
// report: forbidden
// task: scale
#include "task.cuh"
__global__ void twice(const float* x, float* y) {
    const long long i = blockIdx.x * 256ll + threadIdx.x;
    if (i < X_NUMEL) y[i] = x[i] * 2.0f;
}
__global__ void plus_one(float* y) {
    const long long i = blockIdx.x * 256ll + threadIdx.x;
    if (i < X_NUMEL) y[i] += 1.0f;
}

extern "C" void launch(float* out0, const float* x, void* workspace, cudaStream_t stream) {
    twice<<<(X_NUMEL + 255) / 256, 256, 0, stream>>>(x, out0);
#ifdef FIXED
    cudaStream_t other = stream;
#else
    cudaStream_t other = nullptr;
#endif
    plus_one<<<(X_NUMEL + 255) / 256, 256, 0, other>>>(out0);  // BUG
}
