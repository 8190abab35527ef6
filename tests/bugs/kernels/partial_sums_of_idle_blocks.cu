// Blocks without work leave no partial sum, but the last step reads one from each.
// report: uninitialized_read
// launch: total<<<6, 32>>>(in float[128], out float[6], zero unsigned[1], out float[1], 128)
__global__ void total(const float* x, float* partial, unsigned* done, float* sum, int n) {
    const int i = blockIdx.x * 32 + threadIdx.x;
    float v = i < n ? x[i] : 0.f;
    for (int d = 16; d; d /= 2) v += __shfl_down_sync(~0u, v, d);
    if (threadIdx.x) return;
#ifndef FIXED
    if (i < n)
#endif
    partial[blockIdx.x] = v;
    __threadfence();
    if (atomicAdd(done, 1) != gridDim.x - 1) return;
    __threadfence();
    v = 0.f;
    for (int k = 0; k < gridDim.x; k++) v += partial[k];  // BUG
    *sum = v;
}
