// A stencil writes into the array that neighbouring blocks still read.
// report: race
// launch: blur<<<4, 64>>>(in float[256], out float[256], 256)
__global__ void blur(float* x, float* y, int n) {
    const int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n) return;
    const float left = x[i ? i - 1 : 0];           // BUG
    const float right = x[i + 1 < n ? i + 1 : i];  // BUG
    const float middle = 0.25f * (left + right) + 0.5f * x[i];  // BUG
#ifdef FIXED
    y[i] = middle;
#else
    x[i] = y[i] = middle;  // BUG
#endif
}
