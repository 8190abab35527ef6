// Blocks take their rows by a ticket but write where their own number says.
// report: nondeterministic
// task: row_sum
#include "task.cuh"
__global__ void rows(const float* x, float* y, int* ticket) {
    __shared__ int row;
    if (threadIdx.x == 0) row = atomicAdd(ticket, 1);
    __syncthreads();
    float sum = 0.f;
    for (int j = threadIdx.x; j < X_SIZE_1; j += 32) sum += x[row * (long long)X_SIZE_1 + j];
    for (int d = 16; d; d /= 2) sum += __shfl_down_sync(~0u, sum, d);
#ifdef FIXED
    if (threadIdx.x == 0) y[row] = sum;
#else
    if (threadIdx.x == 0) y[blockIdx.x] = sum;
#endif
}

extern "C" size_t workspace_bytes() { return sizeof(int); }

extern "C" void launch(float* out0, const float* x, void* workspace, cudaStream_t stream) {
    cudaMemsetAsync(workspace, 0, sizeof(int), stream);
    rows<<<X_SIZE_0, 32, 0, stream>>>(x, out0, (int*)workspace);
}
