// A pipeline waits for all but the newest group also after the last copy was issued.
// report: race
// launch: sums<<<2, 32>>>(in float[2048], out float[64], 8)
#include <cuda_pipeline.h>
__global__ void sums(const float* x, float* y, int tiles) {
    __shared__ __align__(16) float stage[2][128];
    const int t = threadIdx.x;
    const float* in = x + blockIdx.x * tiles * 128;
    __pipeline_memcpy_async(&stage[0][4 * t], &in[4 * t], 16);
    __pipeline_commit();
    float sum = 0.f;
    for (int k = 0; k < tiles; k++) {
        if (k + 1 < tiles) {
            __pipeline_memcpy_async(&stage[(k + 1) & 1][4 * t], &in[(k + 1) * 128 + 4 * t], 16);  // BUG
            __pipeline_commit();
        }
#ifdef FIXED
        if (k + 1 == tiles) __pipeline_wait_prior(0);
#endif
        __pipeline_wait_prior(1);
        __syncthreads();
        for (int j = 0; j < 4; j++) sum += stage[k & 1][j * 32 + t];  // BUG
        __syncthreads();
    }
    y[blockIdx.x * 32 + t] = sum;
}
