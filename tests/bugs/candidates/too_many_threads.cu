// A block of 2048 threads is asked for.
// report: invalid_launch
// task: scale
#include "task.cuh"
#ifdef FIXED
constexpr int THREADS = 1024;
#else
constexpr int THREADS = 2048;
#endif
__global__ void scale(const float* x, float* y) {
    const long long i = blockIdx.x * (long long)THREADS + threadIdx.x;
    if (i < X_NUMEL) y[i] = x[i] * 2.0f + 1.0f;
}

extern "C" void launch(float* out0, const float* x, void* workspace, cudaStream_t stream) {
    scale<<<(X_NUMEL + THREADS - 1) / THREADS, THREADS, 0, stream>>>(x, out0);  // BUG
}
