// A fill gets the number of elements where it wants bytes, and three quarters stay as they were.
// report: uninitialized_read
// task: row_sum
#include "task.cuh"
__global__ void rows(const float* x, float* y) {
    float sum = 0.f;
    for (int j = threadIdx.x; j < X_SIZE_1; j += 128) sum += x[blockIdx.x * (long long)X_SIZE_1 + j];
    atomicAdd(&y[blockIdx.x], sum);  // BUG
}

extern "C" void launch(float* out0, const float* x, void* workspace, cudaStream_t stream) {
#ifdef FIXED
    cudaMemsetAsync(out0, 0, X_SIZE_0 * sizeof(float), stream);
#else
    cudaMemsetAsync(out0, 0, X_SIZE_0, stream);
#endif
    rows<<<X_SIZE_0, 128, 0, stream>>>(x, out0);
}
