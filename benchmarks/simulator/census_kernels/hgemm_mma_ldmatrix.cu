// task: linear_f16
// mma.sync m16n8k16 fed by ldmatrix from swizzled tiles, three cp.async stages, float sums.
#include "task.cuh"

#include <cuda_fp16.h>

constexpr int TM = 64, TN = 64, TK = 32, STAGES = 3;

__device__ __forceinline__ unsigned shared_address(const void* p) {
    return (unsigned)__cvta_generic_to_shared(p);
}
__device__ __forceinline__ void copy16(unsigned to, const void* from) {
    asm volatile("cp.async.cg.shared.global.L2::128B [%0], [%1], 16;" ::"r"(to), "l"(from));
}
__device__ __forceinline__ void commit() { asm volatile("cp.async.commit_group;"); }
template <int N>
__device__ __forceinline__ void wait_for_all_but() {
    asm volatile("cp.async.wait_group %0;" ::"n"(N));
}
__device__ __forceinline__ void load4(unsigned (&r)[4], unsigned from) {
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0,%1,%2,%3}, [%4];"
                 : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3]) : "r"(from));
}
__device__ __forceinline__ void multiply(float (&d)[4], const unsigned (&a)[4], unsigned b0,
                                         unsigned b1) {
    asm volatile("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, "
                 "{%8,%9}, {%0,%1,%2,%3};"
                 : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
                 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}
// Rows of 64 bytes; 16-byte chunks change places so that eight rows meet all banks.
__device__ __forceinline__ int place(int row, int chunk) {
    return row * TK + ((chunk ^ (row >> 1 & 3)) << 3);
}

__global__ __launch_bounds__(128) void hgemm(const __half* __restrict__ a,
                                             const __half* __restrict__ w, __half* __restrict__ c,
                                             int n, int k) {
    __shared__ __align__(128) __half as[STAGES][TM * TK], bs[STAGES][TN * TK];
    const int t = threadIdx.x, warp = t / 32, lane = t % 32, wm = warp / 2 * 32, wn = warp % 2 * 32;
    const int row = blockIdx.y * TM, column = blockIdx.x * TN, tiles = k / TK;
    auto fetch = [&](int tile) {
        int s = tile % STAGES;
        for (int i = t; i < TM * TK / 8; i += 128) {
            int r = i / 4, q = i % 4;
            copy16(shared_address(&as[s][place(r, q)]), a + (size_t)(row + r) * k + tile * TK + q * 8);
            copy16(shared_address(&bs[s][place(r, q)]),
                   w + (size_t)(column + r) * k + tile * TK + q * 8);
        }
    };
    float acc[2][4][4] = {};
    for (int i = 0; i < STAGES - 1; i++) {
        if (i < tiles) fetch(i);
        commit();
    }
    for (int tile = 0; tile < tiles; tile++) {
        wait_for_all_but<STAGES - 2>();
        __syncthreads();
        if (tile + STAGES - 1 < tiles) fetch(tile + STAGES - 1);
        commit();
        int s = tile % STAGES;
#pragma unroll
        for (int step = 0; step < TK / 16; step++) {
            unsigned x[2][4], y[2][4];
            for (int i = 0; i < 2; i++)
                load4(x[i], shared_address(&as[s][place(wm + 16 * i + lane % 16,
                                                        2 * step + lane / 16)]));
            for (int i = 0; i < 2; i++)
                load4(y[i], shared_address(&bs[s][place(wn + 16 * i + lane % 8 + lane / 16 * 8,
                                                        2 * step + lane / 8 % 2)]));
            for (int i = 0; i < 2; i++)
                for (int j = 0; j < 4; j++)
                    multiply(acc[i][j], x[i], y[j / 2][j % 2 * 2], y[j / 2][j % 2 * 2 + 1]);
        }
    }
    for (int i = 0; i < 2; i++)
        for (int j = 0; j < 4; j++)
            for (int h = 0; h < 2; h++) {
                int r = row + wm + 16 * i + lane / 4 + 8 * h, q = column + wn + 8 * j + lane % 4 * 2;
                *reinterpret_cast<__half2*>(c + (size_t)r * n + q) =
                    __floats2half2_rn(acc[i][j][2 * h], acc[i][j][2 * h + 1]);
            }
}

extern "C" void launch(__half* out0, const __half* x, const __half* w, void* workspace,
                       cudaStream_t stream) {
    static_assert(X_SIZE_0 % TM == 0 && W_SIZE_0 % TN == 0 && X_SIZE_1 % TK == 0, "whole tiles");
    hgemm<<<dim3(W_SIZE_0 / TN, X_SIZE_0 / TM), 128, 0, stream>>>(x, w, out0, W_SIZE_0, X_SIZE_1);
}
