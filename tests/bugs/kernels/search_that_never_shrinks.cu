// A binary search whose interval of one element never becomes empty.
// report: timed_out
// launch: lower_bound<<<1, 64>>>(in int[256], in int[64], out int[64], 256)
__global__ void lower_bound(const int* sorted, const int* keys, int* places, int n) {
    const int key = keys[threadIdx.x];
    int low = 0, high = n;
    while (low < high) {                        // BUG
        const int middle = (low + high) / 2;    // BUG
#ifdef FIXED
        if (sorted[middle] < key) low = middle + 1;
#else
        if (sorted[middle] < key + 1000) low = middle;  // BUG
#endif
        else high = middle;                     // BUG
    }
    places[threadIdx.x] = low;
}
