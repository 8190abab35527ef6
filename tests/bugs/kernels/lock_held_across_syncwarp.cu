// The lane that holds a lock waits for its warp, whose other lanes wait for the lock.
// report: timed_out
// launch: total<<<1, 32>>>(in float[32], zero float[1], zero int[1])
__global__ void total(const float* x, float* sum, int* lock) {
#ifdef FIXED
    bool done = false;
    while (!done) {
        if (atomicCAS(lock, 0, 1) == 0) {
            __threadfence();
            *sum += x[threadIdx.x];
            __threadfence();
            atomicExch(lock, 0);
            done = true;
        }
    }
#else
    while (atomicCAS(lock, 0, 1) != 0) {}  // BUG
    __syncwarp();
    *sum += x[threadIdx.x];
    __threadfence();
    atomicExch(lock, 0);
#endif
}
