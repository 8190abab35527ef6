// Tiles of 32 x 32, four outputs of a column to a thread.
#include "task.cuh"
constexpr int M = DIM_M, N = DIM_N, K = DIM_K;
constexpr int S = 32;
__global__ void product(const float* a, const float* b, float* c) {
    __shared__ float A[S][S], B[S][S];
    int tx = threadIdx.x, ty = threadIdx.y, x = blockIdx.x * S + tx, y = blockIdx.y * S + ty;
    float s[4] = {};
    for (int k = 0; k < K; k += S) {
        for (int p = 0; p < 4; p++) {
            int r = ty + 8 * p;
            A[r][tx] = y + 8 * p < M && k + tx < K ? a[(y + 8 * p) * K + k + tx] : 0.f;
            B[r][tx] = k + r < K && x < N ? b[(k + r) * N + x] : 0.f;
        }
        __syncthreads();
#pragma unroll
        for (int j = 0; j < S; j++)
#pragma unroll
            for (int p = 0; p < 4; p++) s[p] += A[ty + 8 * p][j] * B[j][tx];
        __syncthreads();
    }
    for (int p = 0; p < 4; p++) if (x < N && y + 8 * p < M) c[(y + 8 * p) * N + x] = s[p];
}
extern "C" void launch(float* out0, const float* a, const float* b, void* workspace, cudaStream_t stream) {
    product<<<dim3((N + S - 1) / S, (M + S - 1) / S), dim3(S, 8), 0, stream>>>(a, b, out0);
}
