// The same, scores by tiles in shared memory.
#include "task.cuh"
constexpr int H = DIM_HEADS, L = DIM_LENGTH, D = DIM_WIDTH;
__global__ void score(const float* q, const float* k, float* p) {
    __shared__ float Q[16][17], E[16][17];
    int tx = threadIdx.x, ty = threadIdx.y, j0 = blockIdx.x * 16, i0 = blockIdx.y * 16, h = blockIdx.z;
    float s = 0.f;
    for (int d = 0; d < D; d += 16) {
        Q[ty][tx] = i0 + ty < L && d + tx < D ? q[(h * L + i0 + ty) * D + d + tx] : 0.f;
        E[ty][tx] = j0 + ty < L && d + tx < D ? k[(h * L + j0 + ty) * D + d + tx] : 0.f;
        __syncthreads();
#pragma unroll
        for (int u = 0; u < 16; u++) s += Q[ty][u] * E[tx][u];
        __syncthreads();
    }
    if (j0 + tx < L && i0 + ty < L) p[((size_t)h * L + i0 + ty) * L + j0 + tx] = s / 8.f;
}
__global__ void soften(float* p) {
    __shared__ float part[256];
    float* row = p + (size_t)blockIdx.x * L;
    float top = -INFINITY, s = 0.f;
    for (int i = threadIdx.x; i < L; i += 256) top = fmaxf(top, row[i]);
    part[threadIdx.x] = top;
    __syncthreads();
    for (int o = 128; o; o /= 2) {
        if (threadIdx.x < o) part[threadIdx.x] = fmaxf(part[threadIdx.x], part[threadIdx.x + o]);
        __syncthreads();
    }
    top = part[0];
    __syncthreads();
    for (int i = threadIdx.x; i < L; i += 256) s += row[i] = expf(row[i] - top);
    part[threadIdx.x] = s;
    __syncthreads();
    for (int o = 128; o; o /= 2) {
        if (threadIdx.x < o) part[threadIdx.x] += part[threadIdx.x + o];
        __syncthreads();
    }
    s = 1.f / part[0];
    for (int i = threadIdx.x; i < L; i += 256) row[i] *= s;
}
__global__ void mix(const float* p, const float* v, float* y) {
    int d = blockIdx.x * 32 + threadIdx.x, i = blockIdx.y * 8 + threadIdx.y, h = blockIdx.z;
    if (d >= D || i >= L) return;
    float s = 0.f;
    for (int j = 0; j < L; j++) s += p[((size_t)h * L + i) * L + j] * v[(h * L + j) * D + d];
    y[(h * L + i) * D + d] = s;
}
extern "C" size_t workspace_bytes() { return (size_t)H * L * L * sizeof(float); }
extern "C" void launch(float* out0, const float* q, const float* k, const float* v, void* workspace, cudaStream_t stream) {
    float* p = (float*)workspace;
    score<<<dim3((L + 15) / 16, (L + 15) / 16, H), dim3(16, 16), 0, stream>>>(q, k, p);
    soften<<<H * L, 256, 0, stream>>>(p);
    mix<<<dim3((D + 31) / 32, (L + 7) / 8, H), dim3(32, 8), 0, stream>>>(p, v, out0);
}
