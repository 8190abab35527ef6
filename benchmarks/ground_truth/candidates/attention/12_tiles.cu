// 32 queries to a block, scores of 32 x 32 in shared memory, eight threads to a query.
#include "task.cuh"
constexpr int H = DIM_HEADS, L = DIM_LENGTH, D = DIM_WIDTH;
constexpr int T = 256, B = 32, EACH = (D + 7) / 8;
__global__ void __launch_bounds__(T) attend(const float* q, const float* k, const float* v, float* y) {
    __shared__ float Q[B][D + 1], E[B][D + 1], V[B][D], P[B][B + 1];
    int h = blockIdx.y, i0 = blockIdx.x * B, r = threadIdx.x / 8, part = threadIdx.x % 8;
    for (int e = threadIdx.x; e < B * D; e += T) Q[e / D][e % D] = i0 + e / D < L ? q[(h * L + i0) * D + e] / 8.f : 0.f;
    float sum[EACH] = {}, top = -INFINITY, total = 0.f;
    for (int j0 = 0; j0 < L; j0 += B) {
        __syncthreads();
        for (int e = threadIdx.x; e < B * D; e += T) {
            bool inside = j0 + e / D < L;
            E[e / D][e % D] = inside ? k[(h * L + j0) * D + e] : 0.f;
            V[e / D][e % D] = inside ? v[(h * L + j0) * D + e] : 0.f;
        }
        __syncthreads();
        float t[4] = {}, higher = top, more = 0.f;
#pragma unroll 8
        for (int d = 0; d < D; d++)
#pragma unroll
            for (int u = 0; u < 4; u++) t[u] += Q[r][d] * E[part + 8 * u][d];
        for (int u = 0; u < 4; u++) {
            if (j0 + part + 8 * u >= L) t[u] = -INFINITY;
            higher = fmaxf(higher, t[u]);
        }
        for (int o = 4; o; o /= 2) higher = fmaxf(higher, __shfl_xor_sync(~0u, higher, o));
        for (int u = 0; u < 4; u++) more += P[r][part + 8 * u] = expf(t[u] - higher);
        for (int o = 4; o; o /= 2) more += __shfl_xor_sync(~0u, more, o);
        float scale = expf(top - higher);
        total = total * scale + more, top = higher;
        __syncwarp();
        for (int e = 0; e < EACH; e++) sum[e] *= scale;
        for (int j = 0; j < B; j++) {
            float p = P[r][j];
#pragma unroll
            for (int e = 0; e < EACH; e++) if (part + 8 * e < D) sum[e] += p * V[j][part + 8 * e];
        }
    }
    for (int e = 0; e < EACH; e++)
        if (part + 8 * e < D && i0 + r < L) y[(h * L + i0 + r) * D + part + 8 * e] = sum[e] / total;
}
extern "C" void launch(float* out0, const float* q, const float* k, const float* v, void* workspace, cudaStream_t stream) {
    attend<<<dim3((L + B - 1) / B, H), T, 0, stream>>>(q, k, v, out0);
}
