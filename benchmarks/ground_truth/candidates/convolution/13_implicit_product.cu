// As a product of 64 x 64 outputs a block over channels and places of the filter.
#include "task.cuh"
constexpr int I = DIM_IMAGES, C = DIM_CHANNELS, F = DIM_FILTERS, S = DIM_SIDE;
constexpr int BM = 64, BN = 64, BK = 16, K = C * 9, N = S * S, T = 256;
__global__ void __launch_bounds__(T) convolve(const float* x, const float* w, float* y) {
    __shared__ float A[BK][BM + 4], B[BK][BN];
    int i = blockIdx.z, f0 = blockIdx.y * BM, n0 = blockIdx.x * BN, tx = threadIdx.x % 16 * 4, ty = threadIdx.x / 16 * 4;
    float s[4][4] = {};
    for (int k0 = 0; k0 < K; k0 += BK) {
        for (int e = threadIdx.x; e < BM * BK; e += T) {
            int r = e / BK, k = e % BK;
            A[k][r] = f0 + r < F && k0 + k < K ? w[(f0 + r) * K + k0 + k] : 0.f;
        }
        for (int e = threadIdx.x; e < BN * BK; e += T) {
            int k = k0 + e / BN, n = n0 + e % BN, c = k / 9, r = n / S + k % 9 / 3 - 1, q = n % S + k % 3 - 1;
            bool inside = k < K && n < N && r >= 0 && r < S && q >= 0 && q < S;
            B[e / BN][e % BN] = inside ? x[((i * C + c) * S + r) * S + q] : 0.f;
        }
        __syncthreads();
#pragma unroll
        for (int k = 0; k < BK; k++)
#pragma unroll
            for (int p = 0; p < 4; p++)
#pragma unroll
                for (int o = 0; o < 4; o++) s[p][o] += A[k][ty + p] * B[k][tx + o];
        __syncthreads();
    }
    for (int p = 0; p < 4; p++)
        for (int o = 0; o < 4; o++)
            if (f0 + ty + p < F && n0 + tx + o < N) y[(i * F + f0 + ty + p) * N + n0 + tx + o] = s[p][o];
}
extern "C" void launch(float* out0, const float* x, const float* w, void* workspace, cudaStream_t stream) {
    convolve<<<dim3((N + BN - 1) / BN, (F + BM - 1) / BM, I), T, 0, stream>>>(x, w, out0);
}
