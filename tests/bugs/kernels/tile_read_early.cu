// A tiled product that multiplies before the tile has been loaded by all.
// report: race
// launch: product<<<(4, 4, 1), (16, 16, 1)>>>(in float[4096], in float[4096], out float[4096], 64)
__global__ void product(const float* a, const float* b, float* c, int n) {
    __shared__ float left[16][16], right[16][17];
    const int tx = threadIdx.x, ty = threadIdx.y;
    const int column = blockIdx.x * 16 + tx, row = blockIdx.y * 16 + ty;
    float sum = 0.f;
    for (int k = 0; k < n; k += 16) {
        left[ty][tx] = a[row * n + k + tx];       // BUG
        right[ty][tx] = b[(k + ty) * n + column];  // BUG
#ifdef FIXED
        __syncthreads();
#endif
        for (int i = 0; i < 16; i++) sum += left[ty][i] * right[i][tx];  // BUG
        __syncthreads();
    }
    c[row * n + column] = sum;
}
