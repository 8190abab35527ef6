// Double buffering whose next load goes to the stage that is being read.
// report: race
// launch: smooth<<<2, 128>>>(in float[2048], out float[2048], 8)
__global__ void smooth(const float* x, float* y, int tiles) {
    __shared__ float stage[2][128];
    const int t = threadIdx.x;
    const float* in = x + blockIdx.x * tiles * 128;
    float* out = y + blockIdx.x * tiles * 128;
    stage[0][t] = in[t];
    __syncthreads();
    for (int k = 0; k < tiles; k++) {
        const int now = k & 1;
#ifdef FIXED
        const int next = now ^ 1;
#else
        const int next = now;
#endif
        const float fetched = k + 1 < tiles ? in[(k + 1) * 128 + t] : 0.f;
        const float left = stage[now][(t + 127) % 128];  // BUG
        const float right = stage[now][(t + 1) % 128];   // BUG
        stage[next][t] = fetched;                        // BUG
        out[k * 128 + t] = 0.5f * (left + right);
        __syncthreads();
    }
}
