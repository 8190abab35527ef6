// The last thread of a block reads its right neighbour's element, which there is not.
// report: out_of_bounds
// launch: differences<<<2, 64>>>(in float[128], out float[128])
__global__ void differences(const float* x, float* y) {
#ifdef FIXED
    __shared__ float s[65];
    if (threadIdx.x == 0) s[64] = 0.f;
#else
    __shared__ float s[64];
#endif
    const int t = threadIdx.x, i = blockIdx.x * 64 + t;
    s[t] = x[i];
    __syncthreads();
    y[i] = s[t + 1] - s[t];  // BUG
}
