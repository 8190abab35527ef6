// Half a warp shuffles with a mask that names the other half, which waits at the next barrier.
// report: barrier_divergence
// launch: halves<<<2, 32>>>(in float[64], out float[64])
__global__ void halves(const float* x, float* y) {
    __shared__ float total;
    const int lane = threadIdx.x, i = blockIdx.x * 32 + lane;
    float v = x[i];
    if (lane < 16) {
#ifdef FIXED
        for (int d = 8; d; d /= 2) v += __shfl_xor_sync(0xffffu, v, d);
#else
        for (int d = 8; d; d /= 2) v += __shfl_xor_sync(0xffffffffu, v, d);  // BUG
#endif
        if (lane == 0) total = v;
    }
    __syncthreads();
    y[i] = v + total;
}
