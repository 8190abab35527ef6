// The warp that comes first adds its number to the answer.
// report: nondeterministic
// task: row_sum
#include "task.cuh"
__global__ void rows(const float* x, float* y) {
    __shared__ float part[4];
    __shared__ int turn, first;
    const int warp = threadIdx.x / 32;
    if (threadIdx.x == 0) turn = 0, first = 0;
    __syncthreads();
    float sum = 0.f;
    for (int j = threadIdx.x; j < X_SIZE_1; j += 128) sum += x[blockIdx.x * (long long)X_SIZE_1 + j];
    for (int d = 16; d; d /= 2) sum += __shfl_down_sync(~0u, sum, d);
    if (threadIdx.x % 32 == 0) {
        part[warp] = sum;
        if (atomicAdd(&turn, 1) == 0) first = warp;
    }
    __syncthreads();
#ifdef FIXED
    const float extra = 0.f;
#else
    const float extra = first;
#endif
    if (threadIdx.x == 0) y[blockIdx.x] = part[0] + part[1] + part[2] + part[3] + extra;
}

extern "C" void launch(float* out0, const float* x, void* workspace, cudaStream_t stream) {
    rows<<<X_SIZE_0, 128, 0, stream>>>(x, out0);
}
