#include "task.cuh"

#include <cuda_fp16.h>

namespace {

constexpr int THREADS = 256;
constexpr int ROWS = (int)DIM_ROWS;
constexpr int COLUMNS = (int)DIM_COLUMNS;
constexpr int FEATURES = (int)DIM_FEATURES;
constexpr float LOGIT_SCALE = 20.0f;

constexpr int PRODUCTS = 3;    // 3: hi*hi + hi*lo + lo*hi; 4 or more: lo*lo too
constexpr int WARP_TILE = 32;  // a warp computes WARP_TILE x WARP_TILE logits
constexpr int BLOCK_ROWS = 128;
constexpr int BLOCK_COLUMNS = 64;
constexpr int WARP_COLUMNS = BLOCK_COLUMNS / WARP_TILE;
constexpr int WARPS = BLOCK_ROWS / WARP_TILE * WARP_COLUMNS;
constexpr int MATMUL_THREADS = 32 * WARPS;
constexpr float HALF_SCALE = 1024.0f;  // exact; keeps the rests of small elements above half's underflow

constexpr int round_up(int value, int to) { return (value + to - 1) / to * to; }
constexpr int K = round_up(FEATURES, 16);
constexpr int K_STRIDE = K + 8;  // an odd number of 16-byte units: 8 rows of ldmatrix fall on different banks
constexpr int TILE_ROWS = BLOCK_ROWS + BLOCK_COLUMNS;  // rows of a, then rows of b
constexpr int PART_HALVES = TILE_ROWS * K_STRIDE;      // hi; lo follows
constexpr size_t MATMUL_SHARED = (size_t)2 * PART_HALVES * sizeof(half);
static_assert(MATMUL_SHARED <= 232448, "whole rows must fit in shared memory");
constexpr int ROWS_IN_FLIGHT = 4;  // rows that a warp loads at a time
static_assert(TILE_ROWS % (WARPS * ROWS_IN_FLIGHT) == 0, "whole passes");
constexpr int LANE_CHUNKS = (K + 127) / 128;  // groups of 4 features a lane

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

// four features of a row from k on; zeros past the row's end and for rows that do not exist
__device__ __forceinline__ float4 load_features(const float* __restrict__ row, int k, bool exists) {
    float4 v = make_float4(0.0f, 0.0f, 0.0f, 0.0f);
    if constexpr (FEATURES % 4 == 0) {
        if (exists && k < FEATURES) v = *reinterpret_cast<const float4*>(row + k);
    } else if (exists) {
        if (k < FEATURES) v.x = row[k];
        if (k + 1 < FEATURES) v.y = row[k + 1];
        if (k + 2 < FEATURES) v.z = row[k + 2];
        if (k + 3 < FEATURES) v.w = row[k + 3];
    }
    return v;
}

__device__ __forceinline__ unsigned pack(half first, half second) {
    return (unsigned)__half_as_ushort(first) | (unsigned)__half_as_ushort(second) << 16;
}

// hi + lo = HALF_SCALE * v / norm, four features
__device__ __forceinline__ void store_split(half* hi, half* lo, float4 v, float norm) {
    const float x = v.x / norm * HALF_SCALE, y = v.y / norm * HALF_SCALE;
    const float z = v.z / norm * HALF_SCALE, w = v.w / norm * HALF_SCALE;
    const half hx = __float2half_rn(x), hy = __float2half_rn(y), hz = __float2half_rn(z), hw = __float2half_rn(w);
    *reinterpret_cast<uint2*>(hi) = make_uint2(pack(hx, hy), pack(hz, hw));
    *reinterpret_cast<uint2*>(lo) =
        make_uint2(pack(__float2half_rn(x - __half2float(hx)), __float2half_rn(y - __half2float(hy))),
                   pack(__float2half_rn(z - __half2float(hz)), __float2half_rn(w - __half2float(hw))));
}

// logits[r][c] = 20 * sum_k a[r][k] * b[c][k] / (max(|a[r]|, 1e-12) * max(|b[c]|, 1e-12))
__global__ void __launch_bounds__(MATMUL_THREADS)
matmul_split_kernel(float* __restrict__ logits, const float* __restrict__ a, const float* __restrict__ b) {
    extern __shared__ __align__(16) half tiles[];
    constexpr int M_PARTS = WARP_TILE / 16;  // m16
    constexpr int N_PARTS = WARP_TILE / 8;   // n8
    const int lane = (int)threadIdx.x % 32, warp = (int)threadIdx.x / 32;
    const int first_row = (int)blockIdx.y * BLOCK_ROWS, first_column = (int)blockIdx.x * BLOCK_COLUMNS;

    // a warp normalises and splits ROWS_IN_FLIGHT rows at a time
#pragma unroll 1
    for (int start = 0; start < TILE_ROWS; start += WARPS * ROWS_IN_FLIGHT) {
        float4 v[ROWS_IN_FLIGHT][LANE_CHUNKS];
#pragma unroll
        for (int u = 0; u < ROWS_IN_FLIGHT; ++u) {
            const int r = start + u * WARPS + warp;
            const bool of_a = r < BLOCK_ROWS;
            const int row = of_a ? first_row + r : first_column + r - BLOCK_ROWS;
            const bool exists = row < (of_a ? ROWS : COLUMNS);
            const float* from = (of_a ? a : b) + (size_t)row * FEATURES;
#pragma unroll
            for (int j = 0; j < LANE_CHUNKS; ++j) v[u][j] = load_features(from, (j * 32 + lane) * 4, exists);
        }
#pragma unroll
        for (int u = 0; u < ROWS_IN_FLIGHT; ++u) {
            float sum = 0.0f;
#pragma unroll
            for (int j = 0; j < LANE_CHUNKS; ++j) {
                sum = fmaf(v[u][j].x, v[u][j].x, sum);
                sum = fmaf(v[u][j].y, v[u][j].y, sum);
                sum = fmaf(v[u][j].z, v[u][j].z, sum);
                sum = fmaf(v[u][j].w, v[u][j].w, sum);
            }
#pragma unroll
            for (int step = 16; step > 0; step /= 2) sum += __shfl_xor_sync(0xffffffffu, sum, step);
            const float norm = fmaxf(sqrtf(sum), 1e-12f);
            half* to = tiles + (start + u * WARPS + warp) * K_STRIDE;
#pragma unroll
            for (int j = 0; j < LANE_CHUNKS; ++j) {
                const int k = (j * 32 + lane) * 4;
                if (K % 128 == 0 || k < K) store_split(to + k, to + PART_HALVES + k, v[u][j], norm);
            }
        }
    }
    __syncthreads();

    const int warp_row = warp / WARP_COLUMNS * WARP_TILE, warp_column = warp % WARP_COLUMNS * WARP_TILE;
    float sums[M_PARTS][N_PARTS][4] = {};
    // rows and columns that this lane addresses in ldmatrix
    const half* a_tile = tiles + (warp_row + lane / 8 % 2 * 8 + lane % 8) * K_STRIDE + lane / 16 * 8;
    const half* b_tile = tiles + (BLOCK_ROWS + warp_column + lane / 16 * 8 + lane % 8) * K_STRIDE + lane / 8 % 2 * 8;
#pragma unroll 2
    for (int k = 0; k < K; k += 16) {
        unsigned big_a[M_PARTS][4], small_a[M_PARTS][4];
#pragma unroll
        for (int m = 0; m < M_PARTS; ++m) {
            load_matrices(big_a[m], a_tile + m * 16 * K_STRIDE + k);
            load_matrices(small_a[m], a_tile + PART_HALVES + m * 16 * K_STRIDE + k);
        }
#pragma unroll
        for (int n = 0; n < N_PARTS; n += 2) {
            unsigned big_b[4], small_b[4];
            load_matrices(big_b, b_tile + n * 8 * K_STRIDE + k);
            load_matrices(small_b, b_tile + PART_HALVES + n * 8 * K_STRIDE + k);
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

    constexpr float SCALE_BACK = LOGIT_SCALE / (HALF_SCALE * HALF_SCALE);
#pragma unroll
    for (int m = 0; m < M_PARTS; ++m) {
#pragma unroll
        for (int n = 0; n < N_PARTS; ++n) {
#pragma unroll
            for (int h = 0; h < 2; ++h) {
                const int row = first_row + warp_row + m * 16 + h * 8 + lane / 4;
                const int column = first_column + warp_column + n * 8 + lane % 4 * 2;
                const float first = sums[m][n][2 * h] * SCALE_BACK, second = sums[m][n][2 * h + 1] * SCALE_BACK;
                float* to = logits + (size_t)row * COLUMNS + column;
                if constexpr (ROWS % BLOCK_ROWS == 0 && COLUMNS % BLOCK_COLUMNS == 0) {
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

}  // namespace

extern "C" size_t workspace_bytes() { return (size_t)OUT0_NUMEL * sizeof(float); }

extern "C" void launch(float* out0, const float* a, const float* b, void* workspace, cudaStream_t stream) {
    float* logits = static_cast<float*>(workspace);
    cudaFuncSetAttribute(matmul_split_kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, (int)MATMUL_SHARED);
    matmul_split_kernel<<<dim3((COLUMNS + BLOCK_COLUMNS - 1) / BLOCK_COLUMNS, (ROWS + BLOCK_ROWS - 1) / BLOCK_ROWS),
                          MATMUL_THREADS, MATMUL_SHARED, stream>>>(logits, a, b);
    log_softmax_kernel<<<ROWS, THREADS, 0, stream>>>(out0, logits);
}
