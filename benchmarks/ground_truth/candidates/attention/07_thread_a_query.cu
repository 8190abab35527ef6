// A thread for each query, online softmax, keys and values in tiles of 32.
#include "task.cuh"
constexpr int H = DIM_HEADS, L = DIM_LENGTH, D = DIM_WIDTH;
constexpr int T = 64, TILE = 32;
__global__ void __launch_bounds__(T) attend(const float* q, const float* k, const float* v, float* y) {
    __shared__ __align__(16) float E[TILE][D], V[TILE][D];
    int h = blockIdx.y, i = blockIdx.x * T + threadIdx.x;
    float mine[D], sum[D], top = -INFINITY, total = 0.f;
#pragma unroll
    for (int d = 0; d < D; d++) mine[d] = i < L ? q[(h * L + i) * D + d] / 8.f : 0.f, sum[d] = 0.f;
    for (int j0 = 0; j0 < L; j0 += TILE) {
        __syncthreads();
        for (int e = threadIdx.x; e < TILE * D; e += T) {
            bool inside = j0 + e / D < L;
            E[e / D][e % D] = inside ? k[(h * L + j0) * D + e] : 0.f;
            V[e / D][e % D] = inside ? v[(h * L + j0) * D + e] : 0.f;
        }
        __syncthreads();
        for (int j = 0; j < TILE && j0 + j < L; j++) {
            float t = 0.f;
#pragma unroll
            for (int d = 0; d < D; d++) t += mine[d] * E[j][d];
            float higher = fmaxf(top, t), scale = expf(top - higher), p = expf(t - higher);
            total = total * scale + p, top = higher;
#pragma unroll
            for (int d = 0; d < D; d++) sum[d] = sum[d] * scale + p * V[j][d];
        }
    }
#pragma unroll
    for (int d = 0; d < D; d++) if (i < L) y[(h * L + i) * D + d] = sum[d] / total;
}
extern "C" void launch(float* out0, const float* q, const float* k, const float* v, void* workspace, cudaStream_t stream) {
    attend<<<dim3((L + T - 1) / T, H), T, 0, stream>>>(q, k, v, out0);
}
