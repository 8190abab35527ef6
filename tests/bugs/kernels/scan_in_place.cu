// An in-place scan adds to elements that other threads still have to read.
// report: race
// launch: scan<<<2, 128>>>(in float[256], out float[256])
__global__ void scan(const float* x, float* y) {
    __shared__ float sums[128];
    const int t = threadIdx.x;
    sums[t] = x[blockIdx.x * 128 + t];
    for (int step = 1; step < 128; step *= 2) {
        __syncthreads();
        const float before = t >= step ? sums[t - step] : 0.f;  // BUG
#ifdef FIXED
        __syncthreads();
#endif
        sums[t] += before;  // BUG
    }
    y[blockIdx.x * 128 + t] = sums[t];
}
