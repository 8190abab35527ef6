// Kernels of kinds that neither the 25 public probe kernels nor held_out.cu have, written without a
// look at what the time model says of them.
//
// main() launches named kernels through run(). With PROF in the environment each runs once, for
// Nsight Compute; otherwise each is timed with events, the L2 flushed between runs, and the median
// and minimum of 15 are printed as CSV.
#include <cuda_fp16.h>
#include <cuda_runtime.h>
#include <mma.h>

#include <algorithm>
#include <cmath>
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

using namespace nvcuda;
typedef unsigned int u32;

__constant__ float taps[64];

__device__ __forceinline__ float warp_sum(float x) {
  for (int o = 16; o; o >>= 1) x += __shfl_xor_sync(~0u, x, o);
  return x;
}
__device__ __forceinline__ u32 philox(u32 x, u32 key) {
  for (int i = 0; i < 7; i++) {
    u32 high = __umulhi(x, 0xD2511F53u), low = x * 0xD2511F53u;
    x = high ^ low ^ key;
    key += 0x9E3779B9u;
  }
  return x;
}

// A long filter from global memory: the same taps for all outputs.
__global__ void filter_global(const float* x, const float* f, float* y, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  float sum = 0;
  for (int k = 0; k < 64; k++) sum += f[k] * (i + k < n ? x[i + k] : 0.f);
  y[i] = sum;
}
__global__ void filter_constant(const float* x, float* y, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  float sum = 0;
#pragma unroll
  for (int k = 0; k < 64; k++) sum += taps[k] * (i + k < n ? x[i + k] : 0.f);
  y[i] = sum;
}
__global__ void filter_shared(const float* x, const float* f, float* y, int n) {
  __shared__ float s[256 + 64], t[64];
  int i = blockIdx.x * 256 + threadIdx.x;
  s[threadIdx.x] = x[i];
  if (threadIdx.x < 64) {
    s[256 + threadIdx.x] = i + 256 < n ? x[i + 256] : 0.f;
    t[threadIdx.x] = f[threadIdx.x];
  }
  __syncthreads();
  float sum = 0;
  for (int k = 0; k < 64; k++) sum += t[k] * s[threadIdx.x + k];
  y[i] = sum;
}
// Nearest of 64 centroids of 8 dimensions, in shared memory.
__global__ void nearest_centroid(const float4* x, const float* centroids, int* which, int n) {
  __shared__ float c[64 * 8];
  for (int i = threadIdx.x; i < 512; i += blockDim.x) c[i] = centroids[i];
  __syncthreads();
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  float4 a = x[2 * i], b = x[2 * i + 1];
  float best = 1e30f;
  int at = 0;
  for (int k = 0; k < 64; k++) {
    const float* q = c + 8 * k;
    float d = (a.x - q[0]) * (a.x - q[0]) + (a.y - q[1]) * (a.y - q[1]) +
              (a.z - q[2]) * (a.z - q[2]) + (a.w - q[3]) * (a.w - q[3]) +
              (b.x - q[4]) * (b.x - q[4]) + (b.y - q[5]) * (b.y - q[5]) +
              (b.z - q[6]) * (b.z - q[6]) + (b.w - q[7]) * (b.w - q[7]);
    if (d < best) best = d, at = k;
  }
  which[i] = at;
}
// A table in shared memory, looked up at random: bank conflicts by chance.
__global__ void table_lookup(const u32* x, const float* table, float* y, int n) {
  __shared__ float t[1024];
  for (int i = threadIdx.x; i < 1024; i += blockDim.x) t[i] = table[i];
  __syncthreads();
  for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += gridDim.x * blockDim.x) {
    u32 h = x[i] * 2654435761u;
    y[i] = t[h >> 22] + t[(h >> 12) & 1023] + t[(h >> 2) & 1023];
  }
}
__global__ void table_lookup_global(const u32* x, const float* table, float* y, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  u32 h = x[i] * 2654435761u;
  y[i] = table[h >> 16] + table[(h * 40503u) >> 16];
}
// An array of structures of 28 bytes, and one component of it.
struct Particle { float x, y, z, vx, vy, vz, mass; };
__global__ void structures_step(Particle* p, float dt) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  Particle q = p[i];
  q.x += dt * q.vx, q.y += dt * q.vy, q.z += dt * q.vz;
  p[i] = q;
}
__global__ void structures_mass(const Particle* p, float* out) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  out[i] = p[i].mass;
}
// Follows links: nothing but latency.
__global__ void chase_links(const int* next, int* out, int steps) {
  int at = blockIdx.x * blockDim.x + threadIdx.x;
  for (int i = 0; i < steps; i++) at = next[at];
  out[blockIdx.x * blockDim.x + threadIdx.x] = at;
}
__global__ void monte_carlo(int* hits, int samples) {
  u32 id = blockIdx.x * blockDim.x + threadIdx.x;
  int in = 0;
  for (int i = 0; i < samples; i++) {
    u32 r = philox(id * samples + i, 17u);
    float x = (r & 0xffff) * (1.f / 65536), y = (r >> 16) * (1.f / 65536);
    in += x * x + y * y < 1.f;
  }
  in = __reduce_add_sync(~0u, in);
  if (threadIdx.x % 32 == 0) atomicAdd(hits, in);
}
__global__ void dropout_gelu(const float* x, float* y, int n, float keep) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  float v = x[i], g = 0.5f * v * (1.f + erff(v * 0.70710678f));
  y[i] = philox(i, 99u) * 2.3283064e-10f < keep ? g / keep : 0.f;
}
__global__ void swiglu(const half2* gate, const half2* up, half2* y, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  float2 g = __half22float2(gate[i]), u = __half22float2(up[i]);
  g.x = g.x / (1.f + __expf(-g.x)) * u.x;
  g.y = g.y / (1.f + __expf(-g.y)) * u.y;
  y[i] = __float22half2_rn(g);
}
__global__ void rotary(float2* q, int heads, int half_dim) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  int d = i % half_dim, position = i / (half_dim * heads);
  float angle = position * exp2f(-13.287712f * d / half_dim), s, c;
  sincosf(angle, &s, &c);
  float2 v = q[i];
  q[i] = make_float2(v.x * c - v.y * s, v.x * s + v.y * c);
}
__global__ void quantize_rows(const float4* x, char4* q, float* scales, int columns4) {
  __shared__ float most[8];
  const float4* row = x + (size_t)blockIdx.x * columns4;
  float m = 0;
  for (int j = threadIdx.x; j < columns4; j += 256) {
    float4 v = row[j];
    m = fmaxf(m, fmaxf(fmaxf(fabsf(v.x), fabsf(v.y)), fmaxf(fabsf(v.z), fabsf(v.w))));
  }
  for (int o = 16; o; o >>= 1) m = fmaxf(m, __shfl_xor_sync(~0u, m, o));
  if (threadIdx.x % 32 == 0) most[threadIdx.x / 32] = m;
  __syncthreads();
  for (int w = 0; w < 8; w++) m = fmaxf(m, most[w]);
  float scale = 127.f / m;
  for (int j = threadIdx.x; j < columns4; j += 256) {
    float4 v = row[j];
    q[(size_t)blockIdx.x * columns4 + j] = make_char4(__float2int_rn(v.x * scale), __float2int_rn(v.y * scale),
                                                      __float2int_rn(v.z * scale), __float2int_rn(v.w * scale));
  }
  if (threadIdx.x == 0) scales[blockIdx.x] = m / 127.f;
}
__global__ void welford_rows(const float4* x, float2* out, int columns4) {
  int row = (blockIdx.x * blockDim.x + threadIdx.x) / 32, lane = threadIdx.x % 32;
  float mean = 0, m2 = 0, count = 0;
  for (int j = lane; j < columns4; j += 32) {
    float4 v = x[(size_t)row * columns4 + j];
    float values[4] = {v.x, v.y, v.z, v.w};
#pragma unroll
    for (int k = 0; k < 4; k++) {
      count += 1;
      float d = values[k] - mean;
      mean += d / count;
      m2 += d * (values[k] - mean);
    }
  }
  for (int o = 16; o; o >>= 1) {
    float other = __shfl_xor_sync(~0u, mean, o), other2 = __shfl_xor_sync(~0u, m2, o);
    float d = other - mean;
    mean = 0.5f * (mean + other);
    m2 += other2 + d * d * count * 0.5f;
    count *= 2;
  }
  if (lane == 0) out[row] = make_float2(mean, m2 / count);
}
// A radix-2 transform of 1024 points in shared memory, a block each.
__global__ void fourier_1024(const float2* x, float2* y) {
  __shared__ float2 s[1024];
  int t = threadIdx.x;
  for (int k = t; k < 1024; k += 256) s[__brev(k) >> 22] = x[blockIdx.x * 1024 + k];
  __syncthreads();
  for (int half = 1; half < 1024; half *= 2) {
    for (int k = t; k < 512; k += 256) {
      int j = k & (half - 1), at = 2 * k - j;
      float sn, cs;
      __sincosf(-3.14159265f * j / half, &sn, &cs);
      float2 a = s[at], b = s[at + half];
      float2 w = make_float2(b.x * cs - b.y * sn, b.x * sn + b.y * cs);
      s[at] = make_float2(a.x + w.x, a.y + w.y);
      s[at + half] = make_float2(a.x - w.x, a.y - w.y);
    }
    __syncthreads();
  }
  for (int k = t; k < 1024; k += 256) y[blockIdx.x * 1024 + k] = s[k];
}
// Cholesky factors of 32 x 32 matrices, a warp each, columns in registers.
__global__ void cholesky_32(const float* a, float* l) {
  int warp = (blockIdx.x * blockDim.x + threadIdx.x) / 32, lane = threadIdx.x % 32;
  float row[32];
#pragma unroll
  for (int j = 0; j < 32; j++) row[j] = a[warp * 1024 + j * 32 + lane] + (j == lane ? 64.f : 0.f);
#pragma unroll
  for (int k = 0; k < 32; k++) {
    float pivot = rsqrtf(__shfl_sync(~0u, row[k], k));
    row[k] *= pivot;
#pragma unroll
    for (int j = k + 1; j < 32; j++) row[j] -= row[k] * __shfl_sync(~0u, row[k], j);
  }
#pragma unroll
  for (int j = 0; j < 32; j++) l[warp * 1024 + j * 32 + lane] = j <= lane ? row[j] : 0.f;
}
__global__ void resize_bilinear(const float* x, float* y, int h, int w, int oh, int ow) {
  int ox = blockIdx.x * blockDim.x + threadIdx.x, oy = blockIdx.y * blockDim.y + threadIdx.y;
  float fy = (oy + 0.5f) * h / oh - 0.5f, fx = (ox + 0.5f) * w / ow - 0.5f;
  int y0 = max(0, (int)floorf(fy)), x0 = max(0, (int)floorf(fx));
  int y1 = min(h - 1, y0 + 1), x1 = min(w - 1, x0 + 1);
  float dy = fminf(fmaxf(fy - y0, 0.f), 1.f), dx = fminf(fmaxf(fx - x0, 0.f), 1.f);
  float top = x[y0 * w + x0] * (1 - dx) + x[y0 * w + x1] * dx;
  float low = x[y1 * w + x0] * (1 - dx) + x[y1 * w + x1] * dx;
  y[oy * ow + ox] = top * (1 - dy) + low * dy;
}
__global__ void life(const unsigned char* a, unsigned char* b, int w) {
  int x = blockIdx.x * blockDim.x + threadIdx.x, y = blockIdx.y * blockDim.y + threadIdx.y;
  int left = (x + w - 1) % w, right = (x + 1) % w, up = (y + w - 1) % w, down = (y + 1) % w;
  int n = a[up * w + left] + a[up * w + x] + a[up * w + right] + a[y * w + left] +
          a[y * w + right] + a[down * w + left] + a[down * w + x] + a[down * w + right];
  b[y * w + x] = n == 3 || (n == 2 && a[y * w + x]);
}
__global__ void blur_columns(const float* x, float* y, int w, int h) {
  __shared__ float s[48][32];
  int col = blockIdx.x * 32 + threadIdx.x, top = blockIdx.y * 32;
  for (int r = threadIdx.y; r < 48; r += 8) s[r][threadIdx.x] = x[min(h - 1, max(0, top + r - 8)) * w + col];
  __syncthreads();
  for (int r = threadIdx.y; r < 32; r += 8) {
    float sum = 0;
#pragma unroll
    for (int k = 0; k < 17; k++) sum += taps[k] * s[r + k][threadIdx.x];
    y[(top + r) * w + col] = sum;
  }
}
__global__ void hamming(const uint4* a, const uint4* b, int* out, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  uint4 x = a[i], y = b[i];
  out[i] = __popc(x.x ^ y.x) + __popc(x.y ^ y.y) + __popc(x.z ^ y.z) + __popc(x.w ^ y.w);
}
__global__ void spmv_ell(const int* columns, const float* values, const float* x, float* y, int rows, int width) {
  int row = blockIdx.x * blockDim.x + threadIdx.x;
  float sum = 0;
  for (int k = 0; k < width; k++) sum += values[k * rows + row] * x[columns[k * rows + row]];
  y[row] = sum;
}
__device__ void atomic_max_float(float* at, float v) {
  int old = __float_as_int(*at);
  while (v > __int_as_float(old)) {
    int seen = atomicCAS((int*)at, old, __float_as_int(v));
    if (seen == old) break;
    old = seen;
  }
}
__global__ void max_by_swapping(const float* x, float* out, int n) {
  float m = -1e30f;
  for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += gridDim.x * blockDim.x) m = fmaxf(m, x[i]);
  for (int o = 16; o; o >>= 1) m = fmaxf(m, __shfl_xor_sync(~0u, m, o));
  if (threadIdx.x % 32 == 0) atomic_max_float(out, m);
}
__global__ void aggregated_histogram(const u32* x, int* bins, int n) {
  for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += gridDim.x * blockDim.x) {
    u32 bin = (x[i] * 2654435761u) >> 29;
    u32 peers = __match_any_sync(~0u, bin);
    if ((int)(threadIdx.x % 32) == __ffs(peers) - 1) atomicAdd(bins + bin, __popc(peers));
  }
}
__global__ void digit_counts(const u32* x, int* counts, int n, int shift) {
  __shared__ int c[16][8];
  if (threadIdx.x < 128) c[threadIdx.x / 8][threadIdx.x % 8] = 0;
  __syncthreads();
  int warp = threadIdx.x / 32;
  for (int i = blockIdx.x * 1024 + threadIdx.x; i < min(n, (int)(blockIdx.x + 1) * 1024); i += 256)
    atomicAdd(&c[((x[i] * 2654435761u) >> shift) & 15][warp], 1);
  __syncthreads();
  if (threadIdx.x < 16) {
    int sum = 0;
    for (int w = 0; w < 8; w++) sum += c[threadIdx.x][w];
    counts[threadIdx.x * gridDim.x + blockIdx.x] = sum;
  }
}
// A^T B with both operands read along rows; vector loads, two stages in registers.
__global__ void product_transposed(const float* A, const float* B, float* C, int N) {
  __shared__ float as[2][8][128], bs[2][8][128];
  int t = threadIdx.x, tx = t % 16, ty = t / 16, bx = blockIdx.x * 128, by = blockIdx.y * 128;
  int r = t / 32, c4 = t % 32 * 4;
  float acc[8][8] = {};
  float4 fa = *(const float4*)(A + r * N + by + c4), fb = *(const float4*)(B + r * N + bx + c4);
  for (int k = 0, stage = 0; k < N; k += 8, stage ^= 1) {
    *(float4*)&as[stage][r][c4] = fa;
    *(float4*)&bs[stage][r][c4] = fb;
    __syncthreads();
    if (k + 8 < N) {
      fa = *(const float4*)(A + (k + 8 + r) * N + by + c4);
      fb = *(const float4*)(B + (k + 8 + r) * N + bx + c4);
    }
#pragma unroll
    for (int i = 0; i < 8; i++) {
      float a[8], b[8];
      *(float4*)a = *(float4*)&as[stage][i][ty * 4];
      *(float4*)(a + 4) = *(float4*)&as[stage][i][64 + ty * 4];
      *(float4*)b = *(float4*)&bs[stage][i][tx * 4];
      *(float4*)(b + 4) = *(float4*)&bs[stage][i][64 + tx * 4];
#pragma unroll
      for (int p = 0; p < 8; p++)
#pragma unroll
        for (int q = 0; q < 8; q++) acc[p][q] += a[p] * b[q];
    }
  }
#pragma unroll
  for (int p = 0; p < 8; p++)
#pragma unroll
    for (int q = 0; q < 8; q += 4)
      *(float4*)(C + (by + p / 4 * 64 + ty * 4 + p % 4) * N + bx + q / 4 * 64 + tx * 4) =
          make_float4(acc[p][q], acc[p][q + 1], acc[p][q + 2], acc[p][q + 3]);
}
__global__ void product_double(const double* A, const double* B, double* C, int N) {
  __shared__ double as[16][17], bs[16][17];
  int tx = threadIdx.x, ty = threadIdx.y, row = blockIdx.y * 16 + ty, col = blockIdx.x * 16 + tx;
  double sum = 0;
  for (int k = 0; k < N; k += 16) {
    as[ty][tx] = A[row * N + k + tx];
    bs[ty][tx] = B[(k + ty) * N + col];
    __syncthreads();
    for (int i = 0; i < 16; i++) sum += as[ty][i] * bs[i][tx];
    __syncthreads();
  }
  C[row * N + col] = sum;
}
// mma.sync on TF32, fragments straight from shared memory, one or two blocks to an SM.
template <int WARPS_M> __global__ void product_tf32(const float* A, const float* B, float* C, int N) {
  constexpr int BM = WARPS_M * 32, BN = 128, BK = 16;
  __shared__ float as[BM][BK + 4], bs[BK][BN + 8];
  int t = threadIdx.x, warp = t / 32, lane = t % 32, wm = warp / 2 * 32, wn = warp % 2 * 64;
  int by = blockIdx.y * BM, bx = blockIdx.x * BN, threads = WARPS_M * 64;
  float acc[2][8][4] = {};
  for (int k = 0; k < N; k += BK) {
    for (int i = t; i < BM * BK / 4; i += threads)
      *(float4*)&as[i / 4][i % 4 * 4] = *(const float4*)(A + (by + i / 4) * N + k + i % 4 * 4);
    for (int i = t; i < BK * BN / 4; i += threads)
      *(float4*)&bs[i / 32][i % 32 * 4] = *(const float4*)(B + (k + i / 32) * N + bx + i % 32 * 4);
    __syncthreads();
#pragma unroll
    for (int kk = 0; kk < BK; kk += 8) {
      u32 a[2][4], b[8][2];
#pragma unroll
      for (int m = 0; m < 2; m++) {
        int r = wm + m * 16 + lane / 4, c = kk + lane % 4;
        a[m][0] = __float_as_uint(as[r][c]), a[m][1] = __float_as_uint(as[r + 8][c]);
        a[m][2] = __float_as_uint(as[r][c + 4]), a[m][3] = __float_as_uint(as[r + 8][c + 4]);
      }
#pragma unroll
      for (int n = 0; n < 8; n++) {
        int c = wn + n * 8 + lane / 4;
        b[n][0] = __float_as_uint(bs[kk + lane % 4][c]), b[n][1] = __float_as_uint(bs[kk + lane % 4 + 4][c]);
      }
#pragma unroll
      for (int m = 0; m < 2; m++)
#pragma unroll
        for (int n = 0; n < 8; n++)
          asm volatile(
              "mma.sync.aligned.m16n8k8.row.col.f32.tf32.tf32.f32 {%0,%1,%2,%3},{%4,%5,%6,%7},{%8,%9},{%0,%1,%2,%3};"
              : "+f"(acc[m][n][0]), "+f"(acc[m][n][1]), "+f"(acc[m][n][2]), "+f"(acc[m][n][3])
              : "r"(a[m][0]), "r"(a[m][1]), "r"(a[m][2]), "r"(a[m][3]), "r"(b[n][0]), "r"(b[n][1]));
    }
    __syncthreads();
  }
  for (int m = 0; m < 2; m++)
    for (int n = 0; n < 8; n++)
      for (int h = 0; h < 2; h++)
        *(float2*)(C + (by + wm + m * 16 + lane / 4 + 8 * h) * N + bx + wn + n * 8 + lane % 4 * 2) =
            make_float2(acc[m][n][2 * h], acc[m][n][2 * h + 1]);
}
__global__ void product_wmma_tf32(const float* A, const float* B, float* C, int N) {
  int w = (blockIdx.x * blockDim.x + threadIdx.x) / 32, tn = w % (N / 16), tm = w / (N / 16);
  wmma::fragment<wmma::matrix_a, 16, 16, 8, wmma::precision::tf32, wmma::row_major> a;
  wmma::fragment<wmma::matrix_b, 16, 16, 8, wmma::precision::tf32, wmma::row_major> b;
  wmma::fragment<wmma::accumulator, 16, 16, 8, float> c;
  wmma::fill_fragment(c, 0.f);
  for (int k = 0; k < N; k += 8) {
    wmma::load_matrix_sync(a, A + tm * 16 * N + k, N);
    wmma::load_matrix_sync(b, B + k * N + tn * 16, N);
    wmma::mma_sync(c, a, b, c);
  }
  wmma::store_matrix_sync(C + tm * 16 * N + tn * 16, c, N, wmma::mem_row_major);
}
// Attention over tiles with running maximum and sum; a thread keeps one query of 32 dimensions.
__global__ void attention_online(const float* q, const float* k, const float* v, float* o, int length) {
  __shared__ float ks[32][32], vs[32][32];
  int t = threadIdx.x, head = blockIdx.y, row = blockIdx.x * 128 + t;
  const size_t base = (size_t)head * length * 32;
  float query[32], out[32] = {}, most = -1e30f, total = 0;
#pragma unroll
  for (int d = 0; d < 32; d++) query[d] = q[base + row * 32 + d] * 0.17677669f;
  for (int tile = 0; tile < length; tile += 32) {
    for (int i = t; i < 1024; i += 128) {
      ks[i / 32][i % 32] = k[base + tile * 32 + i];
      vs[i / 32][i % 32] = v[base + tile * 32 + i];
    }
    __syncthreads();
    for (int j = 0; j < 32; j++) {
      float score = 0;
#pragma unroll
      for (int d = 0; d < 32; d++) score += query[d] * ks[j][d];
      float m = fmaxf(most, score), scale = __expf(most - m), p = __expf(score - m);
      total = total * scale + p;
      most = m;
#pragma unroll
      for (int d = 0; d < 32; d++) out[d] = out[d] * scale + p * vs[j][d];
    }
    __syncthreads();
  }
#pragma unroll
  for (int d = 0; d < 32; d++) o[base + row * 32 + d] = out[d] / total;
}
__global__ void cumulative_rows(const float* x, float* y, int columns) {
  __shared__ float carry[9];
  int t = threadIdx.x, lane = t % 32, warp = t / 32;
  if (t == 0) carry[8] = 0;
  __syncthreads();
  for (int base = 0; base < columns; base += 256) {
    float v = x[(size_t)blockIdx.x * columns + base + t];
    for (int o = 1; o < 32; o *= 2) {
      float u = __shfl_up_sync(~0u, v, o);
      if (lane >= o) v += u;
    }
    if (lane == 31) carry[warp] = v;
    __syncthreads();
    float before = carry[8];
    for (int w = 0; w < warp; w++) before += carry[w];
    y[(size_t)blockIdx.x * columns + base + t] = v + before;
    __syncthreads();
    if (t == 255) carry[8] = before + v;
    __syncthreads();
  }
}
__global__ void reversed(const float* x, float* y, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  y[n - 1 - i] = x[i];
}
__global__ void stride_load(const float* x, float* y, int n, int stride) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  y[i] = x[(size_t)i * stride % n];
}
__global__ void complex_multiply(const double2* a, const double2* b, double2* c, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  double2 x = a[i], y = b[i];
  c[i] = make_double2(x.x * y.x - x.y * y.y, x.x * y.y + x.y * y.x);
}
__global__ void newton_double(const double* x, double* y, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  double v = fabs(x[i]) + 1.0, r = v;
  for (int k = 0; k < 12; k++) r = 0.5 * (r + v / r);
  y[i] = r;
}
__global__ void branchy_states(const u32* x, float* y, int n, int rounds) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  u32 s = x[i] * 2654435761u;
  float v = 0;
  for (int k = 0; k < rounds; k++) {
    switch (s >> 30) {
      case 0: v += sinf(v); break;
      case 1: v = sqrtf(v * v + 1.f); break;
      case 2: v = v * 0.5f + (float)(s & 255); break;
      default: v = __fdividef(v, 1.f + v * v);
    }
    s = s * 1664525u + 1013904223u;
  }
  y[i] = v;
}
__global__ void one_block_sum(const float* x, float* out, int n) {
  __shared__ float s[32];
  float sum = 0;
  for (int i = threadIdx.x; i < n; i += 1024) sum += x[i];
  sum = warp_sum(sum);
  if (threadIdx.x % 32 == 0) s[threadIdx.x / 32] = sum;
  __syncthreads();
  if (threadIdx.x < 32) {
    sum = warp_sum(s[threadIdx.x]);
    if (threadIdx.x == 0) *out = sum;
  }
}
// The outer product of two vectors, added to a matrix: one operand is the same for a whole row.
__global__ void rank_one(float* a, const float* u, const float* v, int n, int rows) {
  int col = blockIdx.x * blockDim.x + threadIdx.x;
  for (int r = blockIdx.y * rows; r < (blockIdx.y + 1) * rows; r++) a[(size_t)r * n + col] += u[r] * v[col];
}
__global__ void power_iteration(const float* x, const float* scale, float* y, int n, int rounds) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  float v = x[i];
  for (int k = 0; k < rounds; k++) v = v * scale[0] + scale[1];
  y[i] = v;
}
__global__ void adam(float* p, const float* g, float* m, float* v, int n, float rate) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  float gi = g[i], mi = 0.9f * m[i] + 0.1f * gi, vi = 0.999f * v[i] + 0.001f * gi * gi;
  m[i] = mi, v[i] = vi;
  p[i] -= rate * mi / (sqrtf(vi) + 1e-8f);
}

