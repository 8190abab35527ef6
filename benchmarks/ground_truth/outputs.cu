// Small kernels of forty kinds whose outputs a real GPU and the simulated one must agree on.
//
// Writes one line an output to the file named by the first argument (or $OUTPUTS, or outputs.txt):
// name, element type (i32, f32, f16, bf16, f64), count, then every element's bits in hexadecimal.
// All inputs come from a fixed integer hash; no atomics whose order could show.
#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <cuda_pipeline.h>
#include <cuda_runtime.h>
#include <mma.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>
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

using namespace nvcuda;
typedef unsigned int u32;
typedef unsigned long long u64;

__host__ __device__ inline u32 mix(u32 x) {
  x ^= x >> 16;
  x *= 0x7feb352du;
  x ^= x >> 15;
  x *= 0x846ca68bu;
  return x ^ (x >> 16);
}
__device__ __forceinline__ int here() { return blockIdx.x * blockDim.x + threadIdx.x; }

// ---- One result a thread: F takes two words of input

template <class F, class T> __global__ void each(const u32* in, T* out) {
  int i = here();
  out[i] = F::of(in[2 * i], in[2 * i + 1]);
}
// Floats in (-4, 4) and in (0, 8).
__device__ __forceinline__ float signed_of(u32 x) { return (int)x * (1.f / 536870912.f); }
__device__ __forceinline__ float positive_of(u32 x) { return (x >> 8) * (1.f / 2097152.f) + 1e-3f; }
#define EACH(name, T, expression)                                              \
  struct name {                                                                \
    static __device__ T of(u32 a, u32 b) {                                     \
      float x = signed_of(a), y = signed_of(b), p = positive_of(a), q = positive_of(b); \
      (void)x; (void)y; (void)p; (void)q;                                      \
      return expression;                                                       \
    }                                                                          \
  };
EACH(Arithmetic, float, fmaf(x, y, x - y) * 0.75f + y)
EACH(Division, float, x / y)
EACH(SquareRoot, float, sqrtf(p) + 1.f / q)
EACH(ReciprocalRoot, float, rsqrtf(p))
EACH(Exponential, float, expf(x))
EACH(FastExponential, float, __expf(x))
EACH(Logarithm, float, logf(p))
EACH(FastLogarithm, float, __logf(p))
EACH(Sine, float, sinf(x * 10.f))
EACH(FastSine, float, __sinf(x))
EACH(HyperbolicTangent, float, tanhf(x))
EACH(ErrorFunction, float, erff(x))
EACH(Power, float, powf(p, y))
EACH(Rounding, float, rintf(x * 3) + floorf(y) + ceilf(x) + truncf(y * 5) + roundf(x * 7))
EACH(MinMax, float, fminf(x, y) + fmaxf(x, 0.f) * copysignf(1.f, y) + fabsf(x) + fdimf(x, y))
EACH(Directed, float, __fadd_rz(x, y) + __fmul_ru(x, y) + __fdiv_rd(x, y) + __fsqrt_rz(p))
EACH(Subnormal, float, x * 1e-38f * 0.01f + y * 1e-40f)
EACH(FloatToInt, int, __float2int_rn(x * 1e4f) ^ __float2int_rz(y * 1e5f) ^ (int)__float2uint_ru(p * 1e3f) ^ __float_as_int((float)(int)a))
EACH(DoubleArithmetic, double, fma((double)x, (double)y, 1.0) / ((double)p + 0.1) + sqrt((double)q))
EACH(DoubleFunctions, double, exp((double)x) + log((double)p) + sin((double)y))
EACH(IntegerMultiply, int, (int)(a * b) ^ (int)__umulhi(a, b) ^ __mulhi((int)a, (int)b) ^ __mul24((int)a, (int)b))
EACH(IntegerDivide, int, (int)a / ((int)(b >> 20) + 1) + (int)(a % (b >> 16 | 1)) + (int)a % ((int)(b >> 24) - 1000))
EACH(IntegerBits, int, __popc(a) + __clz(b) + __ffs((int)a) + (int)__brev(b) + (int)__byte_perm(a, b, 0x3615) + (int)__funnelshift_l(a, b, b & 31) + (int)__funnelshift_rc(a, b, 40))
EACH(Integer64, int, (int)(((u64)a * b + ((u64)b << 17)) / ((u64)(a >> 7) + 3)) ^ (int)((long long)(((u64)a << 32) | b) >> 13))
EACH(DotProducts, int, __dp4a((int)a, (int)b, 7) + __dp2a_lo((int)a, (int)b, 1) + (int)__usad(a, b, 3u) + (int)__vabsdiffu4(a, b))
EACH(VideoBytes, int, (int)(__vadd4(a, b) ^ __vmaxs2(a, b) ^ __vcmpgtu4(a, b) ^ __vavgu4(a, b)))
EACH(HalfArithmetic, __half, __hadd(__hmul(__float2half(x), __float2half(y)), __hfma(__float2half(p), __float2half(0.5f), __float2half(x))))
EACH(HalfFunctions, __half, __hadd(hexp(__float2half(x)), hsqrt(__float2half(p))))
EACH(BrainArithmetic, __nv_bfloat16, __hfma(__float2bfloat16(x), __float2bfloat16(y), __hmax(__float2bfloat16(p), __float2bfloat16(1.5f))))
struct HalfPairs {
  static __device__ int of(u32 a, u32 b) {
    __half2 x = __floats2half2_rn(signed_of(a), signed_of(b)), y = __lowhigh2highlow(x);
    __half2 z = __hfma2(x, y, __hmax2(x, __hneg2(y)));
    return *(int*)&z;
  }
};
struct Branches {
  static __device__ int of(u32 a, u32 b) {
    int s = 0;
    for (u32 k = 0; k < (a & 31); k++) {
      switch ((a >> k) & 7) {
        case 0: s += 3; break;
        case 1: s ^= (int)b; break;
        case 2: continue;
        case 5: s = s * 5 + 1; break;
        default: s -= (int)k;
      }
      if (s & 0x4000) break;
    }
    return s;
  }
};
__device__ __noinline__ int ackermann(int m, int n) { return m == 0 ? n + 1 : n == 0 ? ackermann(m - 1, 1) : ackermann(m - 1, ackermann(m, n - 1)); }
struct Recursion { static __device__ int of(u32 a, u32 b) { return ackermann(a & 1, b & 7) + ackermann(2, a & 3); } };
struct LocalArray {
  static __device__ int of(u32 a, u32 b) {
    int x[16];
    for (int i = 0; i < 16; i++) x[i] = (int)(a >> i);
    for (int i = 0; i < 16; i++) x[(b >> i) & 15] += x[(a >> i) & 15];
    int s = 0;
    for (int i = 0; i < 16; i++) s = s * 31 + x[i];
    return s;
  }
};

