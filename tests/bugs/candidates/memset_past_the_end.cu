// A fill takes the elements for 64-bit ones and goes past the output's end.
// report: out_of_bounds
// task: row_sum
#include "task.cuh"
__global__ void rows(const float* x, float* y) {
    float sum = 0.f;
    for (int j = threadIdx.x; j < X_SIZE_1; j += 128) sum += x[blockIdx.x * (long long)X_SIZE_1 + j];
    atomicAdd(&y[blockIdx.x], sum);
}

extern "C" void launch(float* out0, const float* x, void* workspace, cudaStream_t stream) {
#ifdef FIXED
    constexpr size_t bytes = X_SIZE_0 * sizeof(float);
#else
    constexpr size_t bytes = X_SIZE_0 * sizeof(double);
#endif
    cudaMemsetAsync(out0, 0, bytes, stream);  // BUG
    rows<<<X_SIZE_0, 128, 0, stream>>>(x, out0);
}
