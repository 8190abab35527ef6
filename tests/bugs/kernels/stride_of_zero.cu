// The stride of a loop is the number of groups of 64 threads: none in a block of 32.
// report: timed_out
// launch: copy<<<1, 32>>>(in float[128], out float[128], 128)
__global__ void copy(const float* x, float* y, int n) {
#ifdef FIXED
    const int stride = blockDim.x;
#else
    const int stride = blockDim.x / 64 * 64;
#endif
    for (int i = threadIdx.x; i < n; i += stride) y[i] = x[i];  // BUG
}