// ---- Warps and blocks

__global__ void shuffles(const u32* in, u32* out) {
  int i = here(), lane = threadIdx.x & 31;
  u32 x = in[i];
  x += __shfl_xor_sync(~0u, x, 5) + __shfl_up_sync(~0u, x, 3) * 3 + __shfl_down_sync(~0u, x, 7, 16) * 5 + __shfl_sync(~0u, x, (lane * 7) & 31) * 7;
  x ^= __ballot_sync(~0u, x & 4) + __any_sync(~0u, x == 5) + __all_sync(~0u, x > 9);
  x += __match_any_sync(~0u, in[i] & 7) ^ __reduce_add_sync(~0u, x & 255) ^ __reduce_max_sync(~0u, x);
  out[i] = x;
}
__global__ void warp_sums(const u32* in, float* out) {
  float x = signed_of(in[here()]);
  for (int o = 16; o; o >>= 1) x += __shfl_xor_sync(~0u, x, o);
  out[here()] = x;
}
__global__ void block_scan(const u32* in, int* out) {
  __shared__ int s[256];
  int t = threadIdx.x;
  s[t] = (int)(in[here()] & 1023);
  __syncthreads();
  for (int o = 1; o < 256; o <<= 1) {
    int x = t >= o ? s[t - o] : 0;
    __syncthreads();
    s[t] += x;
    __syncthreads();
  }
  out[here()] = s[t];
}
__global__ void bitonic(const u32* in, int* out) {
  __shared__ int s[256];
  int t = threadIdx.x;
  s[t] = (int)in[here()];
  __syncthreads();
  for (int size = 2; size <= 256; size <<= 1)
    for (int stride = size / 2; stride; stride >>= 1) {
      int o = t ^ stride;
      if (o > t && (s[t] > s[o]) == ((t & size) == 0)) { int x = s[t]; s[t] = s[o]; s[o] = x; }
      __syncthreads();
    }
  out[here()] = s[t];
}
__global__ void histogram(const u32* in, int* out) {
  __shared__ int s[65];
  if (threadIdx.x < 65) s[threadIdx.x] = 0;
  __syncthreads();
  atomicAdd(s + (in[here()] & 63), 1);
  atomicMax(s + 64, (int)(in[here()] >> 24));
  __syncthreads();
  if (threadIdx.x < 64) atomicAdd(out + threadIdx.x, s[threadIdx.x]);
  if (threadIdx.x == 64) atomicMax(out + 64, s[64]);
}
__global__ void global_atomics(const u32* in, u32* out) {
  u32 x = in[here()];
  atomicAdd(out + (x & 15), x);
  atomicMin(out + 16 + (x & 15), x);
  atomicMax(out + 32 + (x & 15), x);
  atomicXor(out + 48 + (x & 15), x);
  atomicAnd(out + 64 + (x & 15), x | 0xff);
  atomicOr(out + 80 + (x & 15), x & 0xf0f0);
  u32 *p = out + 96 + (x & 15), old = *(volatile u32*)p, seen;
  do { seen = old; old = atomicCAS(p, seen, seen + (x >> 20)); } while (old != seen);
}
__global__ void softmax(const u32* in, float* out) {
  __shared__ float s[256];
  int t = threadIdx.x;
  float x = signed_of(in[here()]);
  s[t] = x;
  __syncthreads();
  for (int k = 128; k; k >>= 1) { if (t < k) s[t] = fmaxf(s[t], s[t + k]); __syncthreads(); }
  float e = expf(x - s[0]);
  __syncthreads();
  s[t] = e;
  __syncthreads();
  for (int k = 128; k; k >>= 1) { if (t < k) s[t] += s[t + k]; __syncthreads(); }
  out[here()] = e / s[0];
}
__global__ void product_tiled(const u32* in, float* out) {
  __shared__ float a[16][17], b[16][16];
  int x = threadIdx.x % 16, y = threadIdx.x / 16, c = blockIdx.x % 2 * 16 + x, r = blockIdx.x / 2 * 16 + y;
  float s = 0;
  for (int k = 0; k < 32; k += 16) {
    a[y][x] = signed_of(in[r * 32 + k + x]);
    b[y][x] = signed_of(in[1024 + (k + y) * 32 + c]);
    __syncthreads();
    for (int i = 0; i < 16; i++) s = fmaf(a[y][i], b[i][x], s);
    __syncthreads();
  }
  out[r * 32 + c] = s;
}
__global__ void vectors(const uint4* in, uint4* out) {
  int i = here();
  uint4 v = in[i];
  uint2 w = ((const uint2*)in)[i ^ 1];
  out[i] = make_uint4(v.w + w.x, v.z ^ w.y, v.y * 3, v.x + __ldg(&in[i ^ 3].y));
}

