// A kernel adds to its output, whose memory holds nothing yet.
// report: uninitialized_read
// launch: axpy<<<2, 64>>>(in float[128], out float[128])
__global__ void axpy(const float* x, float* y) {
    const int i = blockIdx.x * 64 + threadIdx.x;
#ifdef FIXED
    y[i] = 2.f * x[i];
#else
    y[i] += 2.f * x[i];  // BUG
#endif
}
