// An inlined helper reads the right neighbour without asking whether there is one.
// report: out_of_bounds
// launch: slope<<<2, 64>>>(in float[128], out float[128], 128)
__device__ float right_of(const float* x, int i, int n) {
#ifdef FIXED
    return i + 1 < n ? x[i + 1] : x[i];
#else
    return x[i + 1];  // BUG
#endif
}
__global__ void slope(const float* x, float* y, int n) {
    const int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) y[i] = right_of(x, i, n) - x[i];
}
