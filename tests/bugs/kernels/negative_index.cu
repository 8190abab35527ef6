// A stencil reads the element before the first one.
// report: out_of_bounds
// launch: blur<<<2, 64>>>(in float[128], out float[128], 128)
__global__ void blur(const float* x, float* y, int n) {
    const int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n) return;
#ifdef FIXED
    const float left = x[i > 0 ? i - 1 : 0];
#else
    const float left = x[i - 1];  // BUG
#endif
    y[i] = 0.5f * (left + x[i]);
}
