// Thread 0 leaves a row's scale in shared memory and nobody waits for it.
// report: race
// launch: normalise<<<4, 128>>>(in float[512], out float[512])
__global__ void normalise(const float* x, float* y) {
    __shared__ float scale;
    const int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (threadIdx.x == 0) scale = rsqrtf(1.f + x[i] * x[i]);  // BUG
#ifdef FIXED
    __syncthreads();
#endif
    y[i] = x[i] * scale;  // BUG
}
