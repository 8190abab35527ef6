// The last steps of a reduction rely on a warp's lanes being in lockstep, as before Volta.
// report: race
// launch: block_sum<<<2, 128>>>(in float[256], out float[2])
#ifdef FIXED
#define STEP(d) v += part[t + d]; __syncwarp(); part[t] = v; __syncwarp()
#else
#define STEP(d) part[t] = v = v + part[t + d]
#endif
__global__ void block_sum(const float* x, float* sums) {
    __shared__ volatile float part[128];
    const int t = threadIdx.x;
    part[t] = x[blockIdx.x * 128 + t];
    __syncthreads();
    if (t < 64) part[t] = part[t] + part[t + 64];
    __syncthreads();
    if (t < 32) {
        float v = part[t];
        STEP(32);  // BUG
        STEP(16);  // BUG
        STEP(8);   // BUG
        STEP(4);   // BUG
        STEP(2);   // BUG
        STEP(1);   // BUG
        if (t == 0) sums[blockIdx.x] = v;
    }
}
