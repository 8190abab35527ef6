// Neighbouring threads on neighbouring filters: scattered stores and weights.
#include "task.cuh"
constexpr int I = DIM_IMAGES, C = DIM_CHANNELS, F = DIM_FILTERS, S = DIM_SIDE;
__device__ __forceinline__ float at(const float* x, int i, int c, int r, int q) {
    return r >= 0 && r < S && q >= 0 && q < S ? x[((i * C + c) * S + r) * S + q] : 0.f;
}

__global__ void convolve(const float* x, const float* w, float* y) {
    int o = blockIdx.x * blockDim.x + threadIdx.x;
    if (o >= I * F * S * S) return;
    int f = o % F, q = o / F % S, r = o / F / S % S, i = o / F / S / S;
    float s = 0.f;
    for (int c = 0; c < C; c++)
        for (int u = 0; u < 3; u++)
            for (int v = 0; v < 3; v++) s += at(x, i, c, r + u - 1, q + v - 1) * w[((f * C + c) * 3 + u) * 3 + v];
    y[((i * F + f) * S + r) * S + q] = s;
}
extern "C" void launch(float* out0, const float* x, const float* w, void* workspace, cudaStream_t stream) {
    convolve<<<(I * F * S * S + 255) / 256, 256, 0, stream>>>(x, w, out0);
}
