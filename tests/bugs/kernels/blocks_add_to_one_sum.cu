// All blocks add their part to one element with a plain statement.
// report: race
// launch: total<<<8, 128>>>(in float[1024], zero float[1])
__global__ void total(const float* x, float* sum) {
    __shared__ float part[4];
    float v = x[blockIdx.x * 128 + threadIdx.x];
    for (int d = 16; d; d /= 2) v += __shfl_down_sync(~0u, v, d);
    if (threadIdx.x % 32 == 0) part[threadIdx.x / 32] = v;
    __syncthreads();
    if (threadIdx.x == 0) {
        v = part[0] + part[1] + part[2] + part[3];
#ifdef FIXED
        atomicAdd(sum, v);
#else
        *sum += v;  // BUG
#endif
    }
}
