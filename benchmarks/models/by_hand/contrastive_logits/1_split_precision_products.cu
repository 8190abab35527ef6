#include "task.cuh"

#include <cuda_fp16.h>
#include <cuda_pipeline.h>

namespace {

constexpr int THREADS = 256;
constexpr int ROWS = (int)DIM_ROWS;
constexpr int COLUMNS = (int)DIM_COLUMNS;
constexpr int FEATURES = (int)DIM_FEATURES;
constexpr float LOGIT_SCALE = 20.0f;

constexpr int PRODUCTS = 3;    // 3: hi*hi + hi*lo + lo*hi; 4 or more: lo*lo too
constexpr int WARP_TILE = 32;  // a warp computes WARP_TILE x WARP_TILE logits
constexpr int BLOCK_TILE = 2 * WARP_TILE;
constexpr int MATMUL_THREADS = 128;  // 2 x 2 warps
constexpr int K_TILE = 64;
constexpr int K_STRIDE = K_TILE + 8;  // 144 bytes: 8 rows of ldmatrix fall on different banks
constexpr int STAGES = 2;
constexpr float HALF_SCALE = 1024.0f;  // exact; keeps the rests of small elements above half's underflow

constexpr int round_up(int value, int to) { return (value + to - 1) / to * to; }
constexpr int ROWS_PADDED = round_up(ROWS, BLOCK_TILE);
constexpr int COLUMNS_PADDED = round_up(COLUMNS, BLOCK_TILE);
constexpr int FEATURES_PADDED = round_up(FEATURES, K_TILE);
constexpr int K_TILES = FEATURES_PADDED / K_TILE;

constexpr int TILE_HALVES = BLOCK_TILE * K_STRIDE;   // one part of one operand
constexpr int STAGE_HALVES = 4 * TILE_HALVES;        // a hi, a lo, b hi, b lo
constexpr size_t MATMUL_SHARED = (size_t)STAGES * STAGE_HALVES * sizeof(half);

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

// one block a (padded) row: hi + lo = HALF_SCALE * in / max(|in|, 1e-12)
__global__ void normalize_split_kernel(half* __restrict__ hi, half* __restrict__ lo, const float* __restrict__ in, int rows) {
    __shared__ float buffer[THREADS];
    const bool real = (int)blockIdx.x < rows;
    const size_t row = (size_t)blockIdx.x * FEATURES;
    const size_t out = (size_t)blockIdx.x * FEATURES_PADDED;
    float sum = 0.0f;
    if (real) {
        for (int k = threadIdx.x; k < FEATURES; k += THREADS) {
            float v = in[row + k];
            sum = fmaf(v, v, sum);
        }
    }
    sum = block_sum(sum, buffer);
    const float norm = fmaxf(sqrtf(sum), 1e-12f);
    for (int k = threadIdx.x; k < FEATURES_PADDED; k += THREADS) {
        const float v = (real && k < FEATURES) ? in[row + k] / norm * HALF_SCALE : 0.0f;
        const half big = __float2half_rn(v);
        hi[out + k] = big;
        lo[out + k] = __float2half_rn(v - __half2float(big));
    }
}

__device__ __forceinline__ void load_matrices(unsigned (&r)[4], const half* p) {
    const unsigned address = (unsigned)__cvta_generic_to_shared(p);
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
                 : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
                 : "r"(address)
                 : "memory");
}

