// A warp spins on a flag that another warp raises only behind a barrier of both.
// report: timed_out
// launch: hand_over<<<1, 64>>>(in float[64], out float[64])
__global__ void hand_over(const float* x, float* y) {
    __shared__ volatile int ready;
    const int t = threadIdx.x;
    if (t == 0) ready = 0;
    __syncthreads();
#ifdef FIXED
    if (t == 32) ready = 1;
#endif
    if (t == 0) while (!ready) {}  // BUG
    __syncthreads();
#ifndef FIXED
    if (t == 32) ready = 1;
#endif
    y[t] = x[t];
}
