// The offset of a row is computed in 32 bits and wraps around.
// report: out_of_bounds
// launch: pick<<<4, 32>>>(in float[128], out float[128], 1073741825, 128)
__global__ void pick(const float* x, float* y, int pitch, int n) {
    const int i = blockIdx.x * 32 + threadIdx.x;
#ifdef FIXED
    const long long at = (long long)(i + 1) * pitch;
#else
    const int at = (i + 1) * pitch;
#endif
    y[i] = x[at % n];  // BUG
}
