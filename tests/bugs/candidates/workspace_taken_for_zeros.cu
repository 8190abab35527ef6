// Partial sums are added up in a workspace that is believed to be zero at first.
// report: uninitialized_read
// task: row_sum
#include "task.cuh"
__global__ void parts(const float* x, float* sums) {
    float sum = 0.f;
    for (int j = threadIdx.x; j < X_SIZE_1; j += 128) sum += x[blockIdx.x * (long long)X_SIZE_1 + j];
    for (int d = 16; d; d /= 2) sum += __shfl_down_sync(~0u, sum, d);
    if (threadIdx.x % 32 == 0) atomicAdd(&sums[blockIdx.x], sum);  // BUG
}
__global__ void finish(const float* sums, float* y) {
    const int row = blockIdx.x * 256 + threadIdx.x;
    if (row < X_SIZE_0) y[row] = sums[row];
}

extern "C" size_t workspace_bytes() { return X_SIZE_0 * sizeof(float); }

extern "C" void launch(float* out0, const float* x, void* workspace, cudaStream_t stream) {
#ifdef FIXED
    cudaMemsetAsync(workspace, 0, workspace_bytes(), stream);
#endif
    parts<<<X_SIZE_0, 128, 0, stream>>>(x, (float*)workspace);
    finish<<<(X_SIZE_0 + 255) / 256, 256, 0, stream>>>((const float*)workspace, out0);
}
