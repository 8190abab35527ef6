// The last block has more threads than there are elements left.
// report: out_of_bounds
// launch: scale<<<4, 64>>>(in float[250], out float[250], 250)
__global__ void scale(const float* x, float* y, int n) {
    const int i = blockIdx.x * blockDim.x + threadIdx.x;
#ifdef FIXED
    if (i < n)
#endif
    y[i] = 2.f * x[i];  // BUG
}
