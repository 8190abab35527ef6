// The producing warp fills a stage again without waiting until the consuming one has read it.
// report: race
// launch: stream<<<1, 64>>>(in float[256], out float[256], 8)
__global__ void stream(const float* x, float* y, int tiles) {
    __shared__ float stage[2][32];
    const int lane = threadIdx.x % 32;
    if (threadIdx.x < 32) {
        for (int k = 0; k < tiles; k++) {
#ifdef FIXED
            if (k >= 2) asm volatile("bar.sync %0, 64;" ::"r"(3 + k % 2) : "memory");
#endif
            stage[k % 2][lane] = x[k * 32 + lane];  // BUG
            asm volatile("bar.arrive %0, 64;" ::"r"(1 + k % 2) : "memory");
        }
    } else {
        for (int k = 0; k < tiles; k++) {
            asm volatile("bar.sync %0, 64;" ::"r"(1 + k % 2) : "memory");
            y[k * 32 + lane] = stage[k % 2][31 - lane];  // BUG
#ifdef FIXED
            if (k + 2 < tiles) asm volatile("bar.arrive %0, 64;" ::"r"(3 + k % 2) : "memory");
#endif
        }
    }
}
