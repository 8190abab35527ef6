// A thread counts digits in an array that has no place for the last of them.
// report: out_of_bounds
// launch: digits<<<1, 32>>>(in int[32], out int[32])
__global__ void digits(const int* x, int* y) {
#ifdef FIXED
    int counts[16];
    for (int k = 0; k < 16; k++) counts[k] = 0;
#else
    int counts[8];
    for (int k = 0; k < 8; k++) counts[k] = 0;
#endif
    for (int v = x[threadIdx.x] + 15; v; v >>= 4) counts[v & 15]++;  // BUG
    y[threadIdx.x] = counts[x[31 - threadIdx.x] & 7];
}
