// The last block adds up partial sums that a fence has published within each block only.
// report: race
// launch: total<<<8, 64>>>(in float[512], out float[8], zero unsigned[1], out float[1])
__global__ void total(const float* x, float* partial, unsigned* done, float* sum) {
    __shared__ bool last;
    __shared__ float part[64];
    float v = x[blockIdx.x * 64 + threadIdx.x];
    part[threadIdx.x] = v;
    __syncthreads();
    if (threadIdx.x == 0) {
        for (int i = 1; i < 64; i++) v += part[i];
        partial[blockIdx.x] = v;  // BUG
#ifdef FIXED
        __threadfence();
#else
        __threadfence_block();
#endif
        last = atomicAdd(done, 1) == gridDim.x - 1;
    }
    __syncthreads();
    if (!last || threadIdx.x) return;
    __threadfence();
    v = 0.f;
    for (int i = 0; i < gridDim.x; i++) v += partial[i];  // BUG
    *sum = v;
}
