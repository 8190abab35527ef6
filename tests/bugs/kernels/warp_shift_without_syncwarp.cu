// Lanes hand values to their neighbours by shared memory without __syncwarp().
// report: race
// launch: differences<<<2, 64>>>(in float[128], out float[128])
__global__ void differences(const float* x, float* y) {
    __shared__ float row[2][32];
    const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
    const int i = blockIdx.x * blockDim.x + threadIdx.x;
    row[warp][lane] = x[i];  // BUG
#ifdef FIXED
    __syncwarp();
#endif
    y[i] = row[warp][(lane + 1) % 32] - row[warp][lane];  // BUG
}
