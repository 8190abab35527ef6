// What copies, fills and launches cost that a stream does one after the other: rows of every width,
// whole blocks of memory, and many launches that do nothing.
//
// Prints as CSV: what, width and pitch in bytes, rows, how many of them in a row, and the median and
// minimum microseconds of 15 runs between two events, the L2 flushed before each.
#include <cuda_runtime.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <vector>

#define CK(x)                                                                  \
  do {                                                                         \
    cudaError_t e = (x);                                                       \
    if (e != cudaSuccess) {                                                    \
      printf("ERR %s line %d\n", cudaGetErrorString(e), __LINE__);             \
      exit(1);                                                                 \
    }                                                                          \
  } while (0)

__global__ void empty() {}
__global__ void small(float* y) { y[blockIdx.x * blockDim.x + threadIdx.x] += 1.f; }

int main() {
  const size_t most = 512 << 20;
  char *from, *to, *flush;
  CK(cudaMalloc(&from, most));
  CK(cudaMalloc(&to, most));
  CK(cudaMalloc(&flush, 256 << 20));
  CK(cudaMemset(from, 0, most));
  cudaEvent_t start, end;
  CK(cudaEventCreate(&start));
  CK(cudaEventCreate(&end));
  printf("what,width,from_pitch,to_pitch,rows,times,median_us,min_us\n");
  auto measure = [&](const char* what, size_t width, size_t from_pitch, size_t to_pitch, size_t rows, int times, std::function<void()> work) {
    work();
    CK(cudaGetLastError());
    CK(cudaDeviceSynchronize());
    std::vector<float> us;
    for (int i = 0; i < 15; i++) {
      CK(cudaMemsetAsync(flush, i, 256 << 20));
      CK(cudaEventRecord(start));
      for (int k = 0; k < times; k++) work();
      CK(cudaEventRecord(end));
      CK(cudaEventSynchronize(end));
      float ms;
      CK(cudaEventElapsedTime(&ms, start, end));
      us.push_back(ms * 1000);
    }
    std::sort(us.begin(), us.end());
    printf("%s,%zu,%zu,%zu,%zu,%d,%.2f,%.2f\n", what, width, from_pitch, to_pitch, rows, times, us[7], us[0]);
    fflush(stdout);
  };
  auto copy2d = [&](size_t width, size_t from_pitch, size_t to_pitch, size_t rows) {
    measure("copy2d", width, from_pitch, to_pitch, rows, 1, [=] {
      CK(cudaMemcpy2DAsync(to, to_pitch, from, from_pitch, width, rows, cudaMemcpyDeviceToDevice, (cudaStream_t)0));
    });
  };
  for (size_t width : {4, 16, 32, 64, 128, 256, 512, 1024, 4096, 16384}) {
    size_t rows = std::min<size_t>(65536, (64 << 20) / width);
    copy2d(width, 2 * width, width, rows);        // gather of rows
    copy2d(width, width, 2 * width, rows);        // scatter
    copy2d(width, 2 * width, 2 * width, rows);
  }
  for (size_t rows : {1, 64, 1024, 16384, 262144}) copy2d(4, 256, 4, rows);
  for (size_t rows : {64, 1024, 16384, 65536}) copy2d(4, 4096, 4096, rows);
  for (size_t rows : {64, 1024, 16384}) copy2d(1000, 4096, 1000, rows);
  copy2d(4096, 4096, 4096, 16384);
  for (size_t bytes : {size_t(4), size_t(4) << 10, size_t(256) << 10, size_t(4) << 20, size_t(64) << 20, size_t(256) << 20}) {
    measure("copy", bytes, bytes, bytes, 1, 1, [=] {
      CK(cudaMemcpyAsync(to, from, bytes, cudaMemcpyDeviceToDevice, (cudaStream_t)0));
    });
    measure("fill", bytes, 0, bytes, 1, 1, [=] { CK(cudaMemsetAsync(to, 0, bytes, (cudaStream_t)0)); });
  }
  for (size_t width : {4, 32, 128, 1024, 4096})
    measure("fill2d", width, 0, 2 * width, 16384, 1, [=] { CK(cudaMemset2DAsync(to, 2 * width, 0, width, 16384, (cudaStream_t)0)); });
  std::vector<char> host(16 << 20);
  for (size_t bytes : {size_t(4), size_t(4) << 10, size_t(64) << 10, size_t(1) << 20, size_t(16) << 20})
    measure("from_host", bytes, bytes, bytes, 1, 1, [&, bytes] {
      CK(cudaMemcpyAsync(to, host.data(), bytes, cudaMemcpyHostToDevice, (cudaStream_t)0));
    });
  for (int times : {1, 2, 4, 16, 64}) {
    measure("empty_launch", 0, 0, 0, 1, times, [] { empty<<<1, 32>>>(); });
    measure("small_launch", 0, 0, 0, 132, times, [=] { small<<<132, 256>>>((float*)to); });
    measure("small_copy", 4096, 4096, 4096, 1, times, [=] { CK(cudaMemcpyAsync(to, from, 4096, cudaMemcpyDeviceToDevice, (cudaStream_t)0)); });
    measure("small_fill", 4096, 0, 4096, 1, times, [=] { CK(cudaMemsetAsync(to, 0, 4096, (cudaStream_t)0)); });
  }
  return 0;
}
