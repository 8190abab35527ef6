// Lanes go by what another lane of their warp has just exchanged, with no __syncwarp() between.
// report: race
// launch: passes<<<2, 64>>>(in float[64], out float[64])
__global__ void passes(const float* x, float* y) {
    __shared__ unsigned turn[2];
    int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
    volatile unsigned* seen = turn;
    if (threadIdx.x < 2) turn[threadIdx.x] = 0;
    __syncthreads();
    // One warp after the other, twice: who has passed the turn on waits for the next.
    for (unsigned round = 0; round < 2; round++) {
        while (seen[0] != 2 * round + warp)
            ;
        __threadfence_block();
        __syncwarp();
        if (lane == 0) atomicExch(&turn[0], 2 * round + warp + 1);  // BUG
#ifndef FIXED
        y[blockIdx.x * 32 + lane] = seen[0];  // BUG
#endif
    }
    if (warp == 0) y[blockIdx.x * 32 + lane] = x[blockIdx.x * 32 + lane];
}
