// Two warps of a pair wait at a named barrier that was told to wait for three.
// report: barrier_divergence
// launch: pairs<<<1, 128>>>(in float[128], out float[128])
__device__ void pair_sync(int id, int threads) {
    asm volatile("bar.sync %0, %1;" ::"r"(id), "r"(threads) : "memory");  // BUG
}
__global__ void pairs(const float* x, float* y) {
    __shared__ float s[128];
    const int t = threadIdx.x, pair = t / 64;
    s[t] = x[t];
#ifdef FIXED
    pair_sync(1 + pair, 64);
#else
    pair_sync(1 + pair, 96);
#endif
    y[t] = s[64 * pair + (t + 32) % 64];
}
