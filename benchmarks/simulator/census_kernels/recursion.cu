// task: binomial_i32
// Pascal's rule by recursion.
#include "task.cuh"

__device__ __noinline__ int binomial(int n, int k) {
    if (k == 0 || k == n) return 1;
    if (k > n) return 0;
    return binomial(n - 1, k - 1) + binomial(n - 1, k);
}

__global__ void binomials(const int* __restrict__ x, int* __restrict__ y, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) y[i] = binomial(x[i] / 8, min(x[i] % 8, 4));
}

extern "C" void launch(int* out0, const int* x, void* workspace, cudaStream_t stream) {
    binomials<<<(X_NUMEL + 127) / 128, 128, 0, stream>>>(x, out0, X_NUMEL);
}
