// The flag that other blocks wait for is raised by an atomic whose scope is the block.
// report: race
// launch: passes<<<2, 32>>>(in float[32], out float[32], zero unsigned[1], out float[32])
#ifdef FIXED
#define SCOPE "gpu"
#else
#define SCOPE "cta"
#endif
__global__ void passes(const float* x, float* between, unsigned* flag, float* y) {
    int lane = threadIdx.x;
    unsigned seen = 0;
    if (blockIdx.x == 0) {
        between[lane] = x[lane] + 1.f;  // BUG
        __syncwarp();
        if (lane == 0)
            asm volatile("atom.acq_rel." SCOPE ".global.exch.b32 %0, [%1], 1;" : "=r"(seen)  // BUG
                         : "l"(flag) : "memory");
        return;
    }
    while (!seen)
        asm volatile("ld.acquire.gpu.global.u32 %0, [%1];" : "=r"(seen) : "l"(flag) : "memory");
    y[lane] = between[lane];  // BUG
}
