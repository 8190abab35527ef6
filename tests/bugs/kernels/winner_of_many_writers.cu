// Every thread that finds the maximum writes its own number: which one stays is chance.
// report: race
// launch: argmax<<<2, 64>>>(in int[128], out int[2])
__global__ void argmax(const int* x, int* where) {
    __shared__ int best, place;
    const int t = threadIdx.x, v = x[blockIdx.x * 64 + t] / 400;
    if (t == 0) best = -1, place = 64;
    __syncthreads();
    atomicMax(&best, v);
    __syncthreads();
#ifdef FIXED
    if (v == best) atomicMin(&place, t);
#else
    if (v == best) place = t;  // BUG
#endif
    __syncthreads();
    if (t == 0) where[blockIdx.x] = place;
}
