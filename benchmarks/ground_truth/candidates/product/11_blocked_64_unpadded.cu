// The same without padding: stores to shared memory collide.
#include "task.cuh"
constexpr int M = DIM_M, N = DIM_N, K = DIM_K;
constexpr int BM = 64, BN = 64, BK = 16, TM = 4, TN = 4, T = BM / TM * (BN / TN);
typedef float TileA[BK][BM + 0];
typedef float TileB[BK][BN];
__device__ __forceinline__ void fetch(const float* a, const float* b, TileA* A, TileB* B, int s, int y0, int x0, int k) {
    for (int i = threadIdx.x; i < BM * BK; i += T) {
        int r = i / BK, q = i % BK;
        A[s][q][r] = y0 + r < M && k + q < K ? a[(y0 + r) * K + k + q] : 0.f;
    }
    for (int i = threadIdx.x; i < BN * BK; i += T) {
        int r = i / BN, q = i % BN;
        B[s][r][q] = k + r < K && x0 + q < N ? b[(k + r) * N + x0 + q] : 0.f;
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
    __shared__ __align__(16) TileA A[1];
    __shared__ __align__(16) TileB B[1];
    int y0 = blockIdx.y * BM, x0 = blockIdx.x * BN;
    constexpr int PART = (K + 1 - 1) / 1 + BK - 1;
    int first = blockIdx.z * (PART / BK * BK), last = min(K, first + PART / BK * BK);
    float sum[TM][TN] = {};
    for (int k = first; k < last; k += BK) {
        fetch(a, b, A, B, 0, y0, x0, k);
        __syncthreads();
        multiply(A[0], B[0], sum);
        __syncthreads();
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
