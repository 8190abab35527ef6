// task: attention_f16
// Flash attention on tensor cores: scores stay in registers and become the left operand of the
// second product; V by ldmatrix.trans.
#include "task.cuh"

#include <cuda_fp16.h>

constexpr int D = 64, TQ = 64, TKV = 32, LINE = D + 8;

__device__ __forceinline__ unsigned place(const void* p) {
    return (unsigned)__cvta_generic_to_shared(p);
}
__device__ __forceinline__ void load4(unsigned (&r)[4], unsigned at) {
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0,%1,%2,%3}, [%4];"
                 : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3]) : "r"(at));
}
__device__ __forceinline__ void load4t(unsigned (&r)[4], unsigned at) {
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0,%1,%2,%3}, [%4];"
                 : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3]) : "r"(at));
}
__device__ __forceinline__ void multiply(float (&d)[4], const unsigned (&a)[4], unsigned b0,
                                         unsigned b1) {
    asm volatile("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, "
                 "{%8,%9}, {%0,%1,%2,%3};"
                 : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
                 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}
__device__ __forceinline__ unsigned packed(float x, float y) {
    __half2 h = __floats2half2_rn(x, y);
    return *reinterpret_cast<unsigned*>(&h);
}

__global__ __launch_bounds__(128) void flash(const __half* __restrict__ q, const __half* __restrict__ k,
                                             const __half* __restrict__ v, __half* __restrict__ out,
                                             int tokens, float scale) {
    __shared__ __align__(16) __half qs[TQ * LINE], ks[TKV * LINE], vs[TKV * LINE];
    const int t = threadIdx.x, warp = t / 32, lane = t % 32;
    const size_t head = (size_t)blockIdx.y * tokens * D;
    const int first = blockIdx.x * TQ;
    for (int i = t; i < TQ * D / 8; i += 128)
        *(uint4*)(qs + i / 8 * LINE + i % 8 * 8) =
            *(const uint4*)(q + head + (size_t)(first + i / 8) * D + i % 8 * 8);
    __syncthreads();
    unsigned x[D / 16][4];
    for (int i = 0; i < D / 16; i++)
        load4(x[i], place(qs + (warp * 16 + lane % 16) * LINE + 16 * i + lane / 16 * 8));
    float acc[D / 8][4] = {}, largest[2] = {-INFINITY, -INFINITY}, sum[2] = {};
    for (int at = 0; at < tokens; at += TKV) {
        __syncthreads();
        for (int i = t; i < TKV * D / 8; i += 128) {
            size_t from = head + (size_t)(at + i / 8) * D + i % 8 * 8;
            *(uint4*)(ks + i / 8 * LINE + i % 8 * 8) = *(const uint4*)(k + from);
            *(uint4*)(vs + i / 8 * LINE + i % 8 * 8) = *(const uint4*)(v + from);
        }
        __syncthreads();
        float s[TKV / 8][4] = {};
        for (int j = 0; j < TKV / 16; j++)
            for (int i = 0; i < D / 16; i++) {
                unsigned y[4];
                load4(y, place(ks + (16 * j + lane % 8 + lane / 16 * 8) * LINE + 16 * i +
                               lane / 8 % 2 * 8));
                multiply(s[2 * j], x[i], y[0], y[1]);
                multiply(s[2 * j + 1], x[i], y[2], y[3]);
            }
        for (int h = 0; h < 2; h++) {
            float top = largest[h];
            for (int j = 0; j < TKV / 8; j++) {
                s[j][2 * h] *= scale, s[j][2 * h + 1] *= scale;
                top = fmaxf(top, fmaxf(s[j][2 * h], s[j][2 * h + 1]));
            }
            top = fmaxf(top, __shfl_xor_sync(0xffffffff, top, 1));
            top = fmaxf(top, __shfl_xor_sync(0xffffffff, top, 2));
            const float shrink = exp2f((largest[h] - top) * 1.44269504f);
            float here = 0;
            for (int j = 0; j < TKV / 8; j++)
                for (int e = 2 * h; e < 2 * h + 2; e++)
                    here += s[j][e] = exp2f((s[j][e] - top) * 1.44269504f);
            here += __shfl_xor_sync(0xffffffff, here, 1);
            here += __shfl_xor_sync(0xffffffff, here, 2);
            sum[h] = sum[h] * shrink + here, largest[h] = top;
            for (int j = 0; j < D / 8; j++) acc[j][2 * h] *= shrink, acc[j][2 * h + 1] *= shrink;
        }
        for (int i = 0; i < TKV / 16; i++) {
            unsigned p[4] = {packed(s[2 * i][0], s[2 * i][1]), packed(s[2 * i][2], s[2 * i][3]),
                             packed(s[2 * i + 1][0], s[2 * i + 1][1]),
                             packed(s[2 * i + 1][2], s[2 * i + 1][3])};
            for (int j = 0; j < D / 16; j++) {
                unsigned y[4];
                load4t(y, place(vs + (16 * i + lane % 16) * LINE + 16 * j + lane / 16 * 8));
                multiply(acc[2 * j], p, y[0], y[1]);
                multiply(acc[2 * j + 1], p, y[2], y[3]);
            }
        }
    }
    for (int j = 0; j < D / 8; j++)
        for (int h = 0; h < 2; h++) {
            int row = first + warp * 16 + lane / 4 + 8 * h;
            *(__half2*)(out + head + (size_t)row * D + 8 * j + lane % 4 * 2) =
                __floats2half2_rn(acc[j][2 * h] / sum[h], acc[j][2 * h + 1] / sum[h]);
        }
}

extern "C" void launch(__half* out0, const __half* q, const __half* k, const __half* v,
                       void* workspace, cudaStream_t stream) {
    static_assert(Q_SIZE_1 % TQ == 0 && Q_SIZE_2 == D, "whole tiles");
    flash<<<dim3(Q_SIZE_1 / TQ, Q_SIZE_0), 128, 0, stream>>>(q, k, v, out0, Q_SIZE_1, 0.125f);
}
