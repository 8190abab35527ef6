// Threads of a block read what other warps of it wrote to global memory, with no barrier.
// report: race
// launch: twice<<<2, 128>>>(in float[256], out float[256], out float[256])
__global__ void twice(const float* x, float* scratch, float* y) {
    const int first = blockIdx.x * 128, t = threadIdx.x;
    scratch[first + t] = sqrtf(fabsf(x[first + t]));  // BUG
#ifdef FIXED
    __syncthreads();
#endif
    y[first + t] = scratch[first + 127 - t] + 1.f;  // BUG
}
