// task: jacobi_f32
// Four steps in one launch: neighbouring blocks hand on their edges by flags (acquire, release).
#include "task.cuh"

#include <cuda/atomic>

constexpr int T = 256, STEPS = 4;
using Flag = cuda::atomic_ref<int, cuda::thread_scope_device>;

__global__ __launch_bounds__(T) void jacobi(const float* __restrict__ x, float* a, float* b,
                                            float* __restrict__ out, int* flags, int n) {
    const int i = blockIdx.x * T + threadIdx.x;
    for (int step = 0; step < STEPS; step++) {
        const float* from = step == 0 ? x : step % 2 ? a : b;
        float* to = step == STEPS - 1 ? out : step % 2 ? b : a;
        if (threadIdx.x < 2 && step > 0) {
            int other = threadIdx.x ? blockIdx.x + 1 : blockIdx.x - 1;
            if (other >= 0 && other < gridDim.x)
                while (Flag(flags[other]).load(cuda::memory_order_acquire) < step) __nanosleep(10);
        }
        __syncthreads();
        if (i < n) {
            float v = from[i];
            if (i > 0 && i < n - 1) v = (from[i - 1] + v + from[i + 1]) / 3;
            to[i] = v;
        }
        __syncthreads();
        if (threadIdx.x == 0) Flag(flags[blockIdx.x]).store(step + 1, cuda::memory_order_release);
    }
}

constexpr int BLOCKS = (X_NUMEL + T - 1) / T;

extern "C" size_t workspace_bytes() { return BLOCKS * 4 + 256 + 2 * X_NUMEL * 4; }

extern "C" void launch(float* out0, const float* x, void* workspace, cudaStream_t stream) {
    cudaMemsetAsync(workspace, 0, BLOCKS * 4, stream);
    float* a = (float*)((char*)workspace + (BLOCKS * 4 + 255) / 256 * 256);
    jacobi<<<BLOCKS, T, 0, stream>>>(x, a, a + X_NUMEL, out0, (int*)workspace, X_NUMEL);
}
