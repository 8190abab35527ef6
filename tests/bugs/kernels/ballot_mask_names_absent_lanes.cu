// Lanes beyond the end skip a ballot whose mask names them, and wait at a __syncwarp().
// report: barrier_divergence
// launch: compact<<<1, 32>>>(in float[24], out int[24], 24)
__global__ void compact(const float* x, int* place, int n) {
    __shared__ int count;
    const int lane = threadIdx.x;
    if (lane == 0) count = 0;
    __syncwarp();
#ifdef FIXED
    const unsigned keep = __ballot_sync(~0u, lane < n && x[lane] > 0.f);
    if (lane < n) place[lane] = __popc(keep & ((1u << lane) - 1));
#else
    if (lane < n) {
        const unsigned keep = __ballot_sync(~0u, x[lane] > 0.f);  // BUG
        place[lane] = __popc(keep & ((1u << lane) - 1));
    }
#endif
    __syncwarp();  // BUG
    if (lane < n) atomicAdd(&count, 1);
}
