// Some threads add to a shared total by atomics, one by a plain statement.
// report: race
// launch: totals<<<2, 96>>>(in int[192], out int[2])
__global__ void totals(const int* x, int* y) {
    __shared__ int total;
    const int v = x[blockIdx.x * 96 + threadIdx.x];
    if (threadIdx.x == 0) total = 0;
    __syncthreads();
    if (threadIdx.x >= 32) atomicAdd(&total, v);  // BUG
#ifdef FIXED
    else atomicAdd(&total, v);
#else
    else if (threadIdx.x == 0) total += v;  // BUG
#endif
    __syncthreads();
    if (threadIdx.x == 0) y[blockIdx.x] = total;
}