__device__ __forceinline__ void multiply_add(float (&c)[4], const unsigned (&a)[4], unsigned b0, unsigned b1) {
    asm volatile("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
                 : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
                 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}

// copies BLOCK_TILE rows of K_TILE halves
__device__ __forceinline__ void load_tile(half* shared, const half* global) {
    constexpr int CHUNKS = K_TILE / 8;
    static_assert(BLOCK_TILE * CHUNKS % MATMUL_THREADS == 0, "whole chunks a thread");
#pragma unroll
    for (int n = 0; n < BLOCK_TILE * CHUNKS / MATMUL_THREADS; ++n) {
        const int i = n * MATMUL_THREADS + (int)threadIdx.x;
        const int r = i / CHUNKS, c = i % CHUNKS * 8;
        __pipeline_memcpy_async(shared + r * K_STRIDE + c, global + (size_t)r * FEATURES_PADDED + c, 16);
    }
}

// logits[r][c] = 20 * sum_k a[r][k] * b[c][k]
__global__ void __launch_bounds__(MATMUL_THREADS)
matmul_split_kernel(float* __restrict__ logits, const half* __restrict__ a_hi, const half* __restrict__ a_lo,
                    const half* __restrict__ b_hi, const half* __restrict__ b_lo) {
    extern __shared__ __align__(16) half tiles[];
    constexpr int M_PARTS = WARP_TILE / 16;  // m16
    constexpr int N_PARTS = WARP_TILE / 8;   // n8
    const int lane = (int)threadIdx.x % 32, warp = (int)threadIdx.x / 32;
    const int warp_row = warp / 2 * WARP_TILE, warp_column = warp % 2 * WARP_TILE;
    const size_t a_start = (size_t)blockIdx.y * BLOCK_TILE * FEATURES_PADDED;
    const size_t b_start = (size_t)blockIdx.x * BLOCK_TILE * FEATURES_PADDED;

    auto load_stage = [&](int tile) {
        half* stage = tiles + tile % STAGES * STAGE_HALVES;
        const int k = tile * K_TILE;
        load_tile(stage, a_hi + a_start + k);
        load_tile(stage + TILE_HALVES, a_lo + a_start + k);
        load_tile(stage + 2 * TILE_HALVES, b_hi + b_start + k);
        load_tile(stage + 3 * TILE_HALVES, b_lo + b_start + k);
    };

    float sums[M_PARTS][N_PARTS][4] = {};
    // rows and columns that this lane addresses in ldmatrix
    const int a_offset = (warp_row + lane / 8 % 2 * 8 + lane % 8) * K_STRIDE + lane / 16 * 8;
    const int b_offset = (warp_column + lane / 16 * 8 + lane % 8) * K_STRIDE + lane / 8 % 2 * 8;

    load_stage(0);
    __pipeline_commit();
    for (int tile = 0; tile < K_TILES; ++tile) {
        if (tile + 1 < K_TILES) load_stage(tile + 1);
        __pipeline_commit();
        __pipeline_wait_prior(1);
        __syncthreads();
        const half* stage = tiles + tile % STAGES * STAGE_HALVES;
#pragma unroll
        for (int k = 0; k < K_TILE; k += 16) {
            unsigned big_a[M_PARTS][4], small_a[M_PARTS][4];
#pragma unroll
            for (int m = 0; m < M_PARTS; ++m) {
                load_matrices(big_a[m], stage + a_offset + m * 16 * K_STRIDE + k);
                load_matrices(small_a[m], stage + TILE_HALVES + a_offset + m * 16 * K_STRIDE + k);
            }
#pragma unroll
            for (int n = 0; n < N_PARTS; n += 2) {
                unsigned big_b[4], small_b[4];
                load_matrices(big_b, stage + 2 * TILE_HALVES + b_offset + n * 8 * K_STRIDE + k);
                load_matrices(small_b, stage + 3 * TILE_HALVES + b_offset + n * 8 * K_STRIDE + k);
#pragma unroll
                for (int m = 0; m < M_PARTS; ++m) {
#pragma unroll
                    for (int h = 0; h < 2; ++h) {
                        float(&sum)[4] = sums[m][n + h];
                        if constexpr (PRODUCTS > 3) multiply_add(sum, small_a[m], small_b[2 * h], small_b[2 * h + 1]);
                        multiply_add(sum, small_a[m], big_b[2 * h], big_b[2 * h + 1]);
                        multiply_add(sum, big_a[m], small_b[2 * h], small_b[2 * h + 1]);
                        multiply_add(sum, big_a[m], big_b[2 * h], big_b[2 * h + 1]);
                    }
                }
            }
        }
        __syncthreads();
    }

    constexpr float SCALE_BACK = LOGIT_SCALE / (HALF_SCALE * HALF_SCALE);
#pragma unroll
    for (int m = 0; m < M_PARTS; ++m) {
#pragma unroll
        for (int n = 0; n < N_PARTS; ++n) {
#pragma unroll
            for (int h = 0; h < 2; ++h) {
                const int row = (int)blockIdx.y * BLOCK_TILE + warp_row + m * 16 + h * 8 + lane / 4;
                const int column = (int)blockIdx.x * BLOCK_TILE + warp_column + n * 8 + lane % 4 * 2;
                const float first = sums[m][n][2 * h] * SCALE_BACK, second = sums[m][n][2 * h + 1] * SCALE_BACK;
                float* to = logits + (size_t)row * COLUMNS + column;
                if constexpr (ROWS % BLOCK_TILE == 0 && COLUMNS % BLOCK_TILE == 0) {
                    *reinterpret_cast<float2*>(to) = make_float2(first, second);
                } else if (row < ROWS) {
                    if (column < COLUMNS) to[0] = first;
                    if (column + 1 < COLUMNS) to[1] = second;
                }
            }
        }
    }
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

constexpr size_t A_HALVES = (size_t)ROWS_PADDED * FEATURES_PADDED;
constexpr size_t B_HALVES = (size_t)COLUMNS_PADDED * FEATURES_PADDED;

}  // namespace

extern "C" size_t workspace_bytes() {
    return 2 * (A_HALVES + B_HALVES) * sizeof(half) + (size_t)OUT0_NUMEL * sizeof(float);
}

extern "C" void launch(float* out0, const float* a, const float* b, void* workspace, cudaStream_t stream) {
    half* a_hi = static_cast<half*>(workspace);
    half* a_lo = a_hi + A_HALVES;
    half* b_hi = a_lo + A_HALVES;
    half* b_lo = b_hi + B_HALVES;
    float* logits = reinterpret_cast<float*>(b_lo + B_HALVES);
    normalize_split_kernel<<<ROWS_PADDED, THREADS, 0, stream>>>(a_hi, a_lo, a, ROWS);
    normalize_split_kernel<<<COLUMNS_PADDED, THREADS, 0, stream>>>(b_hi, b_lo, b, COLUMNS);
    cudaFuncSetAttribute(matmul_split_kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, (int)MATMUL_SHARED);
    matmul_split_kernel<<<dim3(COLUMNS_PADDED / BLOCK_TILE, ROWS_PADDED / BLOCK_TILE), MATMUL_THREADS, MATMUL_SHARED, stream>>>(
        logits, a_hi, a_lo, b_hi, b_lo);
    log_softmax_kernel<<<ROWS, THREADS, 0, stream>>>(out0, logits);
}
