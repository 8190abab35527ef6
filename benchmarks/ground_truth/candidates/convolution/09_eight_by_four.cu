// Eight filters and four outputs of a row to a thread, weights in shared memory.
#include "task.cuh"
constexpr int I = DIM_IMAGES, C = DIM_CHANNELS, F = DIM_FILTERS, S = DIM_SIDE;
__device__ __forceinline__ float at(const float* x, int i, int c, int r, int q) {
    return r >= 0 && r < S && q >= 0 && q < S ? x[((i * C + c) * S + r) * S + q] : 0.f;
}

constexpr int NF = 8, NX = 4, T = 128, ROWS = (S + NX - 1) / NX;
__global__ void __launch_bounds__(T) convolve(const float* x, const float* w, float* y) {
    int f0 = blockIdx.y * NF;
    __shared__ float W[NF][C * 9];
    for (int k = threadIdx.x; k < NF * C * 9; k += T) W[k / (C * 9)][k % (C * 9)] = f0 + k / (C * 9) < F ? w[f0 * C * 9 + k] : 0.f;
    __syncthreads();
    int o = blockIdx.x * T + threadIdx.x, q = o % ROWS * NX, r = o / ROWS % S, i = o / ROWS / S;
    if (i >= I) return;
    float s[NF][NX] = {};
    for (int c = 0; c < C; c++) {
#pragma unroll
        for (int u = 0; u < 3; u++) {
            float line[NX + 2];
#pragma unroll
            for (int k = 0; k < NX + 2; k++) line[k] = at(x, i, c, r + u - 1, q + k - 1);
#pragma unroll
            for (int v = 0; v < 3; v++)
#pragma unroll
                for (int n = 0; n < NF; n++) {
                    float weight = W[n][(c * 3 + u) * 3 + v];
#pragma unroll
                    for (int k = 0; k < NX; k++) s[n][k] += line[k + v] * weight;
                }
        }
    }
    for (int n = 0; n < NF; n++)
        for (int k = 0; k < NX; k++)
            if (f0 + n < F && q + k < S) y[((i * F + f0 + n) * S + r) * S + q + k] = s[n][k];
}
extern "C" void launch(float* out0, const float* x, const float* w, void* workspace, cudaStream_t stream) {
    convolve<<<dim3((I * S * ROWS + T - 1) / T, (F + NF - 1) / NF), T, 0, stream>>>(x, w, out0);
}
