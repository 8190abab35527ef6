// Each branch of a divergent condition has a barrier of its own.
// report: barrier_divergence
// launch: order<<<1, 64>>>(in float[64], out float[64])
__global__ void order(const float* x, float* y) {
    __shared__ float s[64];
    const int t = threadIdx.x;
    s[t] = x[t];
#ifdef FIXED
    __syncthreads();
    y[t] = t < 16 ? s[63 - t] : s[t] + s[63 - t];
#else
    if (t < 16) {
        __syncthreads();  // BUG
        y[t] = s[63 - t];
    } else {
        const float own = s[t];
        __syncthreads();  // BUG
        y[t] = own + s[63 - t];
    }
#endif
}
