// Blocks that overlap write the same elements with the same values.
// report: race_benign
// launch: scale<<<4, 64>>>(in float[224], out float[224])
__global__ void scale(const float* x, float* y) {
    const int i = blockIdx.x * 48 + threadIdx.x;
#ifdef FIXED
    if (threadIdx.x < 48 || blockIdx.x == gridDim.x - 1)
#endif
    y[i] = 2.f * x[i];  // BUG
}
