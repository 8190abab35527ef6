// A __syncwarp() of the whole warp stands in a branch that some lanes do not take.
// report: barrier_divergence
// launch: leader<<<1, 64>>>(in float[64], out float[64])
__global__ void leader(const float* x, float* y) {
    __shared__ float head[2];
    const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
    if (lane < 4) {
        if (lane == 0) head[warp] = x[threadIdx.x];
#ifndef FIXED
        __syncwarp();  // BUG
#endif
    }
    __syncthreads();
    y[threadIdx.x] = x[threadIdx.x] - head[warp];
}
