// All blocks count in one place by atomics that are atomic within a block alone.
// report: race
// launch: counts<<<4, 64>>>(in float[256], zero unsigned[1])
#ifdef FIXED
#define COUNT atomicAdd
#else
#define COUNT atomicAdd_block
#endif
__global__ void counts(const float* x, unsigned* above) {
    if (x[blockIdx.x * 64 + threadIdx.x] > 0.f) COUNT(above, 1u);  // BUG
}
