// A named barrier of a block's four warps is told to wait for two, and opens too early.
// report: race
// launch: turn<<<1, 128>>>(in float[128], out float[128])
__device__ void all_sync(int threads) {
    asm volatile("bar.sync 1, %0;" ::"r"(threads) : "memory");
}
__global__ void turn(const float* x, float* y) {
    __shared__ float s[128];
    const int t = threadIdx.x;
    s[t] = x[t];  // BUG
#ifdef FIXED
    all_sync(128);
#else
    all_sync(64);
#endif
    y[t] = s[127 - t];  // BUG
}
