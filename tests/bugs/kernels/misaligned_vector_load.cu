// Rows of 33 floats are read as float4, so that most rows are not aligned.
// report: misaligned
// launch: rows<<<4, 8>>>(in float[132], out float[128])
__global__ void rows(const float* x, float* y) {
    const int r = blockIdx.x, c = 4 * threadIdx.x;
#ifdef FIXED
    const float* at = x + r * 33 + c;
    const float4 v = make_float4(at[0], at[1], at[2], at[3]);
#else
    const float4 v = *reinterpret_cast<const float4*>(x + r * 33 + c);  // BUG
#endif
    *reinterpret_cast<float4*>(y + r * 32 + c) = make_float4(2.f * v.x, v.y, v.z + v.w, v.w);
}
