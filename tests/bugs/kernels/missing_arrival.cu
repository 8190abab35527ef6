// A barrier made of an atomic counter waits for every warp, but only the first two arrive.
// report: timed_out
// launch: meet<<<1, 128>>>(in float[128], out float[128])
__global__ void meet(const float* x, float* y) {
    __shared__ volatile float s[128];
    __shared__ volatile int arrived;
    const int t = threadIdx.x, lane = t % 32, warp = t / 32;
    if (t == 0) arrived = 0;
    __syncthreads();
    s[t] = x[t];
    __threadfence_block();
    __syncwarp();
#ifdef FIXED
    if (lane == 0) atomicAdd((int*)&arrived, 1);
#else
    if (lane == 0 && warp < 2) atomicAdd((int*)&arrived, 1);
#endif
    if (lane == 0) while (arrived < 4) {}  // BUG
    __threadfence_block();
    __syncwarp();
    y[t] = s[127 - t];
}
