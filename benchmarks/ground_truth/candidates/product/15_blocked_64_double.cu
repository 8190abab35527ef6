// 64 x 64 outputs a block with two buffers.
#include "task.cuh"
constexpr int M = DIM_M, N = DIM_N, K = DIM_K;
constexpr int BM = 64, BN = 64, BK = 16, TM = 4, TN = 4, T = BM / TM * (BN / TN);
typedef float TileA[BK][BM + 4];
typedef float TileB[BK][BN];
__device__ __forceinline__ void fetch(const float* a, const float* b, TileA* A, TileB* B, int s, int y0, int x0, int k) {
    for (int i = threadIdx.x; i < BM * BK / 4; i += T) {
        int r = i / (BK / 4), q = i % (BK / 4) * 4;
        float4 v = y0 + r < M && k + q < K ? *(const float4*)(a + (y0 + r) * K + k + q) : float4{};
        A[s][q][r] = v.x, A[s][q + 1][r] = v.y, A[s][q + 2][r] = v.z, A[s][q + 3][r] = v.w;
    }
    for (int i = threadIdx.x; i < BN * BK / 4; i += T) {
        int r = i / (BN / 4), q = i % (BN / 4) * 4;
        bool inside = k + r < K && x0 + q < N;
        *(float4*)&B[s][r][q] = inside ? *(const float4*)(b + (k + r) * N + x0 + q) : float4{};
    }
}
__device__ __forceinline__ void multiply(const TileA& A, const TileB& B, float (&sum)[TM][TN]) {
    int tx = threadIdx.x % (BN / TN) * TN, ty = threadIdx.x / (BN / TN) * TM;
#pragma unroll
    for (int j = 0; j < BK; j++) {
        float u[TM], v[TN];
#pragma unroll
        for (int i = 0; i < TM; i++) u[i] = A[j][ty + i];
#pragma unroll
        for (int i = 0; i < TN; i++) v[i] = B[j][tx + i];
#pragma unroll
        for (int i = 0; i < TM; i++)
#pragma unroll
            for (int q = 0; q < TN; q++) sum[i][q] += u[i] * v[q];
    }
}
__global__ void __launch_bounds__(T) product(const float* a, const float* b, float* c) {
    __shared__ __align__(16) TileA A[2];
    __shared__ __align__(16) TileB B[2];
    int y0 = blockIdx.y * BM, x0 = blockIdx.x * BN;
    constexpr int PART = (K + 1 - 1) / 1 + BK - 1;
    int first = blockIdx.z * (PART / BK * BK), last = min(K, first + PART / BK * BK);
    float sum[TM][TN] = {};
    fetch(a, b, A, B, 0, y0, x0, first);
    for (int k = first, s = 0; k < last; k += BK, s ^= 1) {
        __syncthreads();
        if (k + BK < last) fetch(a, b, A, B, s ^ 1, y0, x0, k + BK);
        multiply(A[s], B[s], sum);
    }
    int tx = threadIdx.x % (BN / TN) * TN, ty = threadIdx.x / (BN / TN) * TM;
    for (int i = 0; i < TM; i++)
        for (int j = 0; j < TN; j++) {
            int y = y0 + ty + i, x = x0 + tx + j;
            if (y < M && x < N) c[y * N + x] = sum[i][j];
        }
}
extern "C" void launch(float* out0, const float* a, const float* b, void* workspace, cudaStream_t stream) {
    product<<<dim3((N + BN - 1) / BN, (M + BM - 1) / BM), T, 0, stream>>>(a, b, out0);
}
