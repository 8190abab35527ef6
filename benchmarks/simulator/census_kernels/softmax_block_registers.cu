// task: softmax_f32
// A block a row, the row in registers; block reductions by warps and one shared line.
#include "task.cuh"

template <int N, class Combine>
__device__ float block_reduce(float v, float nothing, Combine combine) {
    __shared__ float partial[N / 32];
    for (int d = 16; d; d >>= 1) v = combine(v, __shfl_down_sync(0xffffffffu, v, d));
    if (threadIdx.x % 32 == 0) partial[threadIdx.x / 32] = v;
    __syncthreads();
    v = threadIdx.x < N / 32 ? partial[threadIdx.x] : nothing;
    if (threadIdx.x < 32) {
        for (int d = N / 64; d; d >>= 1) v = combine(v, __shfl_down_sync(0xffffffffu, v, d));
        if (threadIdx.x == 0) partial[0] = v;
    }
    __syncthreads();
    v = partial[0];
    __syncthreads();
    return v;
}

template <int N, int EACH>
__global__ __launch_bounds__(N) void softmax(const float* __restrict__ x, float* __restrict__ y,
                                             int columns) {
    const size_t row = (size_t)blockIdx.x * columns;
    float v[EACH], top = -INFINITY, sum = 0;
#pragma unroll
    for (int i = 0; i < EACH; i++) {
        int c = threadIdx.x + i * N;
        v[i] = c < columns ? x[row + c] : -INFINITY;
        top = fmaxf(top, v[i]);
    }
    top = block_reduce<N>(top, -INFINITY, [](float a, float b) { return fmaxf(a, b); });
#pragma unroll
    for (int i = 0; i < EACH; i++) sum += v[i] = exp2f((v[i] - top) * 1.44269504f);
    sum = block_reduce<N>(sum, 0.f, [](float a, float b) { return a + b; });
#pragma unroll
    for (int i = 0; i < EACH; i++) {
        int c = threadIdx.x + i * N;
        if (c < columns) y[row + c] = v[i] / sum;
    }
}

extern "C" void launch(float* out0, const float* x, void* workspace, cudaStream_t stream) {
    softmax<256, (X_SIZE_1 + 255) / 256><<<X_SIZE_0, 256, 0, stream>>>(x, out0, X_SIZE_1);
}
