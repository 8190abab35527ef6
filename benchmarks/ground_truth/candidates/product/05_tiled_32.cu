// Tiles of 32 x 32 in shared memory.
#include "task.cuh"
constexpr int M = DIM_M, N = DIM_N, K = DIM_K;
constexpr int S = 32, PAD = 0;
__global__ void product(const float* a, const float* b, float* c) {
    __shared__ float A[S][S + PAD], B[S][S + PAD];
    int tx = threadIdx.x, ty = threadIdx.y, x = blockIdx.x * S + tx, y = blockIdx.y * S + ty;
    float s = 0.f;
    for (int k = 0; k < K; k += S) {
        A[ty][tx] = y < M && k + tx < K ? a[y * K + k + tx] : 0.f;
        B[ty][tx] = k + ty < K && x < N ? b[(k + ty) * N + x] : 0.f;
        __syncthreads();
#pragma unroll
        for (int j = 0; j < S; j++) s += A[ty][j] * B[j][tx];
        __syncthreads();
    }
    if (x < N && y < M) c[y * N + x] = s;
}
extern "C" void launch(float* out0, const float* a, const float* b, void* workspace, cudaStream_t stream) {
    product<<<dim3((N + S - 1) / S, (M + S - 1) / S), dim3(S, S), 0, stream>>>(a, b, out0);
}
