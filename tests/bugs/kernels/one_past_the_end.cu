// A loop runs to and including the length.
// report: out_of_bounds
// launch: prefix<<<1, 32>>>(in float[1024], out float[32], 32)
__global__ void prefix(const float* x, float* y, int n) {
    float sum = 0.f;
    const float* row = x + threadIdx.x * n;
#ifdef FIXED
    for (int k = 0; k < n; k++) sum += row[k];
#else
    for (int k = 0; k <= n; k++) sum += row[k];  // BUG
#endif
    y[threadIdx.x] = sum;
}
