#include "task.cuh"

#include <cooperative_groups.h>
#include <cuda_fp16.h>
#include <cuda_pipeline.h>

namespace {

constexpr int ROWS = (int)DIM_ROWS;
constexpr int COLUMNS = (int)DIM_COLUMNS;
constexpr int FEATURES = (int)DIM_FEATURES;
constexpr float LOGIT_SCALE = 20.0f;  // the logits' largest size, too

constexpr int PRODUCTS = 3;       // 3: hi*hi + hi*lo + lo*hi; 4 or more: lo*lo too
constexpr int WARP_TILE = 32;     // a warp computes WARP_TILE x WARP_TILE logits
constexpr int BLOCKS_PER_SM = 1;  // all blocks are resident; decides the tile
constexpr int BLOCK_ROWS = BLOCKS_PER_SM == 1 ? 128 : 64;
constexpr int BLOCK_COLUMNS = BLOCKS_PER_SM <= 2 ? 64 : 32;
static_assert(BLOCK_COLUMNS >= WARP_TILE, "a warp's tile within the block's");
constexpr int WARP_COLUMNS = BLOCK_COLUMNS / WARP_TILE;
constexpr int WARPS = BLOCK_ROWS / WARP_TILE * WARP_COLUMNS;
constexpr int THREADS = 32 * WARPS;
constexpr int K_TILE = 64;
constexpr int K_STRIDE = K_TILE + 8;  // 144 bytes: 8 rows of ldmatrix fall on different banks
constexpr int STAGES = BLOCKS_PER_SM == 1 ? 4 : BLOCKS_PER_SM == 2 ? 3 : 2;
constexpr float HALF_SCALE = 1024.0f;  // exact; keeps the rests of small elements above half's underflow

constexpr int round_up(int value, int to) { return (value + to - 1) / to * to; }
constexpr int ROWS_PADDED = round_up(ROWS, BLOCK_ROWS);
constexpr int COLUMNS_PADDED = round_up(COLUMNS, BLOCK_COLUMNS);
constexpr int K = round_up(FEATURES, K_TILE);
constexpr int K_TILES = K / K_TILE;
constexpr int TILES_X = COLUMNS_PADDED / BLOCK_COLUMNS;
constexpr int TILES = ROWS_PADDED / BLOCK_ROWS * TILES_X;
constexpr int SMS = 132;
static_assert(TILES <= SMS * BLOCKS_PER_SM, "all tiles are resident at once");
constexpr int PARTIALS = COLUMNS_PADDED / WARP_TILE;  // sums of exp of a row
constexpr int LANE_CHUNKS = (K + 127) / 128;          // groups of 4 features a lane

constexpr int TILE_ROWS = BLOCK_ROWS + BLOCK_COLUMNS;  // rows of a, then rows of b
constexpr int PART_HALVES = TILE_ROWS * K_STRIDE;
constexpr int STAGE_HALVES = 2 * PART_HALVES;  // hi, lo
constexpr size_t SHARED = (size_t)STAGES * STAGE_HALVES * sizeof(half);

// the unit rows of a, then of b
constexpr int ALL_ROWS = ROWS_PADDED + COLUMNS_PADDED;
constexpr size_t UNIT_HALVES = (size_t)ALL_ROWS * K;

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

// one k tile of the block's rows of a and b, both parts
__device__ __forceinline__ void load_stage(half* stage, const half* units, int first_row, int first_column, int k) {
    constexpr int CHUNKS = K_TILE / 8;
    constexpr int EACH = TILE_ROWS * CHUNKS / THREADS;
    static_assert(TILE_ROWS * CHUNKS % THREADS == 0, "whole chunks a thread");
#pragma unroll
    for (int part = 0; part < 2; ++part) {
#pragma unroll
        for (int n = 0; n < EACH; ++n) {
            const int i = n * THREADS + (int)threadIdx.x;
            const int r = i / CHUNKS, c = i % CHUNKS * 8;
            const int row = r < BLOCK_ROWS ? first_row + r : ROWS_PADDED + first_column + r - BLOCK_ROWS;
            __pipeline_memcpy_async(stage + part * PART_HALVES + r * K_STRIDE + c,
                                    units + part * UNIT_HALVES + (size_t)row * K + k + c, 16);
        }
    }
}

__global__ void __launch_bounds__(THREADS, BLOCKS_PER_SM)
contrastive_kernel(float* out, const float* __restrict__ a, const float* __restrict__ b, half* units, float* partials) {
    extern __shared__ __align__(16) half tiles[];
    cooperative_groups::grid_group grid = cooperative_groups::this_grid();
    const int lane = (int)threadIdx.x % 32, warp = (int)threadIdx.x / 32;

    // 1: hi + lo = HALF_SCALE * row / max(|row|, 1e-12), a warp a row
    for (int r = (int)blockIdx.x * WARPS + warp; r < ALL_ROWS; r += TILES * WARPS) {
        const bool of_a = r < ROWS_PADDED;
        const int row = of_a ? r : r - ROWS_PADDED;
        const bool exists = row < (of_a ? ROWS : COLUMNS);
        const float* from = (of_a ? a : b) + (size_t)row * FEATURES;
        float4 v[LANE_CHUNKS];
#pragma unroll
        for (int j = 0; j < LANE_CHUNKS; ++j) v[j] = load_features(from, (j * 32 + lane) * 4, exists);
        float sum = 0.0f;
#pragma unroll
        for (int j = 0; j < LANE_CHUNKS; ++j) {
            sum = fmaf(v[j].x, v[j].x, sum);
            sum = fmaf(v[j].y, v[j].y, sum);
            sum = fmaf(v[j].z, v[j].z, sum);
            sum = fmaf(v[j].w, v[j].w, sum);
        }
#pragma unroll
        for (int step = 16; step > 0; step /= 2) sum += __shfl_xor_sync(0xffffffffu, sum, step);
        const float norm = fmaxf(sqrtf(sum), 1e-12f);
        half* to = units + (size_t)r * K;
#pragma unroll
        for (int j = 0; j < LANE_CHUNKS; ++j) {
            const int k = (j * 32 + lane) * 4;
            if (K % 128 == 0 || k < K) store_split(to + k, to + UNIT_HALVES + k, v[j], norm);
        }
    }
    grid.sync();

    // 2: the logits of a tile, in registers
    constexpr int M_PARTS = WARP_TILE / 16;  // m16
    constexpr int N_PARTS = WARP_TILE / 8;   // n8
    const int tile_x = (int)blockIdx.x % TILES_X;
    const int first_row = (int)blockIdx.x / TILES_X * BLOCK_ROWS, first_column = tile_x * BLOCK_COLUMNS;
    const int warp_row = warp / WARP_COLUMNS * WARP_TILE, warp_column = warp % WARP_COLUMNS * WARP_TILE;
    float sums[M_PARTS][N_PARTS][4] = {};
    // rows and columns that this lane addresses in ldmatrix
    const int a_offset = (warp_row + lane / 8 % 2 * 8 + lane % 8) * K_STRIDE + lane / 16 * 8;
    const int b_offset = (BLOCK_ROWS + warp_column + lane / 16 * 8 + lane % 8) * K_STRIDE + lane / 8 % 2 * 8;

#pragma unroll
    for (int t = 0; t < STAGES - 1; ++t) {
        if (t < K_TILES) load_stage(tiles + t * STAGE_HALVES, units, first_row, first_column, t * K_TILE);
        __pipeline_commit();
    }
    for (int t = 0; t < K_TILES; ++t) {
        __pipeline_wait_prior(STAGES - 2);
        __syncthreads();  // stage t is there for all, and all are done with the one that is filled next
        const int next = t + STAGES - 1;
        if (next < K_TILES) load_stage(tiles + next % STAGES * STAGE_HALVES, units, first_row, first_column, next * K_TILE);
        __pipeline_commit();
        const half* stage = tiles + t % STAGES * STAGE_HALVES;
#pragma unroll
        for (int k = 0; k < K_TILE; k += 16) {
            unsigned big_a[M_PARTS][4], small_a[M_PARTS][4];
#pragma unroll
            for (int m = 0; m < M_PARTS; ++m) {
                load_matrices(big_a[m], stage + a_offset + m * 16 * K_STRIDE + k);
                load_matrices(small_a[m], stage + PART_HALVES + a_offset + m * 16 * K_STRIDE + k);
            }
#pragma unroll
            for (int n = 0; n < N_PARTS; n += 2) {
                unsigned big_b[4], small_b[4];
                load_matrices(big_b, stage + b_offset + n * 8 * K_STRIDE + k);
                load_matrices(small_b, stage + PART_HALVES + b_offset + n * 8 * K_STRIDE + k);
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
    }

    // sums of exp(logit - 20) over the warp's columns: no logit is above 20 but by rounding
    constexpr float SCALE_BACK = LOGIT_SCALE / (HALF_SCALE * HALF_SCALE);
    const int in_partials = tile_x * WARP_COLUMNS + warp % WARP_COLUMNS;
#pragma unroll
    for (int m = 0; m < M_PARTS; ++m) {
#pragma unroll
        for (int h = 0; h < 2; ++h) {
            float total = 0.0f;
#pragma unroll
            for (int n = 0; n < N_PARTS; ++n) {
#pragma unroll
                for (int e = 0; e < 2; ++e) {
                    float& logit = sums[m][n][2 * h + e];
                    logit = fmaf(logit, SCALE_BACK, -LOGIT_SCALE);
                    const int column = first_column + warp_column + n * 8 + lane % 4 * 2 + e;
                    if (COLUMNS % BLOCK_COLUMNS == 0 || column < COLUMNS) total += __expf(logit);
                }
            }
            total += __shfl_xor_sync(0xffffffffu, total, 1);
            total += __shfl_xor_sync(0xffffffffu, total, 2);
            const int row = first_row + warp_row + m * 16 + h * 8 + lane / 4;
            if (lane % 4 == 0) partials[(size_t)row * PARTIALS + in_partials] = total;
        }
    }
    grid.sync();

    // 3: the log-softmax
    float totals[M_PARTS][2];
#pragma unroll
    for (int m = 0; m < M_PARTS; ++m) {
#pragma unroll
        for (int h = 0; h < 2; ++h) {
            const int row = first_row + warp_row + m * 16 + h * 8 + lane / 4;
            const float* from = partials + (size_t)row * PARTIALS;
            float total = 0.0f;
            if constexpr (PARTIALS % 16 == 0) {
#pragma unroll
                for (int i = 0; i < PARTIALS / 16; ++i) {
                    const float4 four = __ldcg(reinterpret_cast<const float4*>(from) + i * 4 + lane % 4);
                    total += (four.x + four.y) + (four.z + four.w);
                }
            } else {
                for (int i = lane % 4; i < PARTIALS; i += 4) total += __ldcg(from + i);
            }
            totals[m][h] = total;
        }
    }
#pragma unroll
    for (int m = 0; m < M_PARTS; ++m) {
#pragma unroll
        for (int h = 0; h < 2; ++h) {
            float total = totals[m][h];
            total += __shfl_xor_sync(0xffffffffu, total, 1);
            total += __shfl_xor_sync(0xffffffffu, total, 2);
            const float log_total = logf(total);
            const int row = first_row + warp_row + m * 16 + h * 8 + lane / 4;
#pragma unroll
            for (int n = 0; n < N_PARTS; ++n) {
                const int column = first_column + warp_column + n * 8 + lane % 4 * 2;
                const float first = sums[m][n][2 * h] - log_total, second = sums[m][n][2 * h + 1] - log_total;
                float* to = out + (size_t)row * COLUMNS + column;
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

}  // namespace

extern "C" size_t workspace_bytes() {
    return 2 * UNIT_HALVES * sizeof(half) + (size_t)ROWS_PADDED * PARTIALS * sizeof(float);
}

extern "C" void launch(float* out0, const float* a, const float* b, void* workspace, cudaStream_t stream) {
    half* units = static_cast<half*>(workspace);
    float* partials = reinterpret_cast<float*>(units + 2 * UNIT_HALVES);
    cudaFuncSetAttribute(contrastive_kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, (int)SHARED);
    void* arguments[] = {&out0, &a, &b, &units, &partials};
    cudaLaunchCooperativeKernel((const void*)contrastive_kernel, dim3(TILES), dim3(THREADS), arguments, SHARED, stream);
}
