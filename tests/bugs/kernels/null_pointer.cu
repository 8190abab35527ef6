// An optional bias is read though there is none.
// report: out_of_bounds
// launch: add<<<1, 32>>>(in float[32], null, out float[32])
__global__ void add(const float* x, const float* bias, float* y) {
    const int t = threadIdx.x;
#ifdef FIXED
    y[t] = x[t] + (bias ? bias[t] : 0.f);
#else
    y[t] = x[t] + bias[t];  // BUG
#endif
}
