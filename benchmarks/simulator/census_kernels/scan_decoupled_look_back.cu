// task: scan_i32
// Single-pass scan: tiles by ticket, aggregate and prefix published in one 64-bit word.
#include "task.cuh"

constexpr int THREADS = 128, EACH = 4, TILE = THREADS * EACH;
using Word = unsigned long long;

__device__ __forceinline__ Word word(int value, unsigned status) {
    return (Word)status << 32 | (unsigned)value;
}

__global__ __launch_bounds__(THREADS) void scan(const int* __restrict__ x, int* __restrict__ y,
                                                Word* state, int* ticket, int n) {
    __shared__ int warp_sums[THREADS / 32], tile_shared, before_shared;
    if (threadIdx.x == 0) tile_shared = atomicAdd(ticket, 1);
    __syncthreads();
    const int tile = tile_shared, lane = threadIdx.x % 32, warp = threadIdx.x / 32;
    const int first = tile * TILE + threadIdx.x * EACH;
    int v[EACH], sum = 0;
    for (int i = 0; i < EACH; i++) v[i] = sum += first + i < n ? x[first + i] : 0;
    int upto = sum;
    for (int d = 1; d < 32; d *= 2) {
        int other = __shfl_up_sync(~0u, upto, d);
        if (lane >= d) upto += other;
    }
    if (lane == 31) warp_sums[warp] = upto;
    __syncthreads();
    int total = 0, earlier = 0;
    for (int i = 0; i < THREADS / 32; i++) {
        if (i < warp) earlier += warp_sums[i];
        total += warp_sums[i];
    }
    if (warp == 0) {
        volatile Word* states = state;
        if (lane == 0 && tile > 0) {
            __threadfence();
            states[tile] = word(total, 1);
        }
        int prefix = 0;
        for (int at = tile - 1 - lane; __any_sync(~0u, at >= 0);) {
            Word seen = word(0, 2);
            if (at >= 0)
                do {
                    seen = states[at];
                } while (seen >> 32 == 0);
            unsigned whole = __ballot_sync(~0u, seen >> 32 == 2);
            int last = whole ? __ffs(whole) - 1 : 31;
            int part = lane <= last ? (int)(unsigned)seen : 0;
            prefix += __reduce_add_sync(~0u, part);
            if (whole) break;
            at -= 32;
        }
        if (lane == 0) {
            __threadfence();
            states[tile] = word(prefix + total, 2);
            before_shared = prefix;
        }
    }
    __syncthreads();
    const int base = before_shared + earlier + upto - sum;
    for (int i = 0; i < EACH; i++)
        if (first + i < n) y[first + i] = base + v[i];
}

constexpr int TILES = (X_NUMEL + TILE - 1) / TILE;

extern "C" size_t workspace_bytes() { return (TILES + 1) * sizeof(Word); }

extern "C" void launch(int* out0, const int* x, void* workspace, cudaStream_t stream) {
    cudaMemsetAsync(workspace, 0, (TILES + 1) * sizeof(Word), stream);
    Word* state = (Word*)workspace;
    scan<<<TILES, THREADS, 0, stream>>>(x, out0, state + 1, (int*)state, X_NUMEL);
}
