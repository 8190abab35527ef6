// Input tiles of 16 x 16 in shared memory, eight filters to a thread.
#include "task.cuh"
constexpr int I = DIM_IMAGES, C = DIM_CHANNELS, F = DIM_FILTERS, S = DIM_SIDE;
constexpr int NF = 8, TILE = 16, ACROSS = (S + TILE - 1) / TILE;
__global__ void __launch_bounds__(256) convolve(const float* x, const float* w, float* y) {
    __shared__ float tile[TILE + 2][TILE + 3], W[NF][9];
    int f0 = blockIdx.y * NF, i = blockIdx.z, tx = threadIdx.x % TILE, ty = threadIdx.x / TILE;
    int r0 = blockIdx.x / ACROSS * TILE, q0 = blockIdx.x % ACROSS * TILE;
    float s[NF] = {};
    for (int c = 0; c < C; c++) {
        for (int k = threadIdx.x; k < (TILE + 2) * (TILE + 2); k += 256) {
            int r = r0 + k / (TILE + 2) - 1, q = q0 + k % (TILE + 2) - 1;
            tile[k / (TILE + 2)][k % (TILE + 2)] = r >= 0 && r < S && q >= 0 && q < S ? x[((i * C + c) * S + r) * S + q] : 0.f;
        }
        if (threadIdx.x < NF * 9) {
            int n = threadIdx.x / 9;
            W[n][threadIdx.x % 9] = f0 + n < F ? w[((f0 + n) * C + c) * 9 + threadIdx.x % 9] : 0.f;
        }
        __syncthreads();
#pragma unroll
        for (int u = 0; u < 9; u++) {
            float value = tile[ty + u / 3][tx + u % 3];
#pragma unroll
            for (int n = 0; n < NF; n++) s[n] += value * W[n][u];
        }
        __syncthreads();
    }
    int r = r0 + ty, q = q0 + tx;
    for (int n = 0; n < NF; n++) if (f0 + n < F && r < S && q < S) y[((i * F + f0 + n) * S + r) * S + q] = s[n];
}
extern "C" void launch(float* out0, const float* x, const float* w, void* workspace, cudaStream_t stream) {
    convolve<<<dim3(ACROSS * ACROSS, (F + NF - 1) / NF, I), 256, 0, stream>>>(x, w, out0);
}
