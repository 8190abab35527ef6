#include "task.cuh"

namespace {

constexpr int THREADS = 256;
constexpr long long TOTAL = OUT0_NUMEL;
constexpr int STEPS = (int)DIM_STEPS;
constexpr int CHANNELS = (int)DIM_CHANNELS;
constexpr int WIDTH = (int)DIM_WIDTH;

__global__ void conv_silu_gate_kernel(float* __restrict__ out, const float* __restrict__ x,
                                      const float* __restrict__ gate,
                                      const float* __restrict__ weight, const float* __restrict__ bias) {
    long long i = (long long)blockIdx.x * THREADS + threadIdx.x;
    if (i >= TOTAL) return;
    const float g = gate[i];
    int t = (int)(i % STEPS);
    int c = (int)((i / STEPS) % CHANNELS);
    float sum = bias[c];
#pragma unroll
    for (int k = 0; k < WIDTH; ++k) {
        int s = t + k - (WIDTH - 1);
        if (s >= 0) sum = fmaf(weight[c * WIDTH + k], x[i + k - (WIDTH - 1)], sum);
    }
    out[i] = sum / (1.0f + expf(-sum)) * g;
}

}  // namespace

extern "C" void launch(float* out0, const float* x, const float* gate, const float* conv_weight, const float* conv_bias, void* workspace, cudaStream_t stream) {
    const unsigned blocks = (unsigned)((TOTAL + THREADS - 1) / THREADS);
    conv_silu_gate_kernel<<<blocks, THREADS, 0, stream>>>(out0, x, gate, conv_weight, conv_bias);
}
