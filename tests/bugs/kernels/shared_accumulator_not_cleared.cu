// A shared accumulator that nobody sets to zero before the atomics.
// report: uninitialized_read
// launch: total<<<2, 64>>>(in float[128], out float[2])
__global__ void total(const float* x, float* y) {
    __shared__ float sum;
#ifdef FIXED
    if (threadIdx.x == 0) sum = 0.f;
    __syncthreads();
#endif
    atomicAdd(&sum, x[blockIdx.x * 64 + threadIdx.x]);  // BUG
    __syncthreads();
    if (threadIdx.x == 0) y[blockIdx.x] = sum;
}
