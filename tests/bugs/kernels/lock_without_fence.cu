// A spin lock protects a sum, but its holder's writes are not published before it is opened.
// report: race
// launch: total<<<8, 64>>>(in float[8], zero float[1], zero int[1])
__global__ void total(const float* x, float* sum, int* lock) {
    if (threadIdx.x != 0) return;
    while (atomicCAS(lock, 0, 1) != 0) {}
#ifdef FIXED
    __threadfence();
#endif
    *sum += x[blockIdx.x];  // BUG
#ifdef FIXED
    __threadfence();
#endif
    atomicExch(lock, 0);
}
