// task: polynomial_f32
// Objects with virtual functions, made on the device; checks by assert, a printf nobody reaches.
#include "task.cuh"

#include <cassert>
#include <cstdio>

struct Shape {
    __device__ virtual float of(float x) const = 0;
};
struct Square : Shape {
    __device__ float of(float x) const override { return x * x; }
};
struct Line : Shape {
    float slope, offset;
    __device__ Line(float s, float o) : slope(s), offset(o) {}
    __device__ float of(float x) const override { return slope * x + offset; }
};

__global__ void apply(const float* __restrict__ x, float* __restrict__ y, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n) return;
    Square square;
    Line next(1, 1), half_of(0.5f, 0), negative(-1, 0);
    const Shape* shapes[4] = {&square, &next, &half_of, &negative};
    assert(i >= 0);
    float v = shapes[i % 4]->of(x[i]);
    if (isnan(v)) printf("not a number at %d\n", i);
    if (n < 0) __trap();
    y[i] = v;
}

extern "C" void launch(float* out0, const float* x, void* workspace, cudaStream_t stream) {
    apply<<<(X_NUMEL + 127) / 128, 128, 0, stream>>>(x, out0, X_NUMEL);
}
