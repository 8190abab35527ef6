// A warp for each query, online softmax, keys and values from the caches.
#include "task.cuh"
constexpr int H = DIM_HEADS, L = DIM_LENGTH, D = DIM_WIDTH;
constexpr int T = 256, EACH = (D + 31) / 32;
__global__ void attend(const float* q, const float* k, const float* v, float* y) {
    int warp = (blockIdx.x * T + threadIdx.x) / 32, lane = threadIdx.x % 32, h = warp / L;
    if (h >= H) return;
    float mine[EACH], sum[EACH] = {}, top = -INFINITY, total = 0.f;
    for (int e = 0; e < EACH; e++) mine[e] = lane + 32 * e < D ? q[warp * D + lane + 32 * e] / 8.f : 0.f;
    for (int j = 0; j < L; j++) {
        float t = 0.f;
        for (int e = 0; e < EACH; e++) if (lane + 32 * e < D) t += mine[e] * k[(h * L + j) * D + lane + 32 * e];
        for (int o = 16; o; o /= 2) t += __shfl_xor_sync(~0u, t, o);
        float higher = fmaxf(top, t), scale = expf(top - higher), p = expf(t - higher);
        total = total * scale + p, top = higher;
        for (int e = 0; e < EACH; e++) if (lane + 32 * e < D) sum[e] = sum[e] * scale + p * v[(h * L + j) * D + lane + 32 * e];
    }
    for (int e = 0; e < EACH; e++) if (lane + 32 * e < D) y[warp * D + lane + 32 * e] = sum[e] / total;
}
extern "C" void launch(float* out0, const float* q, const float* k, const float* v, void* workspace, cudaStream_t stream) {
    attend<<<(H * L * 32 + T - 1) / T, T, 0, stream>>>(q, k, v, out0);
}
