// Micro-kernels that identify what divergent reads of constant memory cost.
//
// main() launches named kernels through run(), as constants.cu does: with PROF in the environment
// each runs once, for Nsight Compute; otherwise each is timed with events, the L2 flushed between
// runs, and the median and minimum of 15 are printed as CSV.
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

typedef unsigned int u32;

// Each word holds its own place in bytes: what is read is where to read next, so that a chain of
// reads depends on each one before and stays at its address.
__constant__ uint4 places[4096];  // all 64 KB

__device__ __forceinline__ u32 mix(u32 x) {
  x ^= x >> 16;
  x *= 0x7feb352du;
  x ^= x >> 15;
  x *= 0x846ca68bu;
  return x ^ (x >> 16);
}

template <class T> __device__ __forceinline__ T at(u32 place) { return *(const T*)((const char*)places + place); }

// Which address a lane reads: `distinct` of them in a warp (a power of two that the compiler does not
// know), `step` bytes apart; 2^shift neighbours read the same.
__device__ __forceinline__ u32 place_of_lane(u32 distinct, u32 step, u32 shift = 0) {
  return (threadIdx.x % 32 >> shift & (distinct - 1)) * step;
}

// CHAINS chains of n reads: with one each read waits for the one before.
template <int CHAINS> __global__ void reads(u32* out, int n, u32 distinct, u32 step, u32 apart, u32 shift) {
  u32 x[CHAINS];
#pragma unroll
  for (int j = 0; j < CHAINS; j++) x[j] = place_of_lane(distinct, step, shift) + j * apart;
#pragma unroll 8
  for (int i = 0; i < n; i++)
#pragma unroll
    for (int j = 0; j < CHAINS; j++) x[j] = at<u32>(x[j]);
  u32 sum = 0;
#pragma unroll
  for (int j = 0; j < CHAINS; j++) sum += x[j];
  out[blockIdx.x * blockDim.x + threadIdx.x] = sum;
}

// The same with 8 and 16 bytes a lane.
__global__ void reads_8_bytes(u32* out, int n, u32 distinct) {
  u32 x[4], other = 0;
#pragma unroll
  for (int j = 0; j < 4; j++) x[j] = place_of_lane(distinct, 8) + j * 256;
#pragma unroll 8
  for (int i = 0; i < n; i++)
#pragma unroll
    for (int j = 0; j < 4; j++) {
      uint2 read = at<uint2>(x[j]);
      x[j] = read.x;
      other ^= read.y;
    }
  out[blockIdx.x * blockDim.x + threadIdx.x] = x[0] + x[1] + x[2] + x[3] + other;
}
__global__ void reads_16_bytes(u32* out, int n, u32 distinct) {
  u32 x[4], other = 0;
#pragma unroll
  for (int j = 0; j < 4; j++) x[j] = place_of_lane(distinct, 16) + j * 512;
#pragma unroll 4
  for (int i = 0; i < n; i++)
#pragma unroll
    for (int j = 0; j < 4; j++) {
      uint4 read = at<uint4>(x[j]);
      x[j] = read.x;
      other ^= read.y ^ read.z ^ read.w;
    }
  out[blockIdx.x * blockDim.x + threadIdx.x] = x[0] + x[1] + x[2] + x[3] + other;
}

// Only `lanes` of a warp read, each its own address.
__global__ void reads_of_some(u32* out, int n, int lanes) {
  u32 lane = threadIdx.x % 32, x[4];
#pragma unroll
  for (int j = 0; j < 4; j++) x[j] = lane * 4 + j * 128;
  if (lane < lanes) {
#pragma unroll 8
    for (int i = 0; i < n; i++)
#pragma unroll
      for (int j = 0; j < 4; j++) x[j] = at<u32>(x[j]);
  }
  out[blockIdx.x * blockDim.x + threadIdx.x] = x[0] + x[1] + x[2] + x[3];
}

