// Threads without an element leave before the barrier, and their part of the tile stays unwritten.
// report: uninitialized_read
// launch: tail<<<2, 64>>>(in float[100], out float[100], 100)
__global__ void tail(const float* x, float* y, int n) {
    __shared__ float s[64];
    const int t = threadIdx.x, i = blockIdx.x * 64 + t;
#ifdef FIXED
    s[t] = i < n ? x[i] : 0.f;
    __syncthreads();
    if (i < n) y[i] = s[63 - t];
#else
    if (i >= n) return;
    s[t] = x[i];
    __syncthreads();
    y[i] = s[63 - t];  // BUG
#endif
}
