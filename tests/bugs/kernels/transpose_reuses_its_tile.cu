// A transpose that walks over tiles fills its buffer again while it is still being read.
// report: race
// launch: turn<<<2, (32, 8, 1)>>>(in float[4096], out float[4096])
__global__ void turn(const float* x, float* y) {
    __shared__ float tile[32][33];
    const int tx = threadIdx.x, ty = threadIdx.y;
    for (int b = 0; b < 2; b++) {
        for (int j = ty; j < 32; j += 8)
            tile[j][tx] = x[(blockIdx.x * 32 + j) * 64 + b * 32 + tx];  // BUG
        __syncthreads();
        for (int j = ty; j < 32; j += 8)
            y[(b * 32 + j) * 64 + blockIdx.x * 32 + tx] = tile[tx][j];  // BUG
#ifdef FIXED
        __syncthreads();
#endif
    }
}
