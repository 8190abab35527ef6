// Only as many elements of a tile are loaded as there are left, yet all are added up.
// report: uninitialized_read
// launch: sums<<<3, 64>>>(in float[150], out float[3], 150)
__global__ void sums(const float* x, float* y, int n) {
    __shared__ float tile[64];
    const int t = threadIdx.x, i = blockIdx.x * 64 + t;
#ifdef FIXED
    tile[t] = i < n ? x[i] : 0.f;
#else
    if (i < n) tile[t] = x[i];
#endif
    __syncthreads();
    if (t == 0) {
        float sum = 0.f;
        for (int k = 0; k < 64; k++) sum += tile[k];  // BUG
        y[blockIdx.x] = sum;
    }
}
