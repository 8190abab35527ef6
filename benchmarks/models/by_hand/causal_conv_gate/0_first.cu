#include "task.cuh"

namespace {

constexpr int THREADS = 256;
constexpr long long TOTAL = OUT0_NUMEL;
constexpr int STEPS = (int)DIM_STEPS;
constexpr int CHANNELS = (int)DIM_CHANNELS;
constexpr int WIDTH = (int)DIM_WIDTH;

__global__ void conv_kernel(float* __restrict__ y, const float* __restrict__ x,
                            const float* __restrict__ weight, const float* __restrict__ bias) {
    long long i = (long long)blockIdx.x * THREADS + threadIdx.x;
    if (i >= TOTAL) return;
    int t = (int)(i % STEPS);
    int c = (int)((i / STEPS) % CHANNELS);
    float sum = bias[c];
#pragma unroll
    for (int k = 0; k < WIDTH; ++k) {
        int s = t + k - (WIDTH - 1);
        if (s >= 0) sum = fmaf(weight[c * WIDTH + k], x[i + k - (WIDTH - 1)], sum);
    }
    y[i] = sum;
}

__global__ void silu_gate_kernel(float* __restrict__ out, const float* __restrict__ y,
                                 const float* __restrict__ gate) {
    long long i = (long long)blockIdx.x * THREADS + threadIdx.x;
    if (i >= TOTAL) return;
    float v = y[i];
    out[i] = v / (1.0f + expf(-v)) * gate[i];
}

}  // namespace

extern "C" size_t workspace_bytes() { return (size_t)TOTAL * sizeof(float); }

extern "C" void launch(float* out0, const float* x, const float* gate, const float* conv_weight, const float* conv_bias, void* workspace, cudaStream_t stream) {
    float* y = static_cast<float*>(workspace);
    const unsigned blocks = (unsigned)((TOTAL + THREADS - 1) / THREADS);
    conv_kernel<<<blocks, THREADS, 0, stream>>>(y, x, conv_weight, conv_bias);
    silu_gate_kernel<<<blocks, THREADS, 0, stream>>>(out0, y, gate);
}
