// A tree reduction whose steps are not separated by a barrier.
// report: race
// launch: row_sums<<<4, 256>>>(in float[4096], out float[4], 1024)
__global__ void row_sums(const float* x, float* sums, int columns) {
    __shared__ float part[256];
    const int t = threadIdx.x;
    float sum = 0.f;
    for (int j = t; j < columns; j += blockDim.x) sum += x[blockIdx.x * columns + j];
    part[t] = sum;
    __syncthreads();
    for (int step = 128; step > 0; step /= 2) {
        if (t < step) part[t] += part[t + step];  // BUG
#ifdef FIXED
        __syncthreads();
#endif
    }
    if (t == 0) sums[blockIdx.x] = part[0];
}
