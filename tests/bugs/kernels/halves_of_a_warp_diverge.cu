// One half of a warp writes what the other half reads in the other branch.
// report: race
// launch: exchange<<<1, 32>>>(in float[32], out float[32])
__global__ void exchange(const float* x, float* y) {
    __shared__ float box[16];
    const int lane = threadIdx.x;
    float v = x[lane];
#ifdef FIXED
    if (lane < 16) box[lane] = v;
    __syncwarp();
    if (lane >= 16) v += box[lane - 16];
#else
    if (lane < 16) {
        box[lane] = v * 2.f;  // BUG
    } else {
        v += box[lane - 16];  // BUG
    }
#endif
    y[lane] = v;
}
