// task: linear_i8
// 8-bit integers on tensor cores: mma.sync m16n8k32, fragments by ldmatrix.
#include "task.cuh"

constexpr int TM = 32, TN = 32, TK = 64, LINE = TK + 16;

__device__ __forceinline__ void load4(unsigned (&r)[4], const void* from) {
    unsigned at = (unsigned)__cvta_generic_to_shared(from);
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0,%1,%2,%3}, [%4];"
                 : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3]) : "r"(at));
}

__global__ __launch_bounds__(64) void gemm(const signed char* __restrict__ a,
                                           const signed char* __restrict__ w, int* __restrict__ c,
                                           int n, int k) {
    __shared__ __align__(16) signed char as[TM * LINE], bs[TN * LINE];
    const int t = threadIdx.x, warp = t / 32, lane = t % 32;
    const int row = blockIdx.y * TM, column = blockIdx.x * TN;
    int acc[4][4] = {};
    for (int at = 0; at < k; at += TK) {
        for (int i = t; i < TM * TK / 16; i += 64) {
            int r = i / 4, q = i % 4 * 16;
            *(int4*)(as + r * LINE + q) = *(const int4*)(a + (size_t)(row + r) * k + at + q);
            *(int4*)(bs + r * LINE + q) = *(const int4*)(w + (size_t)(column + r) * k + at + q);
        }
        __syncthreads();
        for (int step = 0; step < TK; step += 32) {
            unsigned x[4], y[4];
            load4(x, as + (warp * 16 + lane % 16) * LINE + step + lane / 16 * 16);
            for (int j = 0; j < 4; j += 2) {
                load4(y, bs + (8 * j + lane % 8 + lane / 16 * 8) * LINE + step + lane / 8 % 2 * 16);
                for (int h = 0; h < 2; h++)
                    asm volatile(
                        "mma.sync.aligned.m16n8k32.row.col.s32.s8.s8.s32 {%0,%1,%2,%3}, "
                        "{%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
                        : "+r"(acc[j + h][0]), "+r"(acc[j + h][1]), "+r"(acc[j + h][2]),
                          "+r"(acc[j + h][3])
                        : "r"(x[0]), "r"(x[1]), "r"(x[2]), "r"(x[3]), "r"(y[2 * h]),
                          "r"(y[2 * h + 1]));
            }
        }
        __syncthreads();
    }
    for (int j = 0; j < 4; j++)
        for (int h = 0; h < 2; h++)
            *(int2*)(c + (size_t)(row + warp * 16 + lane / 4 + 8 * h) * n + column + 8 * j +
                     lane % 4 * 2) = make_int2(acc[j][2 * h], acc[j][2 * h + 1]);
}

extern "C" void launch(int* out0, const signed char* x, const signed char* w, void* workspace,
                       cudaStream_t stream) {
    gemm<<<dim3(W_SIZE_0 / TN, X_SIZE_0 / TM), 64, 0, stream>>>(x, w, out0, W_SIZE_0, X_SIZE_1);
}
