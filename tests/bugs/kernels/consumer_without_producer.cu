// The consuming warp waits at a named barrier where the producing one never arrives.
// report: barrier_divergence
// launch: hand_over<<<1, 64>>>(in float[32], out float[32])
__global__ void hand_over(const float* x, float* y) {
    __shared__ float stage[32];
    const int lane = threadIdx.x % 32;
    if (threadIdx.x < 32) {
        stage[lane] = x[lane];
        __threadfence_block();
#ifdef FIXED
        asm volatile("bar.arrive 1, 64;" ::: "memory");
#endif
    } else {
        asm volatile("bar.sync 1, 64;" ::: "memory");  // BUG
        y[lane] = stage[31 - lane];
    }
}
