// The threads of a block run a loop with a barrier in it a different number of times.
// report: barrier_divergence
// launch: fold<<<1, 64>>>(in float[100], out float[64], 100)
__global__ void fold(const float* x, float* y, int n) {
    __shared__ float s[64];
    const int t = threadIdx.x;
    float sum = 0.f;
#ifdef FIXED
    for (int first = 0; first < n; first += 64) {
        const int i = first + t;
        s[t] = i < n ? x[i] : 0.f;
#else
    for (int i = t; i < n; i += 64) {
        s[t] = x[i];
#endif
        __syncthreads();  // BUG
        sum += s[t] + s[t ^ 1];
        __syncthreads();  // BUG
    }
    s[t] = sum;
    __syncthreads();  // BUG
    y[t] = s[63 - t];
}
