// Each thread waits for its own asynchronous copies only, then reads those of the others.
// report: race
// launch: reversed<<<2, 64>>>(in float[512], out float[512])
#include <cuda_pipeline.h>
__global__ void reversed(const float* x, float* y) {
    __shared__ __align__(16) float tile[256];
    const int t = threadIdx.x;
    const float* in = x + blockIdx.x * 256;
    __pipeline_memcpy_async(&tile[4 * t], &in[4 * t], 16);  // BUG
    __pipeline_commit();
    __pipeline_wait_prior(0);
#ifdef FIXED
    __syncthreads();
#endif
    for (int k = 0; k < 4; k++)
        y[blockIdx.x * 256 + k * 64 + t] = tile[255 - (k * 64 + t)];  // BUG
}
