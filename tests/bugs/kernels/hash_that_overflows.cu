// A signed product overflows, and its remainder is a negative index.
// report: out_of_bounds
// launch: gather<<<2, 64>>>(in float[128], out float[128], 128)
__global__ void gather(const float* x, float* y, int n) {
    const int i = blockIdx.x * blockDim.x + threadIdx.x;
#ifdef FIXED
    const unsigned hash = (i + 1) * 2654435761u;
#else
    const int hash = (i + 1) * (int)2654435761u;
#endif
    y[i] = x[hash % n];  // BUG
}
