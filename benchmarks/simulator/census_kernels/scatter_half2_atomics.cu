// task: scatter_half_f16
// Atomics on pairs of halves.
#include "task.cuh"

#include <cuda_fp16.h>

__global__ void scatter(const __half2* __restrict__ x, const int* __restrict__ c, __half2* out, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) atomicAdd(out + c[i], x[i]);
}

extern "C" void launch(__half* out0, const __half* x, const int* c, void* workspace,
                       cudaStream_t stream) {
    cudaMemsetAsync(out0, 0, OUT0_NUMEL * 2, stream);
    scatter<<<(C_NUMEL + 255) / 256, 256, 0, stream>>>((const __half2*)x, c, (__half2*)out0, C_NUMEL);
}
