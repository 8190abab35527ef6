// A padded shared row is read as float2 at odd offsets.
// report: misaligned
// launch: pairs<<<1, 64>>>(in float[128], out float[128])
__global__ void pairs(const float* x, float* y) {
#ifdef FIXED
    __shared__ __align__(8) float s[4][34];
#else
    __shared__ __align__(8) float s[4][33];
#endif
    const int t = threadIdx.x, row = t / 16, pair = t % 16;
    s[row][2 * pair] = x[2 * t];
    s[row][2 * pair + 1] = x[2 * t + 1];
    __syncthreads();
    const float2 v = *reinterpret_cast<const float2*>(&s[row][30 - 2 * pair]);  // BUG
    y[2 * t] = v.y;
    y[2 * t + 1] = v.x;
}
