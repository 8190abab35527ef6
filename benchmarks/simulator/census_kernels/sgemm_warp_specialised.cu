// task: matmul_f32
// Two warps fetch tiles into a ring, four multiply; named barriers pass stages to and fro.
#include "task.cuh"

constexpr int T = 32, STAGES = 2, FETCHERS = 64, WORKERS = 128;

__device__ __forceinline__ void wait_at(int id) {
    asm volatile("bar.sync %0, %1;" ::"r"(id), "n"(FETCHERS + WORKERS) : "memory");
}
__device__ __forceinline__ void arrive_at(int id) {
    asm volatile("bar.arrive %0, %1;" ::"r"(id), "n"(FETCHERS + WORKERS) : "memory");
}

__global__ __launch_bounds__(FETCHERS + WORKERS) void sgemm(const float* __restrict__ a,
                                                            const float* __restrict__ b,
                                                            float* __restrict__ c, int n, int k) {
    __shared__ __align__(16) float as[STAGES][T][T], bs[STAGES][T][T];
    const int t = threadIdx.x, row = blockIdx.y * T, column = blockIdx.x * T, tiles = k / T;
    if (t < FETCHERS) {
        for (int tile = 0; tile < tiles; tile++) {
            const int s = tile % STAGES;
            if (tile >= STAGES) wait_at(1 + STAGES + s);
            for (int i = t; i < T * T / 4; i += FETCHERS) {
                int r = i / 8, q = i % 8 * 4;
                *(float4*)&as[s][r][q] = *(const float4*)(a + (size_t)(row + r) * k + tile * T + q);
                *(float4*)&bs[s][r][q] = *(const float4*)(b + (size_t)(tile * T + r) * n + column + q);
            }
            __threadfence_block();
            arrive_at(1 + s);
        }
        return;
    }
    const int x = (t - FETCHERS) % 32, y = (t - FETCHERS) / 32;
    float acc[8] = {};
    for (int tile = 0; tile < tiles; tile++) {
        const int s = tile % STAGES;
        wait_at(1 + s);
        for (int i = 0; i < T; i++)
            for (int p = 0; p < 8; p++) acc[p] += as[s][y + 4 * p][i] * bs[s][i][x];
        if (tile + STAGES < tiles) arrive_at(1 + STAGES + s);
    }
    for (int p = 0; p < 8; p++) c[(size_t)(row + y + 4 * p) * n + column + x] = acc[p];
}

extern "C" void launch(float* out0, const float* a, const float* b, void* workspace,
                       cudaStream_t stream) {
    sgemm<<<dim3(B_SIZE_1 / T, A_SIZE_0 / T), FETCHERS + WORKERS, 0, stream>>>(a, b, out0, B_SIZE_1,
                                                                             A_SIZE_1);
}
