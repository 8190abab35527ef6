// A thread sorts its elements by sign into a list, and reads the list further than it is filled.
// report: uninitialized_read
// task: row_sum
#include "task.cuh"
constexpr int EACH = X_SIZE_1 / 32;
__global__ void rows(const float* x, float* y) {
    const float* row = x + blockIdx.x * (long long)X_SIZE_1;
    float positive[EACH], sum = 0.f;
    int count = 0;
#ifdef FIXED
    for (int k = 0; k < EACH; k++) positive[k] = 0.f;
#endif
    for (int k = 0; k < EACH; k++) {
        const float v = row[k * 32 + threadIdx.x];
        if (v > 0.f) positive[count++] = v;
        else sum += v;
    }
    for (int k = 0; k < EACH; k++) sum += positive[k];  // BUG
    for (int d = 16; d; d /= 2) sum += __shfl_down_sync(~0u, sum, d);
    if (threadIdx.x == 0) y[blockIdx.x] = sum;
}

extern "C" void launch(float* out0, const float* x, void* workspace, cudaStream_t stream) {
    rows<<<X_SIZE_0, 32, 0, stream>>>(x, out0);
}
