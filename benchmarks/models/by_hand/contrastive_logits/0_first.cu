#include "task.cuh"

namespace {

constexpr int THREADS = 256;
constexpr int ROWS = (int)DIM_ROWS;
constexpr int COLUMNS = (int)DIM_COLUMNS;
constexpr int FEATURES = (int)DIM_FEATURES;
constexpr float LOGIT_SCALE = 20.0f;
constexpr int TILE = 16;

__device__ float block_sum(float v, float* buffer) {
    buffer[threadIdx.x] = v;
    __syncthreads();
    for (int step = THREADS / 2; step > 0; step /= 2) {
        if (threadIdx.x < step) buffer[threadIdx.x] += buffer[threadIdx.x + step];
        __syncthreads();
    }
    float result = buffer[0];
    __syncthreads();
    return result;
}

__device__ float block_max(float v, float* buffer) {
    buffer[threadIdx.x] = v;
    __syncthreads();
    for (int step = THREADS / 2; step > 0; step /= 2) {
        if (threadIdx.x < step) buffer[threadIdx.x] = fmaxf(buffer[threadIdx.x], buffer[threadIdx.x + step]);
        __syncthreads();
    }
    float result = buffer[0];
    __syncthreads();
    return result;
}

// one block a row: out = in / max(|in|, 1e-12)
__global__ void normalize_kernel(float* __restrict__ out, const float* __restrict__ in) {
    __shared__ float buffer[THREADS];
    const size_t row = (size_t)blockIdx.x * FEATURES;
    float sum = 0.0f;
    for (int k = threadIdx.x; k < FEATURES; k += THREADS) {
        float v = in[row + k];
        sum = fmaf(v, v, sum);
    }
    sum = block_sum(sum, buffer);
    const float norm = fmaxf(sqrtf(sum), 1e-12f);
    for (int k = threadIdx.x; k < FEATURES; k += THREADS) out[row + k] = in[row + k] / norm;
}

// logits[r][c] = 20 * sum_k a[r][k] * b[c][k]
__global__ void matmul_kernel(float* __restrict__ logits, const float* __restrict__ a, const float* __restrict__ b) {
    __shared__ float tile_a[TILE][TILE + 1];
    __shared__ float tile_b[TILE][TILE + 1];
    const int tx = threadIdx.x, ty = threadIdx.y;
    const int row = blockIdx.y * TILE + ty;
    const int column = blockIdx.x * TILE + tx;
    const int b_row = blockIdx.x * TILE + ty;
    float sum = 0.0f;
    for (int k0 = 0; k0 < FEATURES; k0 += TILE) {
        const int k = k0 + tx;
        tile_a[ty][tx] = (row < ROWS && k < FEATURES) ? a[(size_t)row * FEATURES + k] : 0.0f;
        tile_b[ty][tx] = (b_row < COLUMNS && k < FEATURES) ? b[(size_t)b_row * FEATURES + k] : 0.0f;
        __syncthreads();
#pragma unroll
        for (int kk = 0; kk < TILE; ++kk) sum = fmaf(tile_a[ty][kk], tile_b[tx][kk], sum);
        __syncthreads();
    }
    if (row < ROWS && column < COLUMNS) logits[(size_t)row * COLUMNS + column] = LOGIT_SCALE * sum;
}

// one block a row
__global__ void log_softmax_kernel(float* __restrict__ out, const float* __restrict__ logits) {
    __shared__ float buffer[THREADS];
    const size_t row = (size_t)blockIdx.x * COLUMNS;
    float highest = -INFINITY;
    for (int c = threadIdx.x; c < COLUMNS; c += THREADS) highest = fmaxf(highest, logits[row + c]);
    highest = block_max(highest, buffer);
    float sum = 0.0f;
    for (int c = threadIdx.x; c < COLUMNS; c += THREADS) sum += expf(logits[row + c] - highest);
    sum = block_sum(sum, buffer);
    const float log_sum = logf(sum);
    for (int c = threadIdx.x; c < COLUMNS; c += THREADS) out[row + c] = logits[row + c] - highest - log_sum;
}

}  // namespace

extern "C" size_t workspace_bytes() {
    return (size_t)(A_NUMEL + B_NUMEL + OUT0_NUMEL) * sizeof(float);
}

extern "C" void launch(float* out0, const float* a, const float* b, void* workspace, cudaStream_t stream) {
    float* a_unit = static_cast<float*>(workspace);
    float* b_unit = a_unit + A_NUMEL;
    float* logits = b_unit + B_NUMEL;
    normalize_kernel<<<ROWS, THREADS, 0, stream>>>(a_unit, a);
    normalize_kernel<<<COLUMNS, THREADS, 0, stream>>>(b_unit, b);
    matmul_kernel<<<dim3((COLUMNS + TILE - 1) / TILE, (ROWS + TILE - 1) / TILE), dim3(TILE, TILE), 0, stream>>>(logits, a_unit, b_unit);
    log_softmax_kernel<<<ROWS, THREADS, 0, stream>>>(out0, logits);
}