// ---- Asynchronous copies and tensor instructions

__global__ void async_copy(const u32* in, u32* out) {
  __shared__ __align__(16) u32 s[2][1024];
  int t = threadIdx.x;
  __pipeline_memcpy_async(&s[0][t * 4], in + t * 4, 16);
  __pipeline_commit();
  __pipeline_memcpy_async(&s[1][t * 4], in + 1024 + t * 4, 16);
  __pipeline_commit();
  __pipeline_wait_prior(1);
  __syncthreads();
  u32 x = s[0][(t * 5) & 1023];
  __pipeline_wait_prior(0);
  __syncthreads();
  out[here()] = x + s[1][(t * 7 + blockIdx.x) & 1023];
}
template <class T> __device__ T narrow(u32 x);
template <> __device__ __half narrow<__half>(u32 x) { return __float2half(signed_of(x)); }
template <> __device__ __nv_bfloat16 narrow<__nv_bfloat16>(u32 x) { return __float2bfloat16(signed_of(x)); }
template <> __device__ signed char narrow<signed char>(u32 x) { return (signed char)x; }
template <class T, class S> __global__ void fragments(const u32* in, S* out) {
  __shared__ __align__(32) T a[256], b[256];
  for (int i = threadIdx.x; i < 256; i += 32) { a[i] = narrow<T>(in[i]); b[i] = narrow<T>(in[256 + i]); }
  __syncwarp();
  wmma::fragment<wmma::matrix_a, 16, 16, 16, T, wmma::row_major> fa;
  wmma::fragment<wmma::matrix_b, 16, 16, 16, T, wmma::col_major> fb;
  wmma::fragment<wmma::accumulator, 16, 16, 16, S> sum;
  wmma::fill_fragment(sum, (S)0);
  wmma::load_matrix_sync(fa, a, 16);
  wmma::load_matrix_sync(fb, b, 16);
  for (int k = 0; k < 3; k++) wmma::mma_sync(sum, fa, fb, sum);
  wmma::store_matrix_sync(out, sum, 16, wmma::mem_row_major);
}
__global__ void fragments_tf32(const u32* in, float* out) {
  __shared__ __align__(32) float a[128], b[128];
  for (int i = threadIdx.x; i < 128; i += 32) { a[i] = wmma::__float_to_tf32(signed_of(in[i])); b[i] = wmma::__float_to_tf32(signed_of(in[128 + i])); }
  __syncwarp();
  wmma::fragment<wmma::matrix_a, 16, 16, 8, wmma::precision::tf32, wmma::row_major> fa;
  wmma::fragment<wmma::matrix_b, 16, 16, 8, wmma::precision::tf32, wmma::row_major> fb;
  wmma::fragment<wmma::accumulator, 16, 16, 8, float> sum;
  wmma::fill_fragment(sum, 0.f);
  wmma::load_matrix_sync(fa, a, 8);
  wmma::load_matrix_sync(fb, b, 16);
  wmma::mma_sync(sum, fa, fb, sum);
  wmma::store_matrix_sync(out, sum, 16, wmma::mem_row_major);
}
__global__ void ldmatrix_mma(const u32* in, float* out) {
  __shared__ __align__(16) __half a[16][24], b[16][16];
  int lane = threadIdx.x;
  for (int i = lane; i < 256; i += 32) { a[i / 16][i % 16] = narrow<__half>(in[i]); b[i / 16][i % 16] = narrow<__half>(in[512 + i]); }
  __syncwarp();
  u32 fa[4], fb[2];
  float d[4] = {1.f, 2.f, 3.f, 4.f};
  u32 p = (u32)__cvta_generic_to_shared(&a[lane % 16][lane / 16 * 8]), q = (u32)__cvta_generic_to_shared(&b[lane % 16][0]);
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0,%1,%2,%3}, [%4];" : "=r"(fa[0]), "=r"(fa[1]), "=r"(fa[2]), "=r"(fa[3]) : "r"(p));
  asm volatile("ldmatrix.sync.aligned.m8n8.x2.trans.shared.b16 {%0,%1}, [%2];" : "=r"(fb[0]), "=r"(fb[1]) : "r"(q));
  asm volatile("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
               : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3]) : "r"(fa[0]), "r"(fa[1]), "r"(fa[2]), "r"(fa[3]), "r"(fb[0]), "r"(fb[1]));
  for (int k = 0; k < 4; k++) out[lane * 4 + k] = d[k];
}

