// A shared counter is set to zero by one thread while others already count.
// report: race
// launch: count_positive<<<4, 128>>>(in float[512], out int[4])
__global__ void count_positive(const float* x, int* counts) {
    __shared__ int found;
    if (threadIdx.x == 0) found = 0;  // BUG
#ifdef FIXED
    __syncthreads();
#endif
    if (x[blockIdx.x * blockDim.x + threadIdx.x] > -1.f) atomicAdd(&found, 1);  // BUG
    __syncthreads();
    if (threadIdx.x == 0) counts[blockIdx.x] = found;
}
