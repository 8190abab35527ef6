// A half2 is stored at odd columns of a row.
// report: misaligned
// launch: shift<<<1, 31>>>(in half[64], out half[64])
#include <cuda_fp16.h>
__global__ void shift(const __half* x, __half* y) {
    const int t = threadIdx.x;
    const __half2 v = *reinterpret_cast<const __half2*>(x + 2 * t);
#ifdef FIXED
    y[2 * t + 1] = __low2half(v);
    y[2 * t + 2] = __high2half(v);
#else
    *reinterpret_cast<__half2*>(y + 2 * t + 1) = v;  // BUG
#endif
}
