// A single-pass scan raises its flag without a fence after the sum that the flag stands for.
// report: race
// launch: chain<<<8, 32>>>(in float[256], out float[256], out float[8], zero int[8])
__global__ void chain(const float* x, float* y, float* prefix, volatile int* ready) {
    const int lane = threadIdx.x, b = blockIdx.x;
    float v = x[b * 32 + lane];
    for (int d = 1; d < 32; d *= 2) {
        const float before = __shfl_up_sync(~0u, v, d);
        if (lane >= d) v += before;
    }
    float carried = 0.f;
    if (b > 0) {
        while (ready[b - 1] == 0) {}
        __threadfence();
        carried = prefix[b - 1];  // BUG
    }
    v += carried;
    y[b * 32 + lane] = v;
    if (lane == 31) {
        prefix[b] = v;  // BUG
#ifdef FIXED
        __threadfence();
#endif
        ready[b] = 1;
    }
}
