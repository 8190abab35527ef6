// A write lands behind one buffer and before the next, where neither of them is.
// report: out_of_bounds
// launch: halo<<<1, 32>>>(in float[32], out float[32], out float[32])
__global__ void halo(const float* x, float* y, float* z) {
    const int t = threadIdx.x;
    y[t] = x[t];
#ifdef FIXED
    z[t] = x[31 - t];
#else
    z[t] = 0.f;
    y[t + 40] = x[31 - t];  // BUG
#endif
}