// Any word of the first `bytes`: where the caches of constants end.
__global__ void reads_of_table(u32* out, int n, u32 bytes) {
  u32 seed = blockIdx.x * blockDim.x + threadIdx.x, sum = 0;
#pragma unroll 8
  for (int i = 0; i < n; i++) sum += at<u32>(mix(seed + i * 7919) & (bytes - 4));
  out[seed] = sum;
}
// The same by whole warps: one address a read, another each time.
__global__ void warps_on_table(u32* out, int n, u32 bytes) {
  u32 warp = (blockIdx.x * blockDim.x + threadIdx.x) / 32, sum = 0;
#pragma unroll 8
  for (int i = 0; i < n; i++) sum += at<u32>(mix(warp + i * 7919) & (bytes - 4));
  out[blockIdx.x * blockDim.x + threadIdx.x] = sum;
}
// One lane walks through `bytes` in steps: latency of the cache that holds them.
__global__ void walk(u32* out, int n, u32 step, u32 bytes) {
  u32 x = 0;
  for (int i = 0; i < n; i++) x = (at<u32>(x) + step) & (bytes - 1);
  out[blockIdx.x * blockDim.x + threadIdx.x] = x;
}

// Constants as operands: at places that the compiler knows, and at one that all lanes share.
__global__ void operands(float* out, int n) {
  float x[4] = {1.f * threadIdx.x, 2.f, 3.f, 4.f};
  const float* table = (const float*)places;
  for (int i = 0; i < n; i++)
#pragma unroll
    for (int j = 0; j < 512; j++) x[j % 4] = fmaf(x[j % 4], table[j], x[j % 4]);
  out[blockIdx.x * blockDim.x + threadIdx.x] = x[0] + x[1] + x[2] + x[3];
}
__global__ void same_for_all(float* out, int n) {
  float x = threadIdx.x;
  const float* table = (const float*)places;
#pragma unroll 8
  for (int i = 0; i < n; i++) x = fmaf(x, table[i & 511], 1.f);
  out[blockIdx.x * blockDim.x + threadIdx.x] = x;
}

// What goes on beside the reads: multiply-adds, reads of shared memory, loads that the L1 holds.
template <int FMAS> __global__ void beside_fma(float* out, int n, u32 distinct) {
  u32 x[4];
  float y[4];
#pragma unroll
  for (int j = 0; j < 4; j++) x[j] = place_of_lane(distinct, 4) + j * 128, y[j] = threadIdx.x + j;
  for (int i = 0; i < n; i++)
#pragma unroll
    for (int j = 0; j < 4; j++) {
      x[j] = at<u32>(x[j]);
#pragma unroll
      for (int k = 0; k < FMAS; k++) y[k % 4] = fmaf(y[k % 4], 0.99f, 0.01f);
    }
  out[blockIdx.x * blockDim.x + threadIdx.x] = x[0] + x[1] + x[2] + x[3] + y[0] + y[1] + y[2] + y[3];
}
template <int SHARED> __global__ void beside_shared(u32* out, int n, u32 distinct) {
  __shared__ u32 s[1024];
  for (int j = threadIdx.x; j < 1024; j += blockDim.x) s[j] = j * 4;
  __syncthreads();
  u32 x[4], y[4];
#pragma unroll
  for (int j = 0; j < 4; j++) x[j] = place_of_lane(distinct, 4) + j * 128, y[j] = (threadIdx.x % 32 + j * 32) * 4;
  for (int i = 0; i < n; i++)
#pragma unroll
    for (int j = 0; j < 4; j++) {
      x[j] = at<u32>(x[j]);
#pragma unroll
      for (int k = 0; k < SHARED; k++) y[k % 4] = *(u32*)((char*)s + y[k % 4]);
    }
  out[blockIdx.x * blockDim.x + threadIdx.x] = x[0] + x[1] + x[2] + x[3] + y[0] + y[1] + y[2] + y[3];
}
template <int LOADS> __global__ void beside_loads(const u32* in, u32* out, int n, u32 distinct) {
  u32 x[4], y[4];
#pragma unroll
  for (int j = 0; j < 4; j++) x[j] = place_of_lane(distinct, 4) + j * 128, y[j] = threadIdx.x % 32 + j * 32;
  for (int i = 0; i < n; i++)
#pragma unroll
    for (int j = 0; j < 4; j++) {
      x[j] = at<u32>(x[j]);
#pragma unroll
      for (int k = 0; k < LOADS; k++) y[k % 4] += in[y[k % 4]];
    }
  out[blockIdx.x * blockDim.x + threadIdx.x] = x[0] + x[1] + x[2] + x[3] + y[0] + y[1] + y[2] + y[3];
}

