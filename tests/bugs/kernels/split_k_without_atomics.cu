// Blocks that share an output tile of a split product each store their part of the sum.
// report: race
// launch: product<<<(2, 2, 4), (16, 16, 1)>>>(in float[1024], in float[1024], zero float[1024], 32)
__global__ void product(const float* a, const float* b, float* c, int n) {
    const int column = blockIdx.x * 16 + threadIdx.x, row = blockIdx.y * 16 + threadIdx.y;
    const int each = n / gridDim.z, first = blockIdx.z * each;
    float sum = 0.f;
    for (int k = first; k < first + each; k++) sum += a[row * n + k] * b[k * n + column];
#ifdef FIXED
    atomicAdd(&c[row * n + column], sum);
#else
    c[row * n + column] += sum;  // BUG
#endif
}
