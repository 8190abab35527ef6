// A block for each query, its scores in shared memory.
#include "task.cuh"
constexpr int H = DIM_HEADS, L = DIM_LENGTH, D = DIM_WIDTH;
constexpr int T = 128;
__global__ void attend(const float* q, const float* k, const float* v, float* y) {
    __shared__ float P[L], Q[D], part[T];
    int h = blockIdx.x / L, i = blockIdx.x % L;
    for (int d = threadIdx.x; d < D; d += T) Q[d] = q[(h * L + i) * D + d];
    __syncthreads();
    float top = -INFINITY, s = 0.f;
    for (int j = threadIdx.x; j < L; j += T) {
        float t = 0.f;
        for (int d = 0; d < D; d++) t += Q[d] * k[(h * L + j) * D + d];
        P[j] = t / 8.f;
        top = fmaxf(top, t / 8.f);
    }
    part[threadIdx.x] = top;
    __syncthreads();
    for (int o = T / 2; o; o /= 2) {
        if (threadIdx.x < o) part[threadIdx.x] = fmaxf(part[threadIdx.x], part[threadIdx.x + o]);
        __syncthreads();
    }
    top = part[0];
    __syncthreads();
    for (int j = threadIdx.x; j < L; j += T) s += P[j] = expf(P[j] - top);
    __syncthreads();
    part[threadIdx.x] = s;
    __syncthreads();
    for (int o = T / 2; o; o /= 2) {
        if (threadIdx.x < o) part[threadIdx.x] += part[threadIdx.x + o];
        __syncthreads();
    }
    s = part[0];
    for (int d = threadIdx.x; d < D; d += T) {
        float t = 0.f;
        for (int j = 0; j < L; j++) t += P[j] * v[(h * L + j) * D + d];
        y[(h * L + i) * D + d] = t / s;
    }
}
extern "C" void launch(float* out0, const float* q, const float* k, const float* v, void* workspace, cudaStream_t stream) {
    attend<<<H * L, T, 0, stream>>>(q, k, v, out0);
}
