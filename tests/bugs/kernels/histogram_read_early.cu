// A shared histogram is written out while other warps still add to it.
// report: race
// launch: histogram<<<2, 256>>>(in unsigned[2048], zero unsigned[256], 1024)
__global__ void histogram(const unsigned* x, unsigned* bins, int each) {
    __shared__ unsigned local[256];
    local[threadIdx.x] = 0;
    __syncthreads();
    for (int i = threadIdx.x; i < each; i += blockDim.x)
        atomicAdd(&local[(x[blockIdx.x * each + i] >> 2) & 255], 1u);  // BUG
#ifdef FIXED
    __syncthreads();
#endif
    if (local[threadIdx.x]) atomicAdd(&bins[threadIdx.x], local[threadIdx.x]);  // BUG
}
