// Micro-kernels of what waits in series: one long warp, phases between barriers, blocks that wait for
// blocks, barriers of the grid, many launches; and pairs in which the second does useless work.
//
// main() launches named kernels through run(), as constants.cu does: with PROF in the environment
// each runs once; otherwise each is timed with events, the L2 flushed between runs, and the median
// and minimum of 15 are printed as CSV.
#include <cooperative_groups.h>
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
namespace cg = cooperative_groups;

__global__ void empty() {}

// ---- One long warp: a row of 1,024 words summed by one thread of the block, or by one warp

template <int THREADS> __global__ void row_by_one(const float* x, float* y, int who) {
  __shared__ float row[1024];
  for (int i = threadIdx.x; i < 1024; i += THREADS) row[i] = x[blockIdx.x * 1024 + i];
  __syncthreads();
  if (threadIdx.x == who) {
    float s = 0;
    for (int i = 0; i < 1024; i++) s += row[i];
    y[blockIdx.x] = s;
  }
}
template <int THREADS> __global__ void row_by_one_global(const float* x, float* y) {
  if (threadIdx.x == 0) {
    float s = 0;
    for (int i = 0; i < 1024; i++) s += x[blockIdx.x * 1024 + i];
    y[blockIdx.x] = s;
  }
}
template <int THREADS> __global__ void row_by_warp(const float* x, float* y) {
  if (threadIdx.x < 32) {
    float s = 0;
    for (int i = threadIdx.x; i < 1024; i += 32) s += x[blockIdx.x * 1024 + i];
    for (int o = 16; o; o /= 2) s += __shfl_xor_sync(~0u, s, o);
    if (threadIdx.x == 0) y[blockIdx.x] = s;
  }
}
// Warps take turns, a barrier between: the same work as one after the other.
__global__ void warps_in_turn(float* y, int n, int together) {
  float v = threadIdx.x;
  int warp = threadIdx.x / 32, warps = blockDim.x / 32;
  for (int k = 0; k < warps; k++) {
    if (together ? k == 0 : warp == k)
      for (int i = 0; i < n; i++) v = fmaf(v, 0.99f, 0.5f);
    __syncthreads();
  }
  y[blockIdx.x * blockDim.x + threadIdx.x] = v;
}
// One warp of a block works `times` as long as the others.
__global__ void one_slow_warp(float* y, int n, int times) {
  float v = threadIdx.x;
  int turns = threadIdx.x / 32 == 3 ? n * times : n;
  for (int i = 0; i < turns; i++) v = fmaf(v, 0.99f, 0.5f);
  y[blockIdx.x * blockDim.x + threadIdx.x] = v;
}
// One block in `every` works `times` as long as the others.
__global__ void one_slow_block(float* y, int n, int times, int every) {
  float v = threadIdx.x;
  int turns = blockIdx.x % every == every / 2 ? n * times : n;
  for (int i = 0; i < turns; i++) v = fmaf(v, 0.99f, 0.5f);
  y[blockIdx.x * blockDim.x + threadIdx.x] = v;
}

// ---- Phases: load, barrier, work, as often as PHASES; BARRIERS more that order nothing

template <int THREADS, int PHASES, int MORE> __global__ void __launch_bounds__(THREADS, 1) phases(const float* x, float* y, int work) {
  __shared__ float part[THREADS];
  float v = 0;
  for (int p = 0; p < PHASES; p++) {
    part[threadIdx.x] = x[(blockIdx.x * PHASES + p) * THREADS + threadIdx.x];
    __syncthreads();
    for (int i = 0; i < work; i++) v += part[(threadIdx.x + i * 32) % THREADS];
#pragma unroll
    for (int m = 0; m < MORE; m++) __syncthreads();
    __syncthreads();
  }
  y[blockIdx.x * THREADS + threadIdx.x] = v;
}

// ---- Useless work: idle warps, a load made twice, a store made twice, a barrier

