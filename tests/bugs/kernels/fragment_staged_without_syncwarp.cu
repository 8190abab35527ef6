// A warp stages its accumulator in shared memory and reads it back without __syncwarp().
// report: race
// launch: product<<<2, 32>>>(in half[512], in half[512], out float[512])
#include <mma.h>
#include <cuda_fp16.h>
__global__ void product(const __half* a, const __half* b, float* c) {
    __shared__ float stage[256];
    const int lane = threadIdx.x;
    nvcuda::wmma::fragment<nvcuda::wmma::matrix_a, 16, 16, 16, __half, nvcuda::wmma::row_major> left;
    nvcuda::wmma::fragment<nvcuda::wmma::matrix_b, 16, 16, 16, __half, nvcuda::wmma::row_major> right;
    nvcuda::wmma::fragment<nvcuda::wmma::accumulator, 16, 16, 16, float> sums;
    nvcuda::wmma::fill_fragment(sums, 0.f);
    nvcuda::wmma::load_matrix_sync(left, a + blockIdx.x * 256, 16);
    nvcuda::wmma::load_matrix_sync(right, b + blockIdx.x * 256, 16);
    nvcuda::wmma::mma_sync(sums, left, right, sums);
    nvcuda::wmma::store_matrix_sync(stage, sums, 16, nvcuda::wmma::mem_row_major);  // BUG
#ifdef FIXED
    __syncwarp();
#endif
    for (int i = lane; i < 256; i += 32) c[blockIdx.x * 256 + i] = fmaxf(stage[i], 0.f);  // BUG
}
