// Block 0 clears the sum that all blocks add to in the same launch.
// report: race
// launch: total<<<8, 32>>>(in float[256], zero float[1])
__global__ void total(const float* x, float* sum) {
#ifndef FIXED
    if (blockIdx.x == 0 && threadIdx.x == 0) *sum = 0.f;  // BUG
    __syncthreads();
#endif
    atomicAdd(sum, x[blockIdx.x * 32 + threadIdx.x]);  // BUG
}