template <int MORE, int LOADS, int STORES, int BARRIERS> __global__ void useless(const float* x, float* y, int threads) {
  if (threadIdx.x >= threads) return;
  int i = blockIdx.x * threads + threadIdx.x;
  float v = 0, w = 0;
#pragma unroll
  for (int k = 0; k < LOADS; k++) {
    asm volatile("ld.global.f32 %0, [%1];" : "=f"(w) : "l"(x + i));
    v = fmaxf(v, w);
  }
#pragma unroll
  for (int k = 0; k < BARRIERS; k++) __syncthreads();
#pragma unroll
  for (int k = 0; k < STORES; k++) asm volatile("st.global.f32 [%0], %1;" ::"l"(y + i), "f"(v * 2.f) : "memory");
}
template <int PAD, int BARRIERS> __global__ void transpose(const float* x, float* y) {
  __shared__ float tile[32][32 + PAD];
  int column = blockIdx.x * 32 + threadIdx.x, row = blockIdx.y * 32 + threadIdx.y;
#pragma unroll
  for (int k = 0; k < BARRIERS; k++) __syncthreads();
  tile[threadIdx.y][threadIdx.x] = x[row * 2048 + column];
  __syncthreads();
  y[(blockIdx.x * 32 + threadIdx.y) * 2048 + blockIdx.y * 32 + threadIdx.x] = tile[threadIdx.x][threadIdx.y];
#pragma unroll
  for (int k = 0; k < BARRIERS; k++) __syncthreads();
}

// ---- Blocks that wait for blocks

// Block i begins when block i - 1 has set its flag; `work` dependent steps between.
__global__ void chain_of_blocks(volatile u32* flags, float* y, int work, u32 turn) {
  float v = threadIdx.x;
  if (threadIdx.x == 0 && blockIdx.x) while (flags[(blockIdx.x - 1) * 32] != turn) {}
  __syncthreads();
  for (int i = 0; i < work; i++) v = fmaf(v, 0.99f, 0.5f);
  y[blockIdx.x * blockDim.x + threadIdx.x] = v;
  __threadfence();
  __syncthreads();
  if (threadIdx.x == 0) flags[blockIdx.x * 32] = turn;
}
// The last block to finish sums what the others left.
__global__ void last_block(const float* x, float* parts, u32* ticket, int n) {
  __shared__ bool last;
  float s = 0;
  for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += gridDim.x * blockDim.x) s += x[i];
  for (int o = 16; o; o /= 2) s += __shfl_xor_sync(~0u, s, o);
  if (threadIdx.x % 32 == 0) parts[blockIdx.x * 8 + threadIdx.x / 32] = s;
  __threadfence();
  __syncthreads();
  if (threadIdx.x == 0) last = atomicAdd(ticket, 1) == gridDim.x - 1;
  __syncthreads();
  if (!last) return;
  if (threadIdx.x == 0) {
    float all = 0;
    for (int i = 0; i < gridDim.x * 8; i++) all += ((volatile float*)parts)[i];
    parts[0] = all;
    *ticket = 0;
  }
}
__global__ void sum_of_parts(float* parts, int n) {
  if (threadIdx.x == 0) {
    float all = 0;
    for (int i = 0; i < n; i++) all += parts[i];
    parts[0] = all;
  }
}

// ---- Barriers of the whole grid: cooperative groups', and one by an atomic and a poll

__global__ void grid_barriers(float* y, int times, int work) {
  cg::grid_group grid = cg::this_grid();
  float v = threadIdx.x;
  for (int k = 0; k < times; k++) {
    for (int i = 0; i < work; i++) v = fmaf(v, 0.99f, 0.5f);
    grid.sync();
  }
  y[blockIdx.x * blockDim.x + threadIdx.x] = v;
}
__global__ void own_barriers(float* y, u32* counter, int times) {
  float v = threadIdx.x;
  for (int k = 1; k <= times; k++) {
    __syncthreads();
    if (threadIdx.x == 0) {
      __threadfence();
      atomicAdd(counter, 1);
      while (*(volatile u32*)counter < k * gridDim.x) {}
    }
    __syncthreads();
    v = fmaf(v, 0.99f, 0.5f);
  }
  y[blockIdx.x * blockDim.x + threadIdx.x] = v;
}

