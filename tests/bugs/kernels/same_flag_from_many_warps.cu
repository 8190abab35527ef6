// Several warps set one shared flag to the same value, which is bad style and does no harm.
// report: race_benign
// launch: any_large<<<2, 128>>>(in float[256], out int[2])
__global__ void any_large(const float* x, int* found) {
    __shared__ int seen;
    if (threadIdx.x == 0) seen = 0;
    __syncthreads();
    const bool large = x[blockIdx.x * 128 + threadIdx.x] > -100.f;
#ifdef FIXED
    if (large) atomicOr(&seen, 1);
#else
    if (large) seen = 1;  // BUG
#endif
    __syncthreads();
    if (threadIdx.x == 0) found[blockIdx.x] = seen;
}