// One piece of work in three homes: a table of 256 words looked up by data.
__global__ void lookup_constant(const u32* in, u32* out, int n) {
  u32 i = blockIdx.x * blockDim.x + threadIdx.x, x = mix(i), sum = 0;
#pragma unroll 8
  for (int k = 0; k < n; k++) sum += at<u32>((x + k * 0x9e3779b9u) >> 22 & 0x3fc);
  out[i] = sum;
}
__global__ void lookup_shared(const u32* in, u32* out, int n) {
  __shared__ u32 s[256];
  for (int j = threadIdx.x; j < 256; j += blockDim.x) s[j] = in[j];
  __syncthreads();
  u32 i = blockIdx.x * blockDim.x + threadIdx.x, x = mix(i), sum = 0;
#pragma unroll 8
  for (int k = 0; k < n; k++) sum += *(u32*)((char*)s + ((x + k * 0x9e3779b9u) >> 22 & 0x3fc));
  out[i] = sum;
}
__global__ void lookup_global(const u32* in, u32* out, int n) {
  u32 i = blockIdx.x * blockDim.x + threadIdx.x, x = mix(i), sum = 0;
#pragma unroll 8
  for (int k = 0; k < n; k++) sum += *(const u32*)((const char*)in + ((x + k * 0x9e3779b9u) >> 22 & 0x3fc));
  out[i] = sum;
}

