// A thread's list of candidates is read further than it was filled.
// report: uninitialized_read
// launch: best<<<1, 32>>>(in float[32], in int[32], out float[32])
__global__ void best(const float* x, const int* picks, float* y) {
    float found[8];
    const int t = threadIdx.x;
    int count = 0;
#ifdef FIXED
    for (int k = 0; k < 8; k++) found[k] = 0.f;
#endif
    for (int k = 0; k < 8; k++)
        if (x[(t + k) % 32] > 0.f) found[count++] = x[(t + k) % 32];
    y[t] = found[picks[t] & 7];  // BUG
}
