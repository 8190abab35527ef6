// Micro-kernels that each identify one constant of the time model.
//
// main() launches named kernels through run(). With PROF in the environment each runs once, for
// Nsight Compute; otherwise each is timed with events, the L2 flushed between runs, and the median
// and minimum of 15 are printed as CSV.
#include <cuda_bf16.h>
#include <cuda_fp16.h>
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
typedef unsigned long long u64;

__device__ __forceinline__ u32 mix(u32 x) {
  x ^= x >> 16;
  x *= 0x7feb352du;
  x ^= x >> 15;
  x *= 0x846ca68bu;
  return x ^ (x >> 16);
}

// ---- Dependent-issue latency (1 chain, 1 warp an SM) and throughput (8 chains, 32 warps an SM)

struct Ffma { typedef float T; static __device__ T step(T x, T a, T b) { return fmaf(x, a, b); } };
struct Fadd { typedef float T; static __device__ T step(T x, T a, T b) { return x + a; } };
struct Fmnmx { typedef float T; static __device__ T step(T x, T a, T b) { return fminf(fmaxf(x, a), b); } };
struct Dfma { typedef double T; static __device__ T step(T x, T a, T b) { return fma(x, a, b); } };
struct Hfma2 { typedef __half2 T; static __device__ T step(T x, T a, T b) { return __hfma2(x, a, b); } };
struct Bfma2 { typedef __nv_bfloat162 T; static __device__ T step(T x, T a, T b) { return __hfma2(x, a, b); } };
struct Hmul { typedef __half T; static __device__ T step(T x, T a, T b) { return __hadd(__hmul(x, a), b); } };
struct Imad { typedef int T; static __device__ T step(T x, T a, T b) { return x * a + b; } };
struct Lop3 { typedef int T; static __device__ T step(T x, T a, T b) { return (x & a) ^ (b | ~x); } };
struct Shift { typedef u32 T; static __device__ T step(T x, T a, T b) { return __funnelshift_l(x, a, x); } };
struct Wide { typedef u64 T; static __device__ T step(T x, T a, T b) { return (u64)(u32)x * (u32)a + b; } };
struct Popc { typedef u32 T; static __device__ T step(T x, T a, T b) { return __popc(x ^ a); } };
struct Dp4a { typedef int T; static __device__ T step(T x, T a, T b) { return __dp4a(a, b, x); } };
struct Ex2 { typedef float T; static __device__ T step(T x, T a, T b) { float y; asm volatile("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x)); return y; } };
struct Rsqrt { typedef float T; static __device__ T step(T x, T a, T b) { float y; asm volatile("rsqrt.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x)); return y; } };
struct Convert { typedef float T; static __device__ T step(T x, T a, T b) { return (float)__float2int_rn(x * a); } };
struct Divide { typedef float T; static __device__ T step(T x, T a, T b) { return (x + a) / (x + b); } };
struct Modulo { typedef int T; static __device__ T step(T x, T a, T b) { return (x | b) % a + b; } };
struct Shuffle { typedef float T; static __device__ T step(T x, T a, T b) { return __shfl_xor_sync(~0u, x, 1); } };
struct ShuffleAdd { typedef float T; static __device__ T step(T x, T a, T b) { return x + __shfl_xor_sync(~0u, x, 1); } };
struct Redux { typedef u32 T; static __device__ T step(T x, T a, T b) { return __reduce_max_sync(~0u, x ^ a) + b; } };
struct Ballot { typedef u32 T; static __device__ T step(T x, T a, T b) { return __ballot_sync(~0u, x & 1) + a; } };

template <class T> __device__ T of_int(int x) { return (T)x; }
template <> __device__ __half2 of_int<__half2>(int x) { return __half2half2(__int2half_rn(x)); }
template <> __device__ __half of_int<__half>(int x) { return __int2half_rn(x); }
template <> __device__ __nv_bfloat162 of_int<__nv_bfloat162>(int x) { return __bfloat162bfloat162(__int2bfloat16_rn(x)); }

template <class Op, int CHAINS> __global__ void chains(typename Op::T* out, int n, int first, int second) {
  typedef typename Op::T T;
  T a = of_int<T>(first), b = of_int<T>(second), x[CHAINS];
#pragma unroll
  for (int j = 0; j < CHAINS; j++) x[j] = of_int<T>((int)threadIdx.x + j);
#pragma unroll 8
  for (int i = 0; i < n; i++) {
#pragma unroll
    for (int j = 0; j < CHAINS; j++) x[j] = Op::step(x[j], a, b);
  }
#pragma unroll
  for (int j = 0; j < CHAINS; j++) out[(blockIdx.x * CHAINS + j) * blockDim.x + threadIdx.x] = x[j];
}

// Tensor instructions: KIND 0 fp16 with fp32 sums, 1 fp16 sums, 2 bf16, 3 tf32, 4 int8, 5 fp64.
template <int KIND> __device__ void multiply(u32 (&d)[4], const u32 (&a)[4], const u32 (&b)[2]) {
  if (KIND == 0)
    asm volatile("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
                 : "+r"(d[0]), "+r"(d[1]), "+r"(d[2]), "+r"(d[3]) : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
  if (KIND == 1)
    asm volatile("mma.sync.aligned.m16n8k16.row.col.f16.f16.f16.f16 {%0,%1}, {%2,%3,%4,%5}, {%6,%7}, {%0,%1};"
                 : "+r"(d[0]), "+r"(d[1]) : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
  if (KIND == 2)
    asm volatile("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
                 : "+r"(d[0]), "+r"(d[1]), "+r"(d[2]), "+r"(d[3]) : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
  if (KIND == 3)
    asm volatile("mma.sync.aligned.m16n8k8.row.col.f32.tf32.tf32.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
                 : "+r"(d[0]), "+r"(d[1]), "+r"(d[2]), "+r"(d[3]) : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
  if (KIND == 4)
    asm volatile("mma.sync.aligned.m16n8k32.row.col.s32.s8.s8.s32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
                 : "+r"(d[0]), "+r"(d[1]), "+r"(d[2]), "+r"(d[3]) : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
}

template <int KIND, int CHAINS> __global__ void tensor(u32* out, int n) {
  u32 a[4], b[2], d[CHAINS][4];
#pragma unroll
  for (int j = 0; j < 4; j++) a[j] = threadIdx.x & 1;
  b[0] = b[1] = threadIdx.x >> 31;
#pragma unroll
  for (int j = 0; j < CHAINS; j++)
#pragma unroll
    for (int k = 0; k < 4; k++) d[j][k] = 0;
#pragma unroll 4
  for (int i = 0; i < n; i++)
#pragma unroll
    for (int j = 0; j < CHAINS; j++) multiply<KIND>(d[j], a, b);
  u32 sum = 0;
#pragma unroll
  for (int j = 0; j < CHAINS; j++) sum += d[j][0] + d[j][1] + d[j][2] + d[j][3];
  out[blockIdx.x * blockDim.x + threadIdx.x] = sum;
}

// ---- Launches, blocks and barriers

__global__ void empty(int* out) { if (out == nullptr) __trap(); }
__global__ void empty_shared(int* out) { __shared__ int s[12000]; if (out == nullptr) { s[threadIdx.x] = 1; __syncthreads(); out[0] = s[threadIdx.x ^ 1]; } }

// Every block runs one chain of n multiply-adds: dynamic shared memory sets the blocks per SM.
__global__ void block_chain(float* out, int n) {
  float x = threadIdx.x;
#pragma unroll 16
  for (int i = 0; i < n; i++) x = fmaf(x, 0.999f, 0.001f);
  out[(blockIdx.x % 132) * blockDim.x + threadIdx.x] = x;
}

__global__ void barriers(float* out, int n) {
  float x = threadIdx.x;
  for (int i = 0; i < n; i++) {
    __syncthreads();
    x = fmaf(x, 0.999f, 0.001f);
  }
  out[blockIdx.x * blockDim.x + threadIdx.x] = x;
}

// Load, barrier, read s shared words, store: with few blocks an SM the phases do not overlap.
__global__ void one_barrier(const float* in, float* out, int s) {
  __shared__ float line[1024];
  int i = blockIdx.x * 1024 + threadIdx.x;
  line[threadIdx.x] = in[i];
  __syncthreads();
  float x = 0;
  for (int k = 1; k <= s; k++) x += line[(threadIdx.x * 32 + k) & 1023];
  out[i] = x;
}

// ---- Latency: every lane follows one chain of indices

__global__ void chase(const u32* next, u32* out, int n) {
  u32 at = 0;
  for (int i = 0; i < n; i++) at = next[at];
  out[threadIdx.x] = at;
}
__global__ void chase_l2(const u32* next, u32* out, int n) {
  u32 at = 0;
  for (int i = 0; i < n; i++) at = __ldcg(next + at);
  out[threadIdx.x] = at;
}
__global__ void chase_shared(u32* out, int n) {
  __shared__ u32 next[1024];
  for (int i = threadIdx.x; i < 1024; i += blockDim.x) next[i] = (i + 33) & 1023;
  __syncthreads();
  u32 at = 0;
  for (int i = 0; i < n; i++) at = next[at];
  out[threadIdx.x] = at;
}

// IN_FLIGHT independent loads of a line each, then one instruction that needs them all.
template <int IN_FLIGHT> __global__ void in_flight(const float* in, float* out, int n, int stride) {
  int warp = (blockIdx.x * blockDim.x + threadIdx.x) / 32, warps = gridDim.x * blockDim.x / 32;
  int lane = threadIdx.x & 31, at = 0;
  float sum = 0;
  for (int i = 0; i < n; i++) {
    float x[IN_FLIGHT];
#pragma unroll
    for (int j = 0; j < IN_FLIGHT; j++) x[j] = in[(u32)(((i * IN_FLIGHT + j) * warps + warp) * stride + lane + at)];
    float y = 0;
#pragma unroll
    for (int j = 0; j < IN_FLIGHT; j++) y += x[j];
    at = y == 12345.f;
    sum += y;
  }
  out[blockIdx.x * blockDim.x + threadIdx.x] = sum;
}

// ---- DRAM

__global__ void read_stride(const float4* in, float4* out, int n) {
  float4 s = make_float4(0, 0, 0, 0);
  for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += gridDim.x * blockDim.x) {
    float4 v = in[i];
    s.x += v.x; s.y += v.y; s.z += v.z; s.w += v.w;
  }
  out[blockIdx.x * blockDim.x + threadIdx.x] = s;
}
__global__ void fill(float4* out) { out[blockIdx.x * blockDim.x + threadIdx.x] = make_float4(1, 2, 3, 4); }
__global__ void fill1(float* out) { out[blockIdx.x * blockDim.x + threadIdx.x] = 1; }
__global__ void copy4(const float4* in, float4* out) { int i = blockIdx.x * blockDim.x + threadIdx.x; out[i] = in[i]; }
__global__ void copy1(const float* in, float* out) { int i = blockIdx.x * blockDim.x + threadIdx.x; out[i] = in[i]; }
// Every group of WIDTH lanes reads 4 * WIDTH bytes at a random place.
template <int WIDTH> __global__ void gather(const float* in, float* out, u32 words, int n) {
  u32 i = blockIdx.x * blockDim.x + threadIdx.x, total = gridDim.x * blockDim.x;
  float s = 0;
#pragma unroll 4
  for (int k = 0; k < n; k++) s += __ldcg(in + (mix((k * total + i) / WIDTH) & (words - 1)) / WIDTH * WIDTH + i % WIDTH);
  out[i] = s;
}
// Every lane reads one word of its own sector; sectors are `step` words apart.
__global__ void sparse(const float* in, float* out, u32 step, u32 n) {
  u32 i = blockIdx.x * blockDim.x + threadIdx.x, total = gridDim.x * blockDim.x;
  float s = 0;
  for (u32 k = i; k < n; k += total) s += in[(size_t)k * step];
  out[i] = s;
}
// One word of a random sector (WIDTH 1) or WIDTH words of it.
template <int WIDTH> __global__ void scatter(float* out, u32 words, int n) {
  u32 i = blockIdx.x * blockDim.x + threadIdx.x, total = gridDim.x * blockDim.x;
  for (int k = 0; k < n; k++) out[(mix((k * total + i) / WIDTH) & (words - 1)) / 8 * 8 + i % WIDTH] = (float)k;
}

// ---- L2 and L1

__global__ void l2_read4(const float4* in, float4* out, u32 mask, int n) {
  u32 i = blockIdx.x * blockDim.x + threadIdx.x, total = gridDim.x * blockDim.x;
  float4 s = make_float4(0, 0, 0, 0);
#pragma unroll 4
  for (int k = 0; k < n; k++) {
    float4 v = __ldcg(in + ((k * total + i) & mask));
    s.x += v.x; s.y += v.y; s.z += v.z; s.w += v.w;
  }
  out[i] = s;
}
__global__ void l2_read1(const float* in, float* out, u32 mask, int n) {
  u32 i = blockIdx.x * blockDim.x + threadIdx.x, total = gridDim.x * blockDim.x;
  float s = 0;
#pragma unroll 4
  for (int k = 0; k < n; k++) s += __ldcg(in + ((k * total + i) & mask));
  out[i] = s;
}
__global__ void l2_write4(float4* out, u32 mask, int n) {
  u32 i = blockIdx.x * blockDim.x + threadIdx.x, total = gridDim.x * blockDim.x;
  for (int k = 0; k < n; k++) out[(k * total + i) & mask] = make_float4(k, k, k, k);
}
__global__ void l2_write1(float* out, u32 mask, int n) {
  u32 i = blockIdx.x * blockDim.x + threadIdx.x, total = gridDim.x * blockDim.x;
  for (int k = 0; k < n; k++) out[(k * total + i) & mask] = (float)k;
}
// Loads and stores by name, so that no compiler moves or joins them. WORDS of 4 bytes a lane;
// neighbouring lanes are `step` words apart, and everything lies within 16 KB.
template <int WORDS> __device__ float load_global(const float* p) {
  float x, y = 0, z = 0, w = 0;
  if (WORDS == 4) asm volatile("ld.global.v4.f32 {%0,%1,%2,%3}, [%4];" : "=f"(x), "=f"(y), "=f"(z), "=f"(w) : "l"(p));
  else asm volatile("ld.global.f32 %0, [%1];" : "=f"(x) : "l"(p));
  return (x + y) + (z + w);
}
template <int WORDS> __device__ float load_shared(u32 p) {
  float x, y = 0, z = 0, w = 0;
  if (WORDS == 4) asm volatile("ld.shared.v4.f32 {%0,%1,%2,%3}, [%4];" : "=f"(x), "=f"(y), "=f"(z), "=f"(w) : "r"(p));
  else if (WORDS == 2) asm volatile("ld.shared.v2.f32 {%0,%1}, [%2];" : "=f"(x), "=f"(y) : "r"(p));
  else asm volatile("ld.shared.f32 %0, [%1];" : "=f"(x) : "r"(p));
  return (x + y) + (z + w);
}
template <int WORDS> __global__ void l1_read(const float* in, float* out, u32 step, int n) {
  const float* p = in + threadIdx.x * step % 2048;
  float s = 0;
#pragma unroll 2
  for (int k = 0; k < n; k++) {
#pragma unroll
    for (int j = 0; j < 16; j++) s += load_global<WORDS>(p + j * 128);
  }
  out[blockIdx.x * blockDim.x + threadIdx.x] = s;
}
template <int WORDS> __global__ void shared_read(float* out, u32 step, int n) {
  __shared__ __align__(16) float s[4096];
  for (int i = threadIdx.x; i < 4096; i += blockDim.x) s[i] = i;
  __syncthreads();
  u32 p = (u32)__cvta_generic_to_shared(s + threadIdx.x * step % 2048);
  float x = 0;
#pragma unroll 2
  for (int k = 0; k < n; k++) {
#pragma unroll
    for (int j = 0; j < 16; j++) x += load_shared<WORDS>(p + j * 512);
  }
  out[blockIdx.x * blockDim.x + threadIdx.x] = x;
}
template <int WORDS> __global__ void shared_write(float* out, u32 step, int n) {
  __shared__ __align__(16) float s[4096];
  u32 p = (u32)__cvta_generic_to_shared(s + threadIdx.x * step % 2048);
  float x = threadIdx.x;
#pragma unroll 2
  for (int k = 0; k < n; k++) {
#pragma unroll
    for (int j = 0; j < 16; j++) {
      if (WORDS == 4) asm volatile("st.shared.v4.f32 [%0], {%1,%1,%1,%1};" :: "r"(p + j * 512), "f"(x) : "memory");
      else asm volatile("st.shared.f32 [%0], %1;" :: "r"(p + j * 512), "f"(x) : "memory");
    }
    x += 1.f;
  }
  __syncthreads();
  out[blockIdx.x * blockDim.x + threadIdx.x] = s[threadIdx.x];
}
__global__ void local_array(const int* at, float* out, int n) {
  float x[64];
  for (int i = 0; i < 64; i++) x[i] = i * threadIdx.x;
  int j = at[threadIdx.x] & 63;
  for (int k = 0; k < n; k++) {
    x[j] += 1.f;
    j = (j + 7) & 63;
  }
  out[blockIdx.x * blockDim.x + threadIdx.x] = x[j] + x[(j + 5) & 63];
}

// ---- Atomics: T added at one of `words` places, chosen by hash (words 1: all the same)

template <class T> __global__ void atomic_hash(T* out, u32 words) {
  u32 i = blockIdx.x * blockDim.x + threadIdx.x;
  atomicAdd(out + (mix(i) & (words - 1)), (T)(i & 3));
}
template <class T> __global__ void atomic_lane(T* out, u32 words) {
  u32 i = blockIdx.x * blockDim.x + threadIdx.x;
  atomicAdd(out + (i & (words - 1)), (T)(i & 3));
}
__global__ void atomic_max(int* out) { u32 i = blockIdx.x * blockDim.x + threadIdx.x; atomicMax(out, (int)mix(i)); }
__global__ void atomic_return(float* out, float* old, u32 words) { u32 i = blockIdx.x * blockDim.x + threadIdx.x; old[i] = atomicAdd(out + (mix(i) & (words - 1)), 1.f); }
__global__ void atomic_swap(u32* out, u32* old, u32 words) { u32 i = blockIdx.x * blockDim.x + threadIdx.x; old[i] = atomicCAS(out + (mix(i) & (words - 1)), i, i + 1); }
__global__ void atomic_per_warp(float* out) { u32 i = blockIdx.x * blockDim.x + threadIdx.x; if (i % 32 == 0) atomicAdd(out, 1.f); }
__global__ void atomic_half2(__half2* out, u32 words) { u32 i = blockIdx.x * blockDim.x + threadIdx.x; atomicAdd(out + (i & (words - 1)), __half2half2(__ushort2half_rn(i & 1))); }
template <class T> __global__ void atomic_shared(T* out, u32 bins, int n) {
  __shared__ T s[1024];
  for (int i = threadIdx.x; i < 1024; i += blockDim.x) s[i] = 0;
  __syncthreads();
  u32 i = blockIdx.x * blockDim.x + threadIdx.x;
  for (int k = 0; k < n; k++) atomicAdd(s + (mix(i + k * 7919) & (bins - 1)), (T)(k + 1));
  __syncthreads();
  for (int j = threadIdx.x; j < 1024; j += blockDim.x) out[blockIdx.x * 1024 + j] = s[j];
}
template <class T> __global__ void atomic_shared_lane(T* out, int n) {
  __shared__ T s[1024];
  for (int i = threadIdx.x; i < 1024; i += blockDim.x) s[i] = 0;
  __syncthreads();
  for (int k = 0; k < n; k++) atomicAdd(s + ((threadIdx.x + k) & 1023), (T)(k + 1));
  __syncthreads();
  for (int j = threadIdx.x; j < 1024; j += blockDim.x) out[blockIdx.x * 1024 + j] = s[j];
}

// ---- Overlap: DRAM reads beside K multiply-adds, special functions or shared wavefronts an element

template <int FMAS> __global__ void overlap_fma(const float4* in, float4* out) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  float4 v = in[i];
#pragma unroll
  for (int k = 0; k < FMAS; k++) {
    v.x = fmaf(v.x, 0.99f, 0.01f); v.y = fmaf(v.y, 0.99f, 0.01f);
    v.z = fmaf(v.z, 0.99f, 0.01f); v.w = fmaf(v.w, 0.99f, 0.01f);
  }
  out[i] = v;
}
template <int STEPS> __global__ void overlap_shared(const float4* in, float4* out) {
  __shared__ float s[1024];
  for (int j = threadIdx.x; j < 1024; j += blockDim.x) s[j] = j;
  __syncthreads();
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  float4 v = in[i];
#pragma unroll
  for (int k = 0; k < STEPS; k++) v.x += s[(threadIdx.x * 2 + k * 32) & 1023];
  out[i] = v;
}
template <int STEPS> __global__ void overlap_l2(const float4* in, const float4* small, float4* out) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  float4 v = in[i];
#pragma unroll
  for (int k = 0; k < STEPS; k++) {
    float4 w = __ldcg(small + ((i + k * 65536) & 0x7ffff));
    v.x += w.x; v.y += w.y; v.z += w.z; v.w += w.w;
  }
  out[i] = v;
}

static std::vector<u32> ring(u32 places, u32 step) {
  // One cycle through all places in an order no prefetcher knows; a place is `step` words.
  std::vector<u32> order(places), next((size_t)places * step);
  for (u32 i = 0; i < places; i++) order[i] = i;
  u32 seed = 1;
  for (u32 i = places - 1; i > 0; i--) {
    seed = seed * 1664525u + 1013904223u;
    std::swap(order[i], order[(u64)seed * i >> 32]);
  }
  for (u32 i = 0; i < places; i++) next[(size_t)order[i] * step] = order[(i + 1) % places] * step;
  return next;
}

int main() {
  const size_t BYTES = (size_t)1 << 30;
  char *in, *out, *flush;
  CK(cudaMalloc(&in, BYTES));
  CK(cudaMalloc(&out, BYTES));
  CK(cudaMemset(in, 0, BYTES));
  CK(cudaMemset(out, 0, BYTES));
  CK(cudaMalloc(&flush, 256 << 20));
  std::vector<u32> l1 = ring(256, 32), l2 = ring(1 << 11, 32), dram = ring(1 << 18, 256);
  u32 *next_l1, *next_l2, *next_dram;
  CK(cudaMalloc(&next_l1, l1.size() * 4));
  CK(cudaMalloc(&next_l2, l2.size() * 4));
  CK(cudaMalloc(&next_dram, dram.size() * 4));
  CK(cudaMemcpy(next_l1, l1.data(), l1.size() * 4, cudaMemcpyHostToDevice));
  CK(cudaMemcpy(next_l2, l2.data(), l2.size() * 4, cudaMemcpyHostToDevice));
  CK(cudaMemcpy(next_dram, dram.data(), dram.size() * 4, cudaMemcpyHostToDevice));
  CK(cudaFuncSetAttribute(block_chain, cudaFuncAttributeMaxDynamicSharedMemorySize, 200 << 10));
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
  float* f = (float*)in;
  float* g = (float*)out;
  float4* f4 = (float4*)in;
  float4* g4 = (float4*)out;
  u32* words = (u32*)out;

#define CHAIN(name, Op, n, a, b)                                                               \
  run("latency_" name, [&] { chains<Op, 1><<<132, 32>>>((Op::T*)out, n, a, b); });             \
  run("rate_" name, [&] { chains<Op, 8><<<528, 256>>>((Op::T*)out, n, a, b); });
  CHAIN("ffma", Ffma, 4096, 1, 1)
  CHAIN("fadd", Fadd, 4096, 1, 1)
  CHAIN("fmnmx", Fmnmx, 2048, 1, 9)
  CHAIN("dfma", Dfma, 2048, 1, 1)
  CHAIN("hfma2", Hfma2, 4096, 1, 1)
  CHAIN("bfma2", Bfma2, 4096, 1, 1)
  CHAIN("half", Hmul, 2048, 1, 1)
  CHAIN("imad", Imad, 4096, 3, 1)
  CHAIN("lop3", Lop3, 4096, 3, 1)
  CHAIN("shift", Shift, 4096, 3, 1)
  CHAIN("wide", Wide, 2048, 3, 1)
  CHAIN("popc", Popc, 2048, 3, 1)
  CHAIN("dp4a", Dp4a, 4096, 3, 1)
  CHAIN("ex2", Ex2, 1024, 1, 1)
  CHAIN("rsqrt", Rsqrt, 1024, 1, 1)
  CHAIN("convert", Convert, 1024, 1, 1)
  CHAIN("divide", Divide, 512, 1, 2)
  CHAIN("modulo", Modulo, 256, 77, 1)
  CHAIN("shuffle", Shuffle, 1024, 1, 1)
  CHAIN("shuffle_add", ShuffleAdd, 1024, 1, 1)
  CHAIN("redux", Redux, 512, 1, 1)
  CHAIN("ballot", Ballot, 1024, 1, 1)

#define TENSOR(name, kind, n)                                                     \
  run("latency_mma_" name, [&] { tensor<kind, 1><<<132, 32>>>(words, n); });      \
  run("rate_mma_" name, [&] { tensor<kind, 8><<<264, 256>>>(words, n); });
  TENSOR("f16", 0, 2048)
  TENSOR("f16_f16", 1, 2048)
  TENSOR("bf16", 2, 2048)
  TENSOR("tf32", 3, 2048)
  TENSOR("s8", 4, 2048)

  run("empty_1", [&] { empty<<<1, 32>>>((int*)out); });
  run("empty_132x1024", [&] { empty<<<132, 1024>>>((int*)out); });
  run("blocks_32", [&] { empty<<<1 << 19, 32>>>((int*)out); });
  run("blocks_256", [&] { empty<<<1 << 19, 256>>>((int*)out); });
  run("blocks_1024", [&] { empty<<<1 << 17, 1024>>>((int*)out); });
  run("blocks_shared", [&] { empty_shared<<<1 << 17, 128>>>((int*)out); });
  run("turnover_1", [&] { block_chain<<<132 * 40, 256, 200 << 10>>>(g, 256); });
  run("turnover_4", [&] { block_chain<<<132 * 160, 256, 50 << 10>>>(g, 256); });
  run("turnover_8", [&] { block_chain<<<132 * 320, 256>>>(g, 256); });
  run("tail_none", [&] { block_chain<<<132 * 2, 1024>>>(g, 8192); });
  run("tail_one", [&] { block_chain<<<132 * 2 + 1, 1024>>>(g, 8192); });
  run("tail_half", [&] { block_chain<<<132 * 3, 1024>>>(g, 8192); });
  run("barrier_64", [&] { barriers<<<132, 64>>>(g, 2048); });
  run("barrier_256", [&] { barriers<<<132, 256>>>(g, 2048); });
  run("barrier_1024", [&] { barriers<<<132, 1024>>>(g, 2048); });
  run("barrier_4x256", [&] { barriers<<<528, 256>>>(g, 2048); });
  run("one_barrier_1", [&] { one_barrier<<<16384, 1024>>>(f, g, 1); });
  run("one_barrier_2", [&] { one_barrier<<<16384, 1024>>>(f, g, 2); });
  run("one_barrier_4", [&] { one_barrier<<<16384, 1024>>>(f, g, 4); });

  run("chase_l1", [&] { chase<<<1, 32>>>(next_l1, words, 16384); });
  run("chase_l2", [&] { chase_l2<<<1, 32>>>(next_l2, words, 16384); });
  run("chase_dram", [&] { chase<<<1, 32>>>(next_dram, words, 2048); });
  run("chase_shared", [&] { chase_shared<<<1, 32>>>(words, 8192); });
  run("flight1_1warp", [&] { in_flight<1><<<132, 32>>>(f, g, 128, 32); });
  run("flight1_4warps", [&] { in_flight<1><<<132, 128>>>(f, g, 128, 32); });
  run("flight1_16warps", [&] { in_flight<1><<<132, 512>>>(f, g, 128, 32); });
  run("flight1_32warps", [&] { in_flight<1><<<132, 1024>>>(f, g, 128, 32); });
  run("flight1_64warps", [&] { in_flight<1><<<264, 1024>>>(f, g, 128, 32); });
  run("flight4_4warps", [&] { in_flight<4><<<132, 128>>>(f, g, 64, 32); });
  run("flight4_16warps", [&] { in_flight<4><<<132, 512>>>(f, g, 64, 32); });
  run("flight4_64warps", [&] { in_flight<4><<<264, 1024>>>(f, g, 32, 32); });
  run("flight16_4warps", [&] { in_flight<16><<<132, 128>>>(f, g, 32, 32); });
  run("flight16_16warps", [&] { in_flight<16><<<132, 512>>>(f, g, 32, 32); });

  run("dram_read", [&] { read_stride<<<1056, 256>>>(f4, g4, 1 << 25); });
  run("dram_write", [&] { fill<<<1 << 17, 256>>>(g4); });
  run("dram_write1", [&] { fill1<<<1 << 18, 256>>>(g); });
  run("dram_copy", [&] { copy4<<<1 << 17, 256>>>(f4, g4); });
  run("dram_copy1", [&] { copy1<<<1 << 18, 256>>>(f, g); });
  run("dram_copy_16mb", [&] { copy4<<<1 << 12, 256>>>(f4, g4); });
  run("gather_dram_4b", [&] { gather<1><<<8448, 256>>>(f, g, 1 << 28, 8); });
  run("gather_dram_32b", [&] { gather<8><<<8448, 256>>>(f, g, 1 << 28, 16); });
  run("gather_dram_64b", [&] { gather<16><<<8448, 256>>>(f, g, 1 << 28, 16); });
  run("gather_dram_128b", [&] { gather<32><<<8448, 256>>>(f, g, 1 << 28, 16); });
  run("sparse_64b", [&] { sparse<<<2112, 256>>>(f, g, 16, 1 << 24); });
  run("sparse_128b", [&] { sparse<<<2112, 256>>>(f, g, 32, 1 << 23); });
  run("scatter_dram_4b", [&] { scatter<1><<<8448, 256>>>(g, 1 << 28, 4); });
  run("scatter_dram_32b", [&] { scatter<8><<<8448, 256>>>(g, 1 << 28, 8); });

  run("l2_read4_8mb", [&] { l2_read4<<<1056, 256>>>(f4, g4, (1 << 19) - 1, 64); });
  run("l2_read4_32mb", [&] { l2_read4<<<1056, 256>>>(f4, g4, (1 << 21) - 1, 64); });
  run("l2_read1_8mb", [&] { l2_read1<<<1056, 256>>>(f, g, (1 << 21) - 1, 128); });
  run("gather_l2_4b", [&] { gather<1><<<2112, 256>>>(f, g, 1 << 21, 32); });
  run("gather_l2_32b", [&] { gather<8><<<2112, 256>>>(f, g, 1 << 21, 64); });
  run("gather_l2_128b", [&] { gather<32><<<2112, 256>>>(f, g, 1 << 21, 64); });
  run("l2_write4_8mb", [&] { l2_write4<<<1056, 256>>>(g4, (1 << 19) - 1, 64); });
  run("l2_write1_8mb", [&] { l2_write1<<<1056, 256>>>(g, (1 << 21) - 1, 128); });
  run("scatter_l2_4b", [&] { scatter<1><<<2112, 256>>>(g, 1 << 21, 16); });
  run("scatter_l2_32b", [&] { scatter<8><<<2112, 256>>>(g, 1 << 21, 32); });
  run("l1_read1", [&] { l1_read<1><<<528, 256>>>(f, g, 1, 64); });
  run("l1_read4", [&] { l1_read<4><<<528, 256>>>(f, g, 4, 32); });
  run("l1_read_2lines", [&] { l1_read<1><<<528, 256>>>(f, g, 2, 32); });
  run("l1_read_8lines", [&] { l1_read<1><<<528, 256>>>(f, g, 8, 16); });
  run("l1_read_32lines", [&] { l1_read<1><<<528, 256>>>(f, g, 33, 8); });
  run("shared_read1", [&] { shared_read<1><<<528, 256>>>(g, 1, 64); });
  run("shared_read2", [&] { shared_read<2><<<528, 256>>>(g, 2, 32); });
  run("shared_read4", [&] { shared_read<4><<<528, 256>>>(g, 4, 32); });
  run("shared_read_same4", [&] { shared_read<4><<<528, 256>>>(g, 0, 64); });
  run("shared_read_8ways", [&] { shared_read<1><<<528, 256>>>(g, 8, 16); });
  run("shared_write1", [&] { shared_write<1><<<528, 256>>>(g, 1, 64); });
  run("shared_write4", [&] { shared_write<4><<<528, 256>>>(g, 4, 32); });
  run("shared_write_8ways", [&] { shared_write<1><<<528, 256>>>(g, 8, 16); });
  run("local_array", [&] { local_array<<<1056, 256>>>((int*)in, g, 64); });

  run("atomic_f32_1", [&] { atomic_hash<float><<<2048, 256>>>(g, 1); });
  run("atomic_f32_32", [&] { atomic_hash<float><<<4096, 256>>>(g, 32); });
  run("atomic_f32_1k", [&] { atomic_hash<float><<<16384, 256>>>(g, 1 << 10); });
  run("atomic_f32_32k", [&] { atomic_hash<float><<<65536, 256>>>(g, 1 << 15); });
  run("atomic_f32_1m", [&] { atomic_hash<float><<<65536, 256>>>(g, 1 << 20); });
  run("atomic_f32_64m", [&] { atomic_hash<float><<<65536, 256>>>(g, 1 << 26); });
  run("atomic_lane_32", [&] { atomic_lane<float><<<4096, 256>>>(g, 32); });
  run("atomic_lane_1k", [&] { atomic_lane<float><<<16384, 256>>>(g, 1 << 10); });
  run("atomic_lane_1m", [&] { atomic_lane<float><<<65536, 256>>>(g, 1 << 20); });
  run("atomic_lane_16m", [&] { atomic_lane<float><<<65536, 256>>>(g, 1 << 24); });
  run("atomic_int_1", [&] { atomic_hash<int><<<16384, 256>>>((int*)out, 1); });
  run("atomic_int_32", [&] { atomic_hash<int><<<4096, 256>>>((int*)out, 32); });
  run("atomic_int_32k", [&] { atomic_hash<int><<<65536, 256>>>((int*)out, 1 << 15); });
  run("atomic_max", [&] { atomic_max<<<16384, 256>>>((int*)out); });
  run("atomic_f64_1", [&] { atomic_hash<double><<<2048, 256>>>((double*)out, 1); });
  run("atomic_f64_32k", [&] { atomic_hash<double><<<32768, 256>>>((double*)out, 1 << 15); });
  run("atomic_u64_32k", [&] { atomic_hash<u64><<<32768, 256>>>((u64*)out, 1 << 15); });
  run("atomic_return_1", [&] { atomic_return<<<1024, 256>>>(g, f, 1); });
  run("atomic_return_32k", [&] { atomic_return<<<32768, 256>>>(g, f, 1 << 15); });
  run("atomic_swap_32k", [&] { atomic_swap<<<32768, 256>>>(words, (u32*)in, 1 << 15); });
  run("atomic_per_warp", [&] { atomic_per_warp<<<65536, 256>>>(g); });
  run("atomic_half2_32k", [&] { atomic_half2<<<32768, 256>>>((__half2*)out, 1 << 15); });
  run("shared_atomic_int_1", [&] { atomic_shared<int><<<528, 256>>>((int*)out, 1, 64); });
  run("shared_atomic_int_256", [&] { atomic_shared<int><<<528, 256>>>((int*)out, 256, 256); });
  run("shared_atomic_int_lane", [&] { atomic_shared_lane<int><<<528, 256>>>((int*)out, 512); });
  run("shared_atomic_f32_1", [&] { atomic_shared<float><<<528, 256>>>(g, 1, 16); });
  run("shared_atomic_f32_256", [&] { atomic_shared<float><<<528, 256>>>(g, 256, 64); });
  run("shared_atomic_f32_lane", [&] { atomic_shared_lane<float><<<528, 256>>>(g, 256); });

  run("overlap_fma_0", [&] { overlap_fma<0><<<1 << 15, 256>>>(f4, g4); });
  run("overlap_fma_32", [&] { overlap_fma<32><<<1 << 15, 256>>>(f4, g4); });
  run("overlap_fma_64", [&] { overlap_fma<64><<<1 << 15, 256>>>(f4, g4); });
  run("overlap_fma_128", [&] { overlap_fma<128><<<1 << 15, 256>>>(f4, g4); });
  run("overlap_shared_16", [&] { overlap_shared<16><<<1 << 15, 256>>>(f4, g4); });
  run("overlap_shared_32", [&] { overlap_shared<32><<<1 << 15, 256>>>(f4, g4); });
  run("overlap_shared_64", [&] { overlap_shared<64><<<1 << 15, 256>>>(f4, g4); });
  run("overlap_l2_1", [&] { overlap_l2<1><<<1 << 15, 256>>>(f4, f4, g4); });
  run("overlap_l2_4", [&] { overlap_l2<4><<<1 << 15, 256>>>(f4, f4, g4); });
  return 0;
}