int main() {
  u32 *in, *out, *flush;
  CK(cudaMalloc(&in, 1 << 20));
  CK(cudaMalloc(&out, 64 << 20));
  CK(cudaMemset(in, 0, 1 << 20));
  CK(cudaMalloc(&flush, 256 << 20));
  std::vector<u32> words(16384);
  for (u32 i = 0; i < words.size(); i++) words[i] = 4 * i;
  CK(cudaMemcpyToSymbol(places, words.data(), 65536));
  bool prof = getenv("PROF") != nullptr;
  if (!prof) printf("launch,median_us,min_us\n");
  auto run = [&](const char* name, std::function<void()> launch) {
    launch();
    CK(cudaGetLastError());
    CK(cudaDeviceSynchronize());
    if (prof) return;
    cudaEvent_t start, end;
    CK(cudaEventCreate(&start));
    CK(cudaEventCreate(&end));
    std::vector<float> us;
    for (int i = 0; i < 15; i++) {
      CK(cudaMemsetAsync(flush, i, 256 << 20));
      CK(cudaEventRecord(start));
      launch();
      CK(cudaEventRecord(end));
      CK(cudaEventSynchronize(end));
      float ms;
      CK(cudaEventElapsedTime(&ms, start, end));
      us.push_back(ms * 1000);
    }
    std::sort(us.begin(), us.end());
    printf("%s,%.2f,%.2f\n", name, us[7], us[0]);
    CK(cudaEventDestroy(start));
    CK(cudaEventDestroy(end));
  };
  float* f = (float*)out;

  run("empty", [&] { reads<1><<<132, 32>>>(out, 0, 1, 4, 0, 0); });
  // One warp an SM, each read after the one before.
  run("latency_1", [&] { reads<1><<<132, 32>>>(out, 4096, 1, 4, 0, 0); });
  run("latency_2", [&] { reads<1><<<132, 32>>>(out, 4096, 2, 4, 0, 0); });
  run("latency_4", [&] { reads<1><<<132, 32>>>(out, 2048, 4, 4, 0, 0); });
  run("latency_8", [&] { reads<1><<<132, 32>>>(out, 2048, 8, 4, 0, 0); });
  run("latency_16", [&] { reads<1><<<132, 32>>>(out, 1024, 16, 4, 0, 0); });
  run("latency_32", [&] { reads<1><<<132, 32>>>(out, 1024, 32, 4, 0, 0); });
  // Eight chains: one warp an SM, one a scheduler, 32 an SM.
  run("alone_1", [&] { reads<8><<<132, 32>>>(out, 1024, 1, 4, 128, 0); });
  run("alone_8", [&] { reads<8><<<132, 32>>>(out, 512, 8, 4, 128, 0); });
  run("alone_32", [&] { reads<8><<<132, 32>>>(out, 256, 32, 4, 128, 0); });
  run("four_1", [&] { reads<8><<<132, 128>>>(out, 1024, 1, 4, 128, 0); });
  run("four_8", [&] { reads<8><<<132, 128>>>(out, 512, 8, 4, 128, 0); });
  run("four_32", [&] { reads<8><<<132, 128>>>(out, 128, 32, 4, 128, 0); });
  run("rate_1", [&] { reads<8><<<528, 256>>>(out, 1024, 1, 4, 128, 0); });
  run("rate_2", [&] { reads<8><<<528, 256>>>(out, 1024, 2, 4, 128, 0); });
  run("rate_4", [&] { reads<8><<<528, 256>>>(out, 512, 4, 4, 128, 0); });
  run("rate_8", [&] { reads<8><<<528, 256>>>(out, 256, 8, 4, 128, 0); });
  run("rate_16", [&] { reads<8><<<528, 256>>>(out, 128, 16, 4, 128, 0); });
  run("rate_32", [&] { reads<8><<<528, 256>>>(out, 64, 32, 4, 128, 0); });
  run("turns_1", [&] { reads<1><<<528, 256>>>(out, 2048, 1, 4, 0, 0); });
  run("turns_8", [&] { reads<1><<<528, 256>>>(out, 1024, 8, 4, 0, 0); });
  run("turns_32", [&] { reads<1><<<528, 256>>>(out, 256, 32, 4, 0, 0); });
  // What counts as another address: by words, by longer steps, neighbours on the same.
  run("step_8b_2", [&] { reads<8><<<528, 256>>>(out, 1024, 2, 8, 0, 0); });
  run("step_8b_8", [&] { reads<8><<<528, 256>>>(out, 256, 8, 8, 0, 0); });
  run("step_16b_8", [&] { reads<8><<<528, 256>>>(out, 256, 8, 16, 0, 0); });
  run("step_32b_8", [&] { reads<8><<<528, 256>>>(out, 256, 8, 32, 0, 0); });
  run("step_64b_8", [&] { reads<8><<<528, 256>>>(out, 256, 8, 64, 0, 0); });
  run("step_256b_8", [&] { reads<8><<<528, 256>>>(out, 256, 8, 256, 0, 0); });
  run("step_8b_32", [&] { reads<8><<<528, 256>>>(out, 64, 32, 8, 0, 0); });
  run("step_64b_32", [&] { reads<8><<<528, 256>>>(out, 64, 32, 64, 0, 0); });
  run("step_256b_32", [&] { reads<8><<<528, 256>>>(out, 64, 32, 256, 0, 0); });
  run("groups_2", [&] { reads<8><<<528, 256>>>(out, 1024, 2, 4, 128, 4); });
  run("groups_8", [&] { reads<8><<<528, 256>>>(out, 256, 8, 4, 128, 2); });
  run("some_1", [&] { reads_of_some<<<528, 256>>>(out, 1024, 1); });
  run("some_8", [&] { reads_of_some<<<528, 256>>>(out, 512, 8); });
  run("some_16", [&] { reads_of_some<<<528, 256>>>(out, 256, 16); });
  run("wide8_1", [&] { reads_8_bytes<<<528, 256>>>(out, 1024, 1); });
  run("wide8_8", [&] { reads_8_bytes<<<528, 256>>>(out, 256, 8); });
  run("wide8_32", [&] { reads_8_bytes<<<528, 256>>>(out, 64, 32); });
  run("wide16_1", [&] { reads_16_bytes<<<528, 256>>>(out, 512, 1); });
  run("wide16_8", [&] { reads_16_bytes<<<528, 256>>>(out, 128, 8); });
  run("wide16_32", [&] { reads_16_bytes<<<528, 256>>>(out, 32, 32); });
  // The caches of constants.
  run("walk_1k", [&] { walk<<<132, 32>>>(out, 4096, 64, 1 << 10); });
  run("walk_2k", [&] { walk<<<132, 32>>>(out, 4096, 64, 2 << 10); });
  run("walk_4k", [&] { walk<<<132, 32>>>(out, 4096, 64, 4 << 10); });
  run("walk_16k", [&] { walk<<<132, 32>>>(out, 4096, 64, 16 << 10); });
  run("walk_64k", [&] { walk<<<132, 32>>>(out, 4096, 64, 64 << 10); });
  run("table_256b", [&] { reads_of_table<<<528, 256>>>(out, 128, 256); });
  run("table_1k", [&] { reads_of_table<<<528, 256>>>(out, 128, 1 << 10); });
  run("table_2k", [&] { reads_of_table<<<528, 256>>>(out, 128, 2 << 10); });
  run("table_4k", [&] { reads_of_table<<<528, 256>>>(out, 128, 4 << 10); });
  run("table_16k", [&] { reads_of_table<<<528, 256>>>(out, 64, 16 << 10); });
  run("table_64k", [&] { reads_of_table<<<528, 256>>>(out, 64, 64 << 10); });
  run("warps_1k", [&] { warps_on_table<<<528, 256>>>(out, 512, 1 << 10); });
  run("warps_2k", [&] { warps_on_table<<<528, 256>>>(out, 512, 2 << 10); });
  run("warps_4k", [&] { warps_on_table<<<528, 256>>>(out, 512, 4 << 10); });
  run("warps_64k", [&] { warps_on_table<<<528, 256>>>(out, 512, 64 << 10); });
  run("operands", [&] { operands<<<528, 256>>>(f, 16); });
  run("same_for_all", [&] { same_for_all<<<528, 256>>>(f, 4096); });
  // Beside other work.
  run("fma_8_0", [&] { beside_fma<0><<<528, 256>>>(f, 256, 8); });
  run("fma_8_4", [&] { beside_fma<4><<<528, 256>>>(f, 256, 8); });
  run("fma_8_16", [&] { beside_fma<16><<<528, 256>>>(f, 256, 8); });
  run("fma_8_32", [&] { beside_fma<32><<<528, 256>>>(f, 256, 8); });
  run("shared_8_4", [&] { beside_shared<4><<<528, 256>>>(out, 256, 8); });
  run("shared_8_8", [&] { beside_shared<8><<<528, 256>>>(out, 256, 8); });
  run("shared_8_16", [&] { beside_shared<16><<<528, 256>>>(out, 256, 8); });
  run("loads_8_4", [&] { beside_loads<4><<<528, 256>>>(in, out, 256, 8); });
  run("loads_8_8", [&] { beside_loads<8><<<528, 256>>>(in, out, 256, 8); });
  run("lookup_constant", [&] { lookup_constant<<<2112, 256>>>(in, out, 64); });
  run("lookup_shared", [&] { lookup_shared<<<2112, 256>>>(in, out, 64); });
  run("lookup_global", [&] { lookup_global<<<2112, 256>>>(in, out, 64); });
  return 0;
}
