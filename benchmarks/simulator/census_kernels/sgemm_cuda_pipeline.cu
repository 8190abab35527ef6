// task: matmul_f32
// libcu++: cuda::pipeline with memcpy_async of whole rows, two stages.
#include "task.cuh"

#include <cooperative_groups.h>
#include <cuda/pipeline>

namespace cg = cooperative_groups;
constexpr int T = 32, STAGES = 2;

__global__ __launch_bounds__(256) void sgemm(const float* __restrict__ a, const float* __restrict__ b,
                                             float* __restrict__ c, int n, int k) {
    __shared__ __align__(16) float as[STAGES][T][T], bs[STAGES][T][T];
    __shared__ cuda::pipeline_shared_state<cuda::thread_scope_block, STAGES> state;
    auto block = cg::this_thread_block();
    auto pipe = cuda::make_pipeline(block, &state);
    const int t = threadIdx.x, row = blockIdx.y * T, column = blockIdx.x * T, tiles = k / T;
    auto fetch = [&](int tile) {
        pipe.producer_acquire();
        int s = tile % STAGES, r = t / 8, q = t % 8 * 4;
        cuda::memcpy_async(&as[s][r][q], a + (size_t)(row + r) * k + tile * T + q,
                           cuda::aligned_size_t<16>(16), pipe);
        cuda::memcpy_async(&bs[s][r][q], b + (size_t)(tile * T + r) * n + column + q,
                           cuda::aligned_size_t<16>(16), pipe);
        pipe.producer_commit();
    };
    float acc[4] = {};
    fetch(0);
    for (int tile = 0; tile < tiles; tile++) {
        if (tile + 1 < tiles) fetch(tile + 1);
        pipe.consumer_wait();
        const int s = tile % STAGES, x = t % 32, y = t / 32;
        for (int i = 0; i < T; i++)
            for (int p = 0; p < 4; p++) acc[p] += as[s][y + 8 * p][i] * bs[s][i][x];
        pipe.consumer_release();
    }
    for (int p = 0; p < 4; p++)
        c[(size_t)(row + t / 32 + 8 * p) * n + column + t % 32] = acc[p];
}

extern "C" void launch(float* out0, const float* a, const float* b, void* workspace,
                       cudaStream_t stream) {
    sgemm<<<dim3(B_SIZE_1 / T, A_SIZE_0 / T), 256, 0, stream>>>(a, b, out0, B_SIZE_1, A_SIZE_1);
}