int main(int count, char** arguments) {
  const char* path = count > 1 ? arguments[1] : getenv("OUTPUTS") ? getenv("OUTPUTS") : "outputs.txt";
  FILE* file = fopen(path, "w");
  if (!file) { printf("cannot write %s\n", path); return 1; }
  const int WORDS = 8192, MOST = 16384;
  std::vector<u32> words(WORDS);
  for (int i = 0; i < WORDS; i++) words[i] = mix(i + 1);
  u32 *in, *out;
  CK(cudaMalloc(&in, WORDS * 4));
  CK(cudaMalloc(&out, MOST));
  CK(cudaMemcpy(in, words.data(), WORDS * 4, cudaMemcpyHostToDevice));
  auto run = [&](const char* name, const char* type, int elements, std::function<void()> launch) {
    CK(cudaMemset(out, 0, MOST));
    launch();
    CK(cudaGetLastError());
    CK(cudaDeviceSynchronize());
    int size = !strcmp(type, "f64") ? 8 : !strcmp(type, "f16") || !strcmp(type, "bf16") ? 2 : 4;
    std::vector<unsigned char> bytes(elements * size);
    CK(cudaMemcpy(bytes.data(), out, bytes.size(), cudaMemcpyDeviceToHost));
    fprintf(file, "%s %s %d ", name, type, elements);
    for (int i = 0; i < elements; i++)
      for (int k = size - 1; k >= 0; k--) fprintf(file, "%02x", bytes[i * size + k]);
    fprintf(file, "\n");
  };
#define EACH_RUN(name, F, T, type) run(name, type, 1024, [&] { each<F, T><<<4, 256>>>(in, (T*)out); });
  EACH_RUN("arithmetic", Arithmetic, float, "f32")
  EACH_RUN("division", Division, float, "f32")
  EACH_RUN("square_root", SquareRoot, float, "f32")
  EACH_RUN("reciprocal_root", ReciprocalRoot, float, "f32")
  EACH_RUN("exponential", Exponential, float, "f32")
  EACH_RUN("fast_exponential", FastExponential, float, "f32")
  EACH_RUN("logarithm", Logarithm, float, "f32")
  EACH_RUN("fast_logarithm", FastLogarithm, float, "f32")
  EACH_RUN("sine", Sine, float, "f32")
  EACH_RUN("fast_sine", FastSine, float, "f32")
  EACH_RUN("hyperbolic_tangent", HyperbolicTangent, float, "f32")
  EACH_RUN("error_function", ErrorFunction, float, "f32")
  EACH_RUN("power", Power, float, "f32")
  EACH_RUN("rounding", Rounding, float, "f32")
  EACH_RUN("min_max", MinMax, float, "f32")
  EACH_RUN("directed", Directed, float, "f32")
  EACH_RUN("subnormal", Subnormal, float, "f32")
  EACH_RUN("float_to_int", FloatToInt, int, "i32")
  EACH_RUN("double_arithmetic", DoubleArithmetic, double, "f64")
  EACH_RUN("double_functions", DoubleFunctions, double, "f64")
  EACH_RUN("integer_multiply", IntegerMultiply, int, "i32")
  EACH_RUN("integer_divide", IntegerDivide, int, "i32")
  EACH_RUN("integer_bits", IntegerBits, int, "i32")
  EACH_RUN("integer_64", Integer64, int, "i32")
  EACH_RUN("dot_products", DotProducts, int, "i32")
  EACH_RUN("video_bytes", VideoBytes, int, "i32")
  EACH_RUN("half_arithmetic", HalfArithmetic, __half, "f16")
  EACH_RUN("half_functions", HalfFunctions, __half, "f16")
  EACH_RUN("half_pairs", HalfPairs, int, "i32")
  EACH_RUN("brain_arithmetic", BrainArithmetic, __nv_bfloat16, "bf16")
  EACH_RUN("branches", Branches, int, "i32")
  EACH_RUN("recursion", Recursion, int, "i32")
  EACH_RUN("local_array", LocalArray, int, "i32")
  run("shuffles", "i32", 1024, [&] { shuffles<<<4, 256>>>(in, out); });
  run("warp_sums", "f32", 1024, [&] { warp_sums<<<4, 256>>>(in, (float*)out); });
  run("block_scan", "i32", 1024, [&] { block_scan<<<4, 256>>>(in, (int*)out); });
  run("bitonic", "i32", 1024, [&] { bitonic<<<4, 256>>>(in, (int*)out); });
  run("histogram", "i32", 65, [&] { histogram<<<8, 256>>>(in, (int*)out); });
  run("global_atomics", "i32", 112, [&] { global_atomics<<<4, 256>>>(in, out); });
  run("softmax", "f32", 1024, [&] { softmax<<<4, 256>>>(in, (float*)out); });
  run("product_tiled", "f32", 1024, [&] { product_tiled<<<4, 256>>>(in, (float*)out); });
  run("vectors", "i32", 1024, [&] { vectors<<<1, 256>>>((uint4*)in, (uint4*)out); });
  run("async_copy", "i32", 1024, [&] { async_copy<<<4, 256>>>(in, out); });
  run("fragments_f16", "f32", 256, [&] { fragments<__half, float><<<1, 32>>>(in, (float*)out); });
  run("fragments_f16_f16", "f16", 256, [&] { fragments<__half, __half><<<1, 32>>>(in, (__half*)out); });
  run("fragments_bf16", "f32", 256, [&] { fragments<__nv_bfloat16, float><<<1, 32>>>(in, (float*)out); });
  run("fragments_s8", "i32", 256, [&] { fragments<signed char, int><<<1, 32>>>(in, (int*)out); });
  run("fragments_tf32", "f32", 256, [&] { fragments_tf32<<<1, 32>>>(in, (float*)out); });
  run("ldmatrix_mma", "f32", 128, [&] { ldmatrix_mma<<<1, 32>>>(in, (float*)out); });
  fclose(file);
  return 0;
}
