// The launch asks for shared memory of one array, and the kernel divides it into two.
// report: out_of_bounds
// launch: split<<<1, 64, 256>>>(in float[64], out float[64])
__global__ void split(const float* x, float* y) {
    extern __shared__ float memory[];
    float* squares = memory;
#ifdef FIXED
    squares[threadIdx.x] = x[threadIdx.x] * x[threadIdx.x];
    __syncthreads();
    y[threadIdx.x] = squares[63 - threadIdx.x] + x[63 - threadIdx.x];
#else
    float* values = memory + blockDim.x;
    squares[threadIdx.x] = x[threadIdx.x] * x[threadIdx.x];
    values[threadIdx.x] = x[threadIdx.x];  // BUG
    __syncthreads();
    y[threadIdx.x] = squares[63 - threadIdx.x] + values[63 - threadIdx.x];  // BUG
#endif
}