int main() {
  float *x, *y, *parts;
  u32 *flags, *counter, *flush;
  CK(cudaMalloc(&x, 64 << 20));
  CK(cudaMalloc(&y, 64 << 20));
  CK(cudaMalloc(&parts, 1 << 20));
  CK(cudaMalloc(&flags, 1 << 20));
  CK(cudaMalloc(&counter, 256));
  CK(cudaMalloc(&flush, 256 << 20));
  CK(cudaMemset(x, 0, 64 << 20));
  CK(cudaMemset(flags, 0, 1 << 20));
  CK(cudaMemset(counter, 0, 256));
  bool prof = getenv("PROF") != nullptr;
  u32 turn = 0;
  if (!prof) printf("launch,median_us,min_us\n");
  auto run = [&](const char* name, std::function<void()> launch) {
    CK(cudaMemset(counter, 0, 256));
    turn++;
    launch();
    CK(cudaGetLastError());
    CK(cudaDeviceSynchronize());
    if (prof) return;
    cudaEvent_t start, end;
    CK(cudaEventCreate(&start));
    CK(cudaEventCreate(&end));
    std::vector<float> us;
    for (int i = 0; i < 15; i++) {
      turn++;
      CK(cudaMemsetAsync(counter, 0, 256));
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
    fflush(stdout);
    CK(cudaEventDestroy(start));
    CK(cudaEventDestroy(end));
  };
  auto grid_sync = [&](int blocks, int threads, int times, int work) {
    void* arguments[] = {&y, &times, &work};
    CK(cudaLaunchCooperativeKernel((void*)grid_barriers, dim3(blocks), dim3(threads), arguments, 0, (cudaStream_t)0));
  };

  run("empty", [&] { empty<<<1, 32>>>(); });

  run("row_shared_by_0_of_32", [&] { row_by_one<32><<<2048, 32>>>(x, y, 0); });
  run("row_shared_by_0_of_128", [&] { row_by_one<128><<<2048, 128>>>(x, y, 0); });
  run("row_shared_by_0_of_512", [&] { row_by_one<512><<<2048, 512>>>(x, y, 0); });
  run("row_shared_by_0_of_1024", [&] { row_by_one<1024><<<2048, 1024>>>(x, y, 0); });
  run("row_shared_by_last_of_1024", [&] { row_by_one<1024><<<2048, 1024>>>(x, y, 1023); });
  run("row_global_by_0_of_32", [&] { row_by_one_global<32><<<2048, 32>>>(x, y); });
  run("row_global_by_0_of_256", [&] { row_by_one_global<256><<<2048, 256>>>(x, y); });
  run("row_global_by_0_of_1024", [&] { row_by_one_global<1024><<<2048, 1024>>>(x, y); });
  run("row_by_warp_of_1", [&] { row_by_warp<32><<<2048, 32>>>(x, y); });
  run("row_by_warp_of_8", [&] { row_by_warp<256><<<2048, 256>>>(x, y); });
  run("row_by_warp_of_32", [&] { row_by_warp<1024><<<2048, 1024>>>(x, y); });
  run("turns_of_8_warps", [&] { warps_in_turn<<<132, 256>>>(y, 512, 0); });
  run("turns_of_8_warps_at_once", [&] { warps_in_turn<<<132, 256>>>(y, 512, 1); });
  run("turns_of_32_warps", [&] { warps_in_turn<<<132, 1024>>>(y, 512, 0); });
  run("turns_of_32_warps_at_once", [&] { warps_in_turn<<<132, 1024>>>(y, 512, 1); });
  run("warp_slow_1", [&] { one_slow_warp<<<1056, 256>>>(y, 512, 1); });
  run("warp_slow_4", [&] { one_slow_warp<<<1056, 256>>>(y, 512, 4); });
  run("warp_slow_16", [&] { one_slow_warp<<<1056, 256>>>(y, 512, 16); });
  run("block_slow_1", [&] { one_slow_block<<<1056, 256>>>(y, 512, 1, 16); });
  run("block_slow_4", [&] { one_slow_block<<<1056, 256>>>(y, 512, 4, 16); });
  run("block_slow_12", [&] { one_slow_block<<<1056, 256>>>(y, 512, 12, 16); });

  run("phases_1_of_1024", [&] { phases<1024, 1, 0><<<1056, 1024>>>(x, y, 64); });
  run("phases_1_of_1024_and_1", [&] { phases<1024, 1, 1><<<1056, 1024>>>(x, y, 64); });
  run("phases_1_of_1024_and_8", [&] { phases<1024, 1, 8><<<1056, 1024>>>(x, y, 64); });
  run("phases_4_of_1024", [&] { phases<1024, 4, 0><<<1056, 1024>>>(x, y, 64); });
  run("phases_4_of_1024_and_1", [&] { phases<1024, 4, 1><<<1056, 1024>>>(x, y, 64); });
  run("phases_8_of_1024", [&] { phases<1024, 8, 0><<<1056, 1024>>>(x, y, 64); });
  run("phases_16_of_1024", [&] { phases<1024, 16, 0><<<528, 1024>>>(x, y, 64); });
  run("phases_16_of_512", [&] { phases<512, 16, 0><<<1056, 512>>>(x, y, 64); });
  run("phases_16_of_256", [&] { phases<256, 16, 0><<<2112, 256>>>(x, y, 64); });
  run("transpose_conflict", [&] { transpose<0, 0><<<dim3(64, 64), dim3(32, 32)>>>(x, y); });
  run("transpose_conflict_and_2", [&] { transpose<0, 1><<<dim3(64, 64), dim3(32, 32)>>>(x, y); });
  run("transpose_conflict_and_8", [&] { transpose<0, 4><<<dim3(64, 64), dim3(32, 32)>>>(x, y); });
  run("transpose_padded", [&] { transpose<1, 0><<<dim3(64, 64), dim3(32, 32)>>>(x, y); });
  run("transpose_padded_and_8", [&] { transpose<1, 4><<<dim3(64, 64), dim3(32, 32)>>>(x, y); });

  run("useless_none", [&] { useless<0, 1, 1, 0><<<16384, 256>>>(x, y, 256); });
  run("useless_1_idle", [&] { useless<0, 1, 1, 0><<<16384, 288>>>(x, y, 256); });
  run("useless_8_idle", [&] { useless<0, 1, 1, 0><<<16384, 512>>>(x, y, 256); });
  run("useless_24_idle", [&] { useless<0, 1, 1, 0><<<16384, 1024>>>(x, y, 256); });
  run("useless_load", [&] { useless<0, 2, 1, 0><<<16384, 256>>>(x, y, 256); });
  run("useless_3_loads", [&] { useless<0, 4, 1, 0><<<16384, 256>>>(x, y, 256); });
  run("useless_store", [&] { useless<0, 1, 2, 0><<<16384, 256>>>(x, y, 256); });
  run("useless_barrier", [&] { useless<0, 1, 1, 1><<<16384, 256>>>(x, y, 256); });
  run("useless_4_barriers", [&] { useless<0, 1, 1, 4><<<16384, 256>>>(x, y, 256); });
  run("useless_1024", [&] { useless<0, 1, 1, 0><<<4096, 1024>>>(x, y, 1024); });
  run("useless_1024_barrier", [&] { useless<0, 1, 1, 1><<<4096, 1024>>>(x, y, 1024); });

  run("chain_2_blocks", [&] { chain_of_blocks<<<2, 128>>>(flags, y, 0, turn); });
  run("chain_132_blocks", [&] { chain_of_blocks<<<132, 128>>>(flags, y, 0, turn); });
  run("chain_132_blocks_work", [&] { chain_of_blocks<<<132, 128>>>(flags, y, 512, turn); });
  run("chain_1056_blocks", [&] { chain_of_blocks<<<1056, 128>>>(flags, y, 0, turn); });
  run("chain_4224_blocks", [&] { chain_of_blocks<<<4224, 128>>>(flags, y, 0, turn); });
  run("last_block_132", [&] { last_block<<<132, 256>>>(x, parts, counter, 1 << 22); });
  run("last_block_1056", [&] { last_block<<<1056, 256>>>(x, parts, counter, 1 << 22); });
  run("last_block_8448", [&] { last_block<<<8448, 256>>>(x, parts, counter, 1 << 22); });
  run("sum_of_parts_8448", [&] { sum_of_parts<<<1, 32>>>(parts, 8448); });

  run("grid_1_of_132", [&] { grid_sync(132, 256, 1, 0); });
  run("grid_10_of_132", [&] { grid_sync(132, 256, 10, 0); });
  run("grid_100_of_132", [&] { grid_sync(132, 256, 100, 0); });
  run("grid_1000_of_132", [&] { grid_sync(132, 256, 1000, 0); });
  run("grid_100_of_16", [&] { grid_sync(16, 256, 100, 0); });
  run("grid_100_of_264", [&] { grid_sync(264, 256, 100, 0); });
  run("grid_10_of_1056", [&] { grid_sync(1056, 256, 10, 0); });
  run("grid_100_of_132_work", [&] { grid_sync(132, 256, 100, 512); });
  run("own_1_of_132", [&] { own_barriers<<<132, 256>>>(y, counter, 1); });
  run("own_100_of_132", [&] { own_barriers<<<132, 256>>>(y, counter, 100); });
  run("own_10_of_1056", [&] { own_barriers<<<1056, 256>>>(y, counter, 10); });
  return 0;
}
