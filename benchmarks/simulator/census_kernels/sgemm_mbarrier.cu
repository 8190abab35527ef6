// task: matmul_f32
// A fetching warp with cp.async that arrives on barrier objects in shared memory; parity waits.
#include "task.cuh"

constexpr int T = 32, STAGES = 3, WORKERS = 128;
using Bar = unsigned long long;

__device__ __forceinline__ unsigned place(const void* p) {
    return (unsigned)__cvta_generic_to_shared(p);
}
__device__ __forceinline__ void make(Bar* bar, int count) {
    asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(place(bar)), "r"(count));
}
__device__ __forceinline__ void arrive(Bar* bar) {
    asm volatile("{ .reg .b64 state; mbarrier.arrive.shared::cta.b64 state, [%0]; }" ::"r"(place(bar))
                 : "memory");
}
__device__ __forceinline__ void await(Bar* bar, int parity) {
    int done = 0;
    while (!done)
        asm volatile("{ .reg .pred p; mbarrier.test_wait.parity.shared::cta.b64 p, [%1], %2; "
                     "selp.b32 %0, 1, 0, p; }"
                     : "=r"(done) : "r"(place(bar)), "r"(parity) : "memory");
}

__global__ __launch_bounds__(32 + WORKERS) void sgemm(const float* __restrict__ a,
                                                      const float* __restrict__ b,
                                                      float* __restrict__ c, int n, int k) {
    __shared__ __align__(16) float as[STAGES][T][T], bs[STAGES][T][T];
    __shared__ __align__(8) Bar full[STAGES], empty[STAGES];
    const int t = threadIdx.x, row = blockIdx.y * T, column = blockIdx.x * T, tiles = k / T;
    if (t == 0)
        for (int s = 0; s < STAGES; s++) make(&full[s], 32), make(&empty[s], WORKERS);
    __syncthreads();
    if (t < 32) {
        for (int tile = 0; tile < tiles; tile++) {
            const int s = tile % STAGES;
            await(&empty[s], (tile / STAGES & 1) ^ 1);
            for (int i = t; i < T * T / 4; i += 32) {
                int r = i / 8, q = i % 8 * 4;
                const float* from = a + (size_t)(row + r) * k + tile * T + q;
                asm volatile("cp.async.ca.shared.global [%0], [%1], 16;" ::"r"(place(&as[s][r][q])),
                             "l"(from));
                from = b + (size_t)(tile * T + r) * n + column + q;
                asm volatile("cp.async.ca.shared.global [%0], [%1], 16;" ::"r"(place(&bs[s][r][q])),
                             "l"(from));
            }
            asm volatile("cp.async.mbarrier.arrive.noinc.shared::cta.b64 [%0];" ::"r"(
                place(&full[s])) : "memory");
        }
        return;
    }
    const int x = t % 32, y = t / 32 - 1;
    float acc[8] = {};
    for (int tile = 0; tile < tiles; tile++) {
        const int s = tile % STAGES;
        await(&full[s], tile / STAGES & 1);
        for (int i = 0; i < T; i++)
            for (int p = 0; p < 8; p++) acc[p] += as[s][y + 4 * p][i] * bs[s][i][x];
        arrive(&empty[s]);
    }
    for (int p = 0; p < 8; p++) c[(size_t)(row + y + 4 * p) * n + column + x] = acc[p];
}

extern "C" void launch(float* out0, const float* a, const float* b, void* workspace,
                       cudaStream_t stream) {
    sgemm<<<dim3(B_SIZE_1 / T, A_SIZE_0 / T), 32 + WORKERS, 0, stream>>>(a, b, out0, B_SIZE_1,
                                                                       A_SIZE_1);
}
