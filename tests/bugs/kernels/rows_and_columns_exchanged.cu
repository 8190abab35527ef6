// A matrix that is not square is indexed with the wrong pitch, far past its end.
// report: out_of_bounds
// launch: turn<<<(2, 8, 1), (8, 8, 1)>>>(in float[1024], out float[1024], 64, 16)
__global__ void turn(const float* x, float* y, int rows, int columns) {
    const int c = blockIdx.x * 8 + threadIdx.x, r = blockIdx.y * 8 + threadIdx.y;
    if (c >= columns || r >= rows) return;
#ifdef FIXED
    y[c * rows + r] = x[r * columns + c];
#else
    y[c * rows + r] = x[r * rows + c];  // BUG
#endif
}
