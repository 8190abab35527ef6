// The copy of the next tile begins before all have read the stage it goes to.
// report: race
// launch: smooth<<<2, 64>>>(in float[1024], out float[1024], 8)
#include <cuda_pipeline.h>
__global__ void smooth(const float* x, float* y, int tiles) {
    __shared__ float stage[64];
    const int t = threadIdx.x;
    const int first = blockIdx.x * tiles * 64;
    for (int k = 0; k < tiles; k++) {
        __pipeline_memcpy_async(&stage[t], &x[first + k * 64 + t], 4);  // BUG
        __pipeline_commit();
        __pipeline_wait_prior(0);
        __syncthreads();
        y[first + k * 64 + t] = stage[t] + stage[63 - t];  // BUG
#ifdef FIXED
        __syncthreads();
#endif
    }
}
