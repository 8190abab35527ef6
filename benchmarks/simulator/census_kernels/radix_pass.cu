// task: radix_pass_i32
// One pass of a radix sort by four bits: counts of each block, a scan of all, a stable scatter with
// ranks from match_any.
#include "task.cuh"

constexpr int THREADS = 256, DIGITS = 16;

__global__ void count(const int* __restrict__ x, int* counts, int n) {
    __shared__ int bins[DIGITS];
    if (threadIdx.x < DIGITS) bins[threadIdx.x] = 0;
    __syncthreads();
    int i = blockIdx.x * THREADS + threadIdx.x;
    if (i < n) atomicAdd(&bins[x[i] & 15], 1);
    __syncthreads();
    if (threadIdx.x < DIGITS) counts[threadIdx.x * gridDim.x + blockIdx.x] = bins[threadIdx.x];
}
__global__ void scan(int* counts, int n) {
    __shared__ int sums[1024];
    int before = 0;
    for (int at = 0; at < n; at += 1024) {
        int v = at + threadIdx.x < n ? counts[at + threadIdx.x] : 0;
        sums[threadIdx.x] = v;
        __syncthreads();
        for (int d = 1; d < 1024; d *= 2) {
            int other = threadIdx.x >= d ? sums[threadIdx.x - d] : 0;
            __syncthreads();
            sums[threadIdx.x] += other;
            __syncthreads();
        }
        if (at + threadIdx.x < n) counts[at + threadIdx.x] = before + sums[threadIdx.x] - v;
        before += sums[1023];
        __syncthreads();
    }
}
__global__ void scatter(const int* __restrict__ x, int* __restrict__ y, const int* __restrict__ starts,
                        int n) {
    __shared__ int seen[THREADS / 32][DIGITS];
    const int i = blockIdx.x * THREADS + threadIdx.x, warp = threadIdx.x / 32;
    const unsigned below = (1u << threadIdx.x % 32) - 1;
    for (int j = threadIdx.x; j < THREADS / 32 * DIGITS; j += THREADS) seen[0][j] = 0;
    __syncthreads();
    const int key = i < n ? x[i] : 0, digit = i < n ? key & 15 : DIGITS;
    const unsigned same = __match_any_sync(~0u, digit);
    const int rank = __popc(same & below);
    if (i < n && rank == 0) seen[warp][digit] = __popc(same);
    __syncthreads();
    if (i >= n) return;
    int place = starts[digit * gridDim.x + blockIdx.x] + rank;
    for (int w = 0; w < warp; w++) place += seen[w][digit];
    y[place] = key;
}

constexpr int BLOCKS = (X_NUMEL + THREADS - 1) / THREADS;

extern "C" size_t workspace_bytes() { return BLOCKS * DIGITS * 4; }

extern "C" void launch(int* out0, const int* x, void* workspace, cudaStream_t stream) {
    int* counts = (int*)workspace;
    count<<<BLOCKS, THREADS, 0, stream>>>(x, counts, X_NUMEL);
    scan<<<1, 1024, 0, stream>>>(counts, BLOCKS * DIGITS);
    scatter<<<BLOCKS, THREADS, 0, stream>>>(x, out0, counts, X_NUMEL);
}