int main() {
  size_t n = 1 << 26;
  float *a, *b, *c, *d;
  CK(cudaMalloc(&a, n * 4)); CK(cudaMalloc(&b, n * 4)); CK(cudaMalloc(&c, n * 4)); CK(cudaMalloc(&d, n * 4));
  std::vector<float> h(n);
  u32 state = 12345;
  for (auto& x : h) { state = state * 1664525u + 1013904223u; x = (state >> 8) * (1.f / 16777216) - 0.5f; }
  CK(cudaMemcpy(a, h.data(), n * 4, cudaMemcpyHostToDevice));
  CK(cudaMemcpy(b, h.data(), n * 4, cudaMemcpyHostToDevice));
  CK(cudaMemset(d, 0, n * 4));
  CK(cudaMemcpyToSymbol(taps, h.data(), 64 * 4));
  std::vector<int> links(1 << 24), columns(1 << 24);
  for (int i = 0; i < 1 << 24; i++) links[i] = (int)((i * 1103515245ull + 12345) & ((1 << 24) - 1));
  for (int i = 0; i < 1 << 24; i++) columns[i] = (int)((i * 2654435761ull >> 7) & ((1 << 20) - 1));
  int *next, *cols, *ints;
  CK(cudaMalloc(&next, links.size() * 4)); CK(cudaMalloc(&cols, columns.size() * 4)); CK(cudaMalloc(&ints, 64 << 20));
  CK(cudaMemcpy(next, links.data(), links.size() * 4, cudaMemcpyHostToDevice));
  CK(cudaMemcpy(cols, columns.data(), columns.size() * 4, cudaMemcpyHostToDevice));
  CK(cudaMemset(ints, 0, 64 << 20));
  std::vector<u32> mixed(1 << 24);
  for (auto& x : mixed) { state = state * 1664525u + 1013904223u; x = state >> 3; }
  u32* words;
  CK(cudaMalloc(&words, mixed.size() * 4));
  CK(cudaMemcpy(words, mixed.data(), mixed.size() * 4, cudaMemcpyHostToDevice));
  double *da, *dc;
  CK(cudaMalloc(&da, 1 << 27)); CK(cudaMalloc(&dc, 1 << 27));
  std::vector<double> hd(1 << 24);
  for (size_t i = 0; i < hd.size(); i++) hd[i] = h[i];
  CK(cudaMemcpy(da, hd.data(), 1 << 27, cudaMemcpyHostToDevice));
  char* flush;
  CK(cudaMalloc(&flush, 256 << 20));
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
  const int N = 1 << 24;
  run("filter_global", [&] { filter_global<<<N / 256, 256>>>(a, b, c, N); });
  run("filter_constant", [&] { filter_constant<<<N / 256, 256>>>(a, c, N); });
  run("filter_shared", [&] { filter_shared<<<N / 256, 256>>>(a, b, c, N); });
  run("nearest_centroid", [&] { nearest_centroid<<<(1 << 22) / 256, 256>>>((float4*)a, b, ints, 1 << 22); });
  run("table_lookup", [&] { table_lookup<<<1056, 256>>>(words, b, c, N); });
  run("table_lookup_global", [&] { table_lookup_global<<<N / 256, 256>>>(words, b, c, N); });
  run("structures_step", [&] { structures_step<<<(1 << 21) / 256, 256>>>((Particle*)a, 0.001f); });
  run("structures_mass", [&] { structures_mass<<<(1 << 21) / 256, 256>>>((Particle*)a, c); });
  run("chase_links", [&] { chase_links<<<264, 128>>>(next, ints, 256); });
  run("monte_carlo", [&] { monte_carlo<<<2048, 256>>>(ints, 256); });
  run("dropout_gelu", [&] { dropout_gelu<<<N / 256, 256>>>(a, c, N, 0.9f); });
  run("swiglu", [&] { swiglu<<<N / 256, 256>>>((half2*)a, (half2*)b, (half2*)c, N); });
  run("rotary", [&] { rotary<<<(1 << 23) / 256, 256>>>((float2*)c, 32, 64); });
  run("quantize_rows", [&] { quantize_rows<<<4096, 256>>>((float4*)a, (char4*)c, d, 1024); });
  run("welford_rows", [&] { welford_rows<<<8192 / 8, 256>>>((float4*)a, (float2*)c, 512); });
  run("fourier_1024", [&] { fourier_1024<<<8192, 256>>>((float2*)a, (float2*)c); });
  run("cholesky_32", [&] { cholesky_32<<<8192 / 4, 128>>>(a, c); });
  run("resize_bilinear", [&] { resize_bilinear<<<dim3(4096 / 32, 4096 / 8), dim3(32, 8)>>>(a, c, 3000, 3000, 4096, 4096); });
  run("life", [&] { life<<<dim3(8192 / 64, 8192 / 4), dim3(64, 4)>>>((unsigned char*)a, (unsigned char*)c, 8192); });
  run("blur_columns", [&] { blur_columns<<<dim3(4096 / 32, 4096 / 32), dim3(32, 8)>>>(a, c, 4096, 4096); });
  run("hamming", [&] { hamming<<<(1 << 22) / 256, 256>>>((uint4*)a, (uint4*)b, ints, 1 << 22); });
  run("spmv_ell", [&] { spmv_ell<<<(1 << 19) / 128, 128>>>(cols, a, b, c, 1 << 19, 24); });
  run("max_by_swapping", [&] { max_by_swapping<<<528, 256>>>(a, d, N); });
  run("aggregated_histogram", [&] { aggregated_histogram<<<1056, 256>>>(words, ints, N); });
  run("digit_counts", [&] { digit_counts<<<N / 1024, 256>>>(words, ints, N, 8); });
  run("product_transposed", [&] { product_transposed<<<dim3(16, 16), 256>>>(a, b, c, 2048); });
  run("product_double", [&] { product_double<<<dim3(64, 64), dim3(16, 16)>>>(da, da, dc, 1024); });
  run("product_tf32_128", [&] { product_tf32<4><<<dim3(16, 16), 256>>>(a, b, c, 2048); });
  run("product_tf32_64", [&] { product_tf32<2><<<dim3(16, 32), 128>>>(a, b, c, 2048); });
  run("product_wmma_tf32", [&] { product_wmma_tf32<<<128 * 128 / 8, 256>>>(a, b, c, 2048); });
  run("attention_online", [&] { attention_online<<<dim3(1024 / 128, 64), 128>>>(a, b, a, c, 1024); });
  run("cumulative_rows", [&] { cumulative_rows<<<4096, 256>>>(a, c, 4096); });
  run("reversed", [&] { reversed<<<N / 256, 256>>>(a, c, N); });
  run("stride_load_4", [&] { stride_load<<<N / 256, 256>>>(a, c, n, 4); });
  run("stride_load_33", [&] { stride_load<<<N / 256, 256>>>(a, c, n, 33); });
  run("complex_multiply", [&] { complex_multiply<<<(1 << 22) / 256, 256>>>((double2*)da, (double2*)da, (double2*)dc, 1 << 22); });
  run("newton_double", [&] { newton_double<<<(1 << 21) / 256, 256>>>(da, dc, 1 << 21); });
  run("branchy_states", [&] { branchy_states<<<4096, 256>>>(words, c, 1 << 20, 64); });
  run("one_block_sum", [&] { one_block_sum<<<1, 1024>>>(a, d, 1 << 20); });
  run("rank_one", [&] { rank_one<<<dim3(32, 128), 256>>>(c, a, b, 8192, 64); });
  run("power_iteration", [&] { power_iteration<<<(1 << 22) / 256, 256>>>(a, b, c, 1 << 22, 512); });
  run("adam", [&] { adam<<<N / 256, 256>>>(c, a, d, b, N, 0.001f); });
  return 0;
}
