// Lanes of a warp read what their neighbours wrote to global memory, with no __syncwarp().
// report: race
// launch: shift<<<2, 32>>>(in float[64], out float[64], out float[64])
__global__ void shift(const float* x, float* scratch, float* y) {
    const int first = blockIdx.x * 32, lane = threadIdx.x;
    scratch[first + lane] = x[first + lane] * 3.f;  // BUG
#ifdef FIXED
    __syncwarp();
#endif
    y[first + lane] = scratch[first + (lane + 1) % 32];  // BUG
}
