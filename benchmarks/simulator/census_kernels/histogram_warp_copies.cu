// task: histogram_i32
// A copy of the bins for each warp in dynamic shared memory, merged at the end.
#include "task.cuh"

constexpr int WARPS = 16;

__global__ __launch_bounds__(WARPS * 32) void histogram(const int* __restrict__ x, int* bins, int n,
                                                        int count) {
    extern __shared__ int copies[];
    for (int i = threadIdx.x; i < WARPS * count; i += blockDim.x) copies[i] = 0;
    __syncthreads();
    int* mine = copies + threadIdx.x / 32 * count;
    for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += gridDim.x * blockDim.x)
        atomicAdd_block(mine + x[i], 1);
    __syncthreads();
    for (int i = threadIdx.x; i < count; i += blockDim.x) {
        int sum = 0;
        for (int w = 0; w < WARPS; w++) sum += copies[w * count + i];
        if (sum) atomicAdd(bins + i, sum);
    }
}

extern "C" void launch(int* out0, const int* x, void* workspace, cudaStream_t stream) {
    cudaMemsetAsync(out0, 0, OUT0_NUMEL * 4, stream);
    int bytes = WARPS * OUT0_NUMEL * 4;
    cudaFuncSetAttribute(histogram, cudaFuncAttributeMaxDynamicSharedMemorySize, bytes);
    int blocks = 0, threads = 0;
    cudaOccupancyMaxPotentialBlockSize(&blocks, &threads, histogram, bytes, WARPS * 32);
    histogram<<<(X_NUMEL + WARPS * 256 - 1) / (WARPS * 256), WARPS * 32, bytes, stream>>>(
        x, out0, X_NUMEL, OUT0_NUMEL);
}
