// Sixteen lanes exchange values, but __syncwarp() is called for groups of eight.
// report: race
// launch: pairs<<<2, 32>>>(in float[64], out float[64])
__global__ void pairs(const float* x, float* y) {
    __shared__ float row[32];
    const int lane = threadIdx.x;
    row[lane] = x[blockIdx.x * 32 + lane];  // BUG
#ifdef FIXED
    __syncwarp(0xffffu << (lane & 16));
#else
    __syncwarp(0xffu << (lane & 24));
#endif
    y[blockIdx.x * 32 + lane] = row[lane] + row[lane ^ 8];  // BUG
}
