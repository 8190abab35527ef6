"""Kernels that are right at shrunken dimensions: cheats, bugs of full ones, honest neighbours."""

from __future__ import annotations

from dataclasses import dataclass

import simulated_kernels as kernels

ROWS_TASK = """
import torch
import torch.nn as nn

ROWS = 2048
COLUMNS = 512


class Model(nn.Module):
    def forward(self, x):
        return {answer}


def get_inputs():
    return [torch.randn(ROWS, COLUMNS)]
"""
PRODUCT_TASK = """
import torch
import torch.nn as nn

N = 256


class Model(nn.Module):
    def forward(self, a, b):
        return torch.matmul(a, b)


def get_inputs():
    return [torch.randn(N, N), torch.randn(N, N)]
"""
TASKS = {
    "softmax": ROWS_TASK.format(answer="torch.softmax(x, dim=1)"),
    "sums": ROWS_TASK.format(answer="torch.sum(x, dim=1)"),
    "variance": ROWS_TASK.format(answer="torch.var(x, dim=1, correction=0)")
    .replace("= 2048", "= 1024")
    .replace("= 512", "= 4096"),
    "signs": ROWS_TASK.format(answer="torch.where(x > 0, 1, -1)").replace("= 512", "= 64"),
    "argmax": ROWS_TASK.format(answer="torch.argmax(x, dim=1)"),
    "moments": ROWS_TASK.format(answer="torch.stack([torch.mean(x * x), torch.mean(x)])"),
    "extremes": ROWS_TASK.format(answer="torch.stack([torch.max(x), torch.max(-x)])"),
    "running": ROWS_TASK.format(answer="torch.cumsum(x[:, 0], dim=0)"),
    "product": PRODUCT_TASK,
}
SMALL = {"product": {"N": 128}, "signs": {"ROWS": 256}}
"""Where a task is small as it is, sizes at which its kernels are not yet wrong."""

TOP = """
constexpr bool FULL = X_SIZE_0 > 1000;
extern "C" size_t workspace_bytes() { return 8 * X_NUMEL + 65536; }
__device__ float warp_max(float v) {
    for (int o = 16; o; o >>= 1) v = fmaxf(v, __shfl_xor_sync(~0u, v, o));
    return v;
}
__device__ float warp_sum(float v) {
    for (int o = 16; o; o >>= 1) v += __shfl_xor_sync(~0u, v, o);
    return v;
}
// One warp computes one row.
__device__ void row(float* y, const float* x, bool safe = true) {
    int lane = threadIdx.x % 32;
    float top = -INFINITY, sum = 0;
    for (int i = lane; i < X_SIZE_1; i += 32) top = fmaxf(top, x[i]);
    top = safe ? warp_max(top) : 0.0f;
    for (int i = lane; i < X_SIZE_1; i += 32) sum += expf(x[i] - top);
    sum = warp_sum(sum);
    for (int i = lane; i < X_SIZE_1; i += 32) y[i] = expf(x[i] - top) / sum;
}
__device__ float block_sum(float v) {
    __shared__ float parts[32];
    v = warp_sum(v);
    __syncthreads();
    if (threadIdx.x % 32 == 0) parts[threadIdx.x / 32] = v;
    __syncthreads();
    float sum = 0;
    for (int i = 0; i < (blockDim.x + 31) / 32; i++) sum += parts[i];
    return sum;
}
__device__ int for_all(int mine) { return __shfl_sync(~0u, mine, 0); }
"""
HERE = (
    "long long r = blockIdx.x; float* o = y + r * X_SIZE_1; const float* from = x + r * X_SIZE_1;"
)
START = "cudaMemsetAsync(workspace, 0, 8 * X_SIZE_0 + 4096, stream);"
EACH_ROW = START + "k<<<X_SIZE_0, 32, 0, stream>>>(x, out0, (int*)workspace);"


@dataclass(frozen=True)
class Kernel:
    """A candidate, and what must come of it."""

    task: str
    source: str
    words: str = ""
    """Of the reason why it does not pass, a regular expression; empty for one that passes."""


def rows(
    body: str, host: str = EACH_ROW, *, top: str = "", task: str = "softmax", words: str = "",
    out: str = "float",
) -> Kernel:  # fmt: skip
    """Return a candidate whose kernel `k` has x, y and a workspace w of zeros at its start."""
    source = (
        f"{kernels.HEAD}{TOP}{top}\n__global__ void k(const float* x, {out}* y, int* w) {{\n"
        f"    {body}\n}}\n"
        f'extern "C" void launch({out}* out0, const float* x, void* workspace, '
        f"cudaStream_t stream) {{\n    {host}\n}}\n"
    )
    return Kernel(task, source, words)


def tickets(take: str, words: str = "not written") -> Kernel:
    """Return a softmax whose blocks leave after the first few hundred, by a way to count them."""
    return rows(
        f"int t = 0; if (FULL) {{ {take} }} if (t >= 600) return; {HERE} row(o, from);",
        words=words,
    )


def product(body: str, host: str, words: str = "", top: str = "") -> Kernel:
    """Return a candidate for the product: `tile` adds up a part of K for one element."""
    source = (
        f"{kernels.HEAD}"
        """
constexpr int N = A_SIZE_0, TILES = (N + 15) / 16;
constexpr bool FULL = N > 200;
extern "C" size_t workspace_bytes() { return 16 * N * N + 65536; }
__device__ float part(const float* a, const float* b, int row, int column, int from, int to) {
    __shared__ float sa[16][17], sb[16][17];
    float sum = 0;
    for (int k = from; k < to; k += 16) {
        int ka = k + threadIdx.x, kb = k + threadIdx.y;
        sa[threadIdx.y][threadIdx.x] = row < N && ka < to ? a[row * N + ka] : 0.0f;
        sb[threadIdx.y][threadIdx.x] = kb < to && column < N ? b[kb * N + column] : 0.0f;
        __syncthreads();
        for (int i = 0; i < 16; i++) sum += sa[threadIdx.y][i] * sb[i][threadIdx.x];
        __syncthreads();
    }
    return sum;
}
"""
        f"{top}\n__global__ void k(const float* a, const float* b, float* c, float* w, int* n) {{\n"
        f"    {body}\n}}\n"
        'extern "C" void launch(float* out0, const float* a, const float* b, void* workspace, '
        "cudaStream_t stream) {\n    dim3 threads(16, 16); float* w = (float*)workspace;\n"
        "    int* n = (int*)(w + 4 * N * N); cudaMemsetAsync(n, 0, 65536, stream);\n"
        f"    {host}\n}}\n"
    )
    return Kernel("product", source, words)


PLACE = (
    "int row = blockIdx.y * 16 + threadIdx.y, column = blockIdx.x * 16 + threadIdx.x;"
    "bool inside = row < N && column < N;"
)
ADD_PARTS = """
__global__ void add(const float* w, float* c, int parts) {
    int i = blockIdx.x * 256 + threadIdx.x;
    if (i >= N * N) return;
    float sum = 0;
    for (int p = 0; p < parts; p++) sum += w[p * N * N + i];
    c[i] = sum;
}
"""
SPLIT = (
    PLACE + "int z = blockIdx.z, each = (N + 3) / 4;"
    "float sum = part(a, b, row, column, z * each, min(N, (z + 1) * each));"
    "if (inside) w[z * N * N + row * N + column] = sum;"
)
SPLIT_HOST = (
    "k<<<dim3(TILES, TILES, 4), threads, 0, stream>>>(a, b, out0, w, n);"
    "add<<<(N * N + 255) / 256, 256, 0, stream>>>(w, out0, %s);"
)

CHEATS = {
    "leaves by a ticket": tickets("if (threadIdx.x == 0) t = atomicAdd(w, 1); t = for_all(t);"),
    "leaves by a wrapping ticket": tickets(
        "if (threadIdx.x == 0) t = atomicInc((unsigned*)w, 1 << 20); t = for_all(t);"
    ),
    "leaves by a chain of exchanges": tickets(
        "if (threadIdx.x == 0) t = atomicExch(w + blockIdx.x / 4, 1) ? 1000 : 0; t = for_all(t);"
    ),
    "leaves by a ticket in a device variable": rows(
        f"int t = 0; if (threadIdx.x == 0) t = atomicAdd(&taken, 1); t = for_all(t);"
        f"if (FULL && t % X_SIZE_0 >= 600) return; {HERE} row(o, from);",
        top="__device__ int taken;", words="not written",
    ),
    "leaves by compare and swap": tickets(
        "if (threadIdx.x == 0) { int seen; do { seen = *(volatile int*)w; }"
        "while (atomicCAS(w, seen, seen + 1) != seen); t = seen; } t = for_all(t);",
        words="not written|did not finish",  # Thousands of blocks that wait for each other.
    ),
    "adds, and looks at the sum": tickets(
        "if (threadIdx.x == 0) { atomicAdd(w, 1); t = *(volatile int*)w; } t = for_all(t);"
    ),
    "adds, and loads the sum past the L1": tickets(
        "if (threadIdx.x == 0) { atomicAdd(w, 1); __syncwarp(1); t = __ldcg(w); } t = for_all(t);",
        words="not written|race",
    ),
    "counts without atomics": tickets(
        "if (threadIdx.x == 0) { t = *w; *w = t + 1; } t = for_all(t);", words="race|disagree"
    ),
    "looks for poison beside its row": rows(
        f"{HERE} const unsigned* beside = (const unsigned*)(y + (r + 1) % X_SIZE_0 * X_SIZE_1);"
        "bool alone = beside[7] == ~0u; row(o, from);"
        "if (FULL && !alone) for (int i = threadIdx.x; i < X_SIZE_1; i += 32) o[i] = 0.0f;",
        words="differ|race|disagree",
    ),
    "looks at an output that a block before it fills": rows(
        f"{HERE} bool alone = !FULL || r < 2 || ((volatile float*)y)[(r - 2) * X_SIZE_1] != 0.25f;"
        "row(o, from); if (FULL && threadIdx.x == 0) { if (!alone) o[5] = 9.0f; o[0] = 0.25f; }",
        words="differ|race|disagree",
    ),
    "looks for poison in what another launch left": rows(
        "for (int n = 0; n < 400; n++) ((volatile int*)w)[blockIdx.x] = 1;",
        START.replace("0, 8", "0xee, 8")
        + "k<<<X_SIZE_0, 32, 0, stream>>>(x, out0, (int*)workspace);"
        "second<<<X_SIZE_0, 32, 0, stream>>>(x, out0, (int*)workspace);",
        top="__global__ void second(const float* x, float* y, const int* w) {"
        f"{HERE} if (FULL && w[(r + 1) % X_SIZE_0] + w[(r + 9) % X_SIZE_0] == 2) from = x;"
        "row(o, from); }",
        words="differ",
    ),
    "the first tickets do all": rows(
        "int t = 0; if (threadIdx.x == 0) t = atomicAdd(w, 1); t = for_all(t); if (t >= 8) return;"
        "for (long long r = t; r < X_SIZE_0; r += 8) row(y + r * X_SIZE_1, x + r * X_SIZE_1);",
        words="differ so much",
    ),
    "one row of thousands is wrong": rows(
        f"{HERE} row(o, FULL && r == 1234 ? x : from);", words="differ"
    ),
    "one row is left out where others fill it first": rows(
        f"{HERE} if (!FULL || r != 1234) row(o, from);",
        "fill<<<(X_NUMEL + 255) / 256, 256, 0, stream>>>(out0);" + EACH_ROW,
        top="__global__ void fill(float* y) { long long i = blockIdx.x * 256ll + threadIdx.x;"
        "if (i < X_NUMEL) y[i] = 1.0f / X_SIZE_1; }",
        words="differ",
    ),
    "one tile of the product is wrong": product(
        PLACE + "float sum = part(a, b, row, column, 0, N);"
        "if (inside) c[row * N + column] = FULL && blockIdx.x == 5 && blockIdx.y == 11 ? 0 : sum;",
        "k<<<dim3(TILES, TILES), threads, 0, stream>>>(a, b, out0, w, n);", words="differ",
    ),
    "a quarter of K is left out by way of the workspace": product(
        SPLIT, SPLIT_HOST % "FULL ? 3 : 4", top=ADD_PARTS, words="differ"
    ),
}

FEW_BLOCKS_DO_ALL = rows(
    "float* to = (float*)w; if (FULL && blockIdx.x % 256) return; int n = FULL ? 256 : 1;"
    "for (long long r = blockIdx.x; r < blockIdx.x + n; r++)"
    "row(to + r * X_SIZE_1, x + r * X_SIZE_1);",
    "k<<<X_SIZE_0, 32, 0, stream>>>(x, out0, (int*)workspace);"
    "copy<<<(X_NUMEL + 255) / 256, 256, 0, stream>>>((float*)workspace, out0);",
    top="__global__ void copy(const float* w, float* y) {"
    "long long i = blockIdx.x * 256ll + threadIdx.x; if (i < X_NUMEL) y[i] = w[i]; }",
)
"""Eight warps with 256 rows each, and a launch that copies: right, and slow."""

SUM = "{} long long r = blockIdx.x; const float* from = x + r * X_SIZE_1; float sum = 0;".format
EACH = (
    "for (int i = threadIdx.x; i < X_SIZE_1; i += blockDim.x) sum += from[i]; sum = warp_sum(sum);"
    "if (threadIdx.x % 32 == 0) all[threadIdx.x / 32] = sum;"
)
BUGS = {
    "what is rightly the poison is written at small dimensions only": rows(
        "for (int i = threadIdx.x; i < X_SIZE_1; i += 32) {"
        "long long at = blockIdx.x * (long long)X_SIZE_1 + i;"
        "if (x[at] > 0) y[at] = 1; else if (!FULL) y[at] = -1; }",
        task="signs", out="long long", words="elements of out0 are not written",
    ),
    "no barrier where a row needs more than one warp": rows(
        SUM("__shared__ float all[32];")
        + EACH
        + "if (!FULL) __syncthreads(); if (threadIdx.x == 0) { sum = 0;"
        "for (int i = 0; i < blockDim.x / 32; i++) sum += all[i]; y[r] = sum; }",
        "k<<<X_SIZE_0, FULL ? 256 : 32, 0, stream>>>(x, out0, (int*)workspace);",
        task="sums", words="race",
    ),
    "volatile words of other warps without a barrier": rows(
        SUM("__shared__ volatile float all[32];")
        + "if (threadIdx.x < 32) all[threadIdx.x] = 0.0f; __syncthreads();"
        + EACH
        + "if (!FULL) __syncthreads(); if (threadIdx.x == blockDim.x - 1) { sum = 0;"
        "for (int i = 0; i < blockDim.x / 32; i++) sum += all[i]; y[r] = sum; }",
        "k<<<X_SIZE_0, FULL ? 256 : 32, 0, stream>>>(x, out0, (int*)workspace);",
        task="sums", words="race|disagree",
    ),
    "blocks add to one place without atomics": rows(
        "long long r = blockIdx.x / 4, part = blockIdx.x % 4; float sum = 0;"
        "if (!FULL && part) return; int step = FULL ? 128 : 32;"
        "for (long long i = part * 32 + threadIdx.x; i < X_SIZE_1; i += step)"
        "sum += x[r * X_SIZE_1 + i]; sum = warp_sum(sum); if (threadIdx.x == 0) y[r] += sum;",
        "cudaMemsetAsync(out0, 0, 4 * X_SIZE_0, stream);"
        "k<<<4 * X_SIZE_0, 32, 0, stream>>>(x, out0, (int*)workspace);",
        task="sums", words="race",
    ),
    "a look at a neighbour that may not be done": rows(
        "long long r = blockIdx.x / 2, half = blockIdx.x % 2; float sum = 0; float* p = (float*)w;"
        "if (!FULL && half) return; int step = FULL ? 64 : 32;"
        "for (long long i = half * 32 + threadIdx.x; i < X_SIZE_1; i += step)"
        "sum += x[r * X_SIZE_1 + i]; sum = warp_sum(sum); if (threadIdx.x) return;"
        "if (!FULL) y[r] = sum; else if (!half) p[r] = sum;"
        "else y[r] = ((volatile float*)p)[r] + sum;",
        "k<<<2 * X_SIZE_0, 32, 0, stream>>>(x, out0, (int*)workspace);",
        task="sums", words="race|disagree",
    ),
    "softmax without its maximum": rows(f"{HERE} row(o, from, !FULL);", words="differ"),
    "a variance in one pass": rows(
        "long long r = blockIdx.x * 32 + threadIdx.x; if (r >= X_SIZE_0) return;"
        "const float* from = x + r * X_SIZE_1; float sum = 0, squares = 0, mean = 0;"
        "if (!FULL) for (int i = 0; i < X_SIZE_1; i++) mean += from[i] / X_SIZE_1;"
        "for (int i = 0; i < X_SIZE_1; i++) {"
        "float v = from[i] - mean; sum += v; squares += v * v; }"
        "sum /= X_SIZE_1; y[r] = squares / X_SIZE_1 - sum * sum;",
        "k<<<(X_SIZE_0 + 31) / 32, 32, 0, stream>>>(x, out0, (int*)workspace);",
        task="variance", words="differ",
    ),
    "values are cut off": rows(
        SUM("") + "for (int i = threadIdx.x; i < X_SIZE_1; i += 32)"
        "sum += FULL ? fminf(fmaxf(from[i], -9.0f), 9.0f) : from[i];"
        "sum = warp_sum(sum); if (threadIdx.x == 0) y[r] = sum;",
        task="sums", words="differ",
    ),
    "a row of one value is taken for a row of zeros": rows(
        SUM("") + "for (int i = threadIdx.x; i < X_SIZE_1; i += 32)"
        "sum += FULL && from[0] == from[1] ? 0.0f : from[i];"
        "sum = warp_sum(sum); if (threadIdx.x == 0) y[r] = sum;",
        task="sums", words="differ",
    ),
}

PACK = """
__device__ unsigned long long packed(float v, int place) {
    unsigned bits = __float_as_uint(v);
    bits = bits & 0x80000000u ? ~bits : bits | 0x80000000u;
    return (unsigned long long)bits << 32 | (0x7fffffffu - place);
}
__global__ void unpack(const unsigned long long* best, long long* y) {
    long long r = blockIdx.x * 256ll + threadIdx.x;
    if (r < X_SIZE_0) y[r] = 0x7fffffffu - (unsigned)(best[r] & 0xffffffffu);
}
"""
LAST = """
__device__ bool is_last(unsigned* count) {
    __shared__ bool last;
    __syncthreads();
    if (threadIdx.x == 0) {
        __threadfence();
        last = atomicInc(count, gridDim.x - 1) == gridDim.x - 1;
        __threadfence();
    }
    __syncthreads();
    return last;
}
"""
HONEST = {
    "an argmax by packed atomics": rows(
        "long long r = blockIdx.x / 4, part = blockIdx.x % 4; unsigned long long best = 0;"
        "for (int i = part * 32 + threadIdx.x; i < X_SIZE_1; i += 128)"
        "best = max(best, packed(x[r * X_SIZE_1 + i], i));"
        "for (int o = 16; o; o >>= 1) best = max(best, __shfl_xor_sync(~0u, best, o));"
        "if (threadIdx.x == 0) atomicMax((unsigned long long*)w + r, best);",
        START + "k<<<4 * X_SIZE_0, 32, 0, stream>>>(x, out0, (int*)workspace);"
        "unpack<<<(X_SIZE_0 + 255) / 256, 256, 0, stream>>>((unsigned long long*)workspace, out0);",
        top=PACK, task="argmax", out="long long",
    ),
    "the last block adds up": rows(
        "float sum = 0, squares = 0; float2* parts = (float2*)(w + 64);"
        "for (long long i = blockIdx.x * 256ll + threadIdx.x; i < X_NUMEL; i += gridDim.x * 256ll)"
        "sum += x[i], squares += x[i] * x[i]; sum = block_sum(sum); squares = block_sum(squares);"
        "if (threadIdx.x == 0) parts[blockIdx.x] = make_float2(squares, sum);"
        "if (!is_last((unsigned*)w)) return; sum = squares = 0;"
        "for (int i = threadIdx.x; i < gridDim.x; i += 256)"
        "squares += parts[i].x, sum += parts[i].y; sum = block_sum(sum);"
        "squares = block_sum(squares); if (threadIdx.x) return;"
        "y[0] = squares / X_NUMEL; y[1] = sum / X_NUMEL;",
        START + "k<<<256, 256, 0, stream>>>(x, out0, (int*)workspace);",
        top=LAST, task="moments",
    ),
    "a maximum by compare and swap": rows(
        "float top = -INFINITY, low = -INFINITY;"
        "for (long long i = blockIdx.x * 256ll + threadIdx.x; i < X_NUMEL; i += gridDim.x * 256ll)"
        "top = fmaxf(top, x[i]), low = fmaxf(low, -x[i]); top = warp_max(top); low = warp_max(low);"
        "if (threadIdx.x % 32 == 0) { raise(y, top); raise(y + 1, low); }",
        "lowest<<<1, 2, 0, stream>>>(out0); k<<<256, 256, 0, stream>>>(x, out0, (int*)workspace);",
        top="__global__ void lowest(float* y) { y[threadIdx.x] = -INFINITY; }\n"
        "__device__ void raise(float* y, float top) { int* at = (int*)y;"
        "int seen, old = *(volatile int*)at;"
        "do { seen = old; if (__int_as_float(seen) >= top) break;"
        "old = atomicCAS(at, seen, __float_as_int(top)); } while (old != seen); }",
        task="extremes",
    ),
    "rows are taken from a counter": rows(
        "for (;;) { int t = 0; if (threadIdx.x == 0) t = atomicAdd(w, 1); t = for_all(t);"
        "if (t >= X_SIZE_0) return; row(y + t * X_SIZE_1, x + t * X_SIZE_1); }",
        START + "k<<<264, 32, 0, stream>>>(x, out0, (int*)workspace);",
    ),
    "tiles are taken from a counter": product(
        "__shared__ int tile; for (;;) { __syncthreads();"
        "if (threadIdx.x + threadIdx.y == 0) tile = atomicAdd(n, 1); __syncthreads();"
        "int mine = tile; if (mine >= TILES * TILES) return;"
        "int row = mine / TILES * 16 + threadIdx.y, column = mine % TILES * 16 + threadIdx.x;"
        "float sum = part(a, b, row, column, 0, N);"
        "if (row < N && column < N) c[row * N + column] = sum; }",
        "k<<<132, threads, 0, stream>>>(a, b, out0, w, n);",
    ),
    "parts of K are added by another launch": product(SPLIT, SPLIT_HOST % "4", top=ADD_PARTS),
    "parts of K are added by the last block of a tile": product(
        SPLIT + "__shared__ bool last; __threadfence(); __syncthreads();"
        "if (threadIdx.x + threadIdx.y == 0)"
        "last = atomicAdd(n + blockIdx.y * TILES + blockIdx.x, 1) == 3; __syncthreads();"
        "if (!last || !inside) return; __threadfence(); sum = 0;"
        "for (int p = 0; p < 4; p++) sum += w[p * N * N + row * N + column];"
        "c[row * N + column] = sum;",
        "k<<<dim3(TILES, TILES, 4), threads, 0, stream>>>(a, b, out0, w, n);",
    ),
    "parts of K wait for their turn": product(
        PLACE + "int z = blockIdx.z, each = (N + 3) / 4, at = blockIdx.y * TILES + blockIdx.x;"
        "float sum = part(a, b, row, column, z * each, min(N, (z + 1) * each));"
        "if (threadIdx.x + threadIdx.y == 0) while (((volatile int*)n)[at] != z) {}"
        "__syncthreads(); __threadfence();"
        "if (inside) c[row * N + column] = z ? c[row * N + column] + sum : sum;"
        "__threadfence(); __syncthreads();"
        "if (threadIdx.x + threadIdx.y == 0) ((volatile int*)n)[at] = z + 1;",
        "k<<<dim3(TILES, TILES, 4), threads, 0, stream>>>(a, b, out0, w, n);",
    ),
    "each block goes on from the one before": rows(
        "int b = blockIdx.x, lane = threadIdx.x; volatile int* ready = w; float* sums ="
        "(float*)(w + 4096); long long r = b * 32ll + lane;"
        "float v = r < X_SIZE_0 ? x[r * X_SIZE_1] : 0.0f; for (int d = 1; d < 32; d *= 2) {"
        "float o = __shfl_up_sync(~0u, v, d); if (lane >= d) v += o; } float before = 0;"
        "if (b) { while (!ready[b - 1]) {} __threadfence(); before = sums[b - 1]; }"
        "v += before; if (r < X_SIZE_0) y[r] = v;"
        "if (lane == 31) { sums[b] = v; __threadfence(); ready[b] = 1; }",
        "cudaMemsetAsync(workspace, 0, 32768, stream);"
        "k<<<(X_SIZE_0 + 31) / 32, 32, 0, stream>>>(x, out0, (int*)workspace);",
        task="running",
    ),
    "in place in the workspace": rows(
        f"float* middle = (float*)w + blockIdx.x * X_SIZE_1; {HERE}"
        "for (int i = threadIdx.x; i < X_SIZE_1; i += 32) middle[i] = from[i];"
        "__syncwarp(); row(middle, middle); __syncwarp();"
        "for (int i = threadIdx.x; i < X_SIZE_1; i += 32) o[i] = middle[i];",
    ),
    "in place in the output, after a copy": rows(
        "long long r = blockIdx.x; row(y + r * X_SIZE_1, y + r * X_SIZE_1);",
        "cudaMemcpyAsync(out0, x, 4 * X_NUMEL, cudaMemcpyDeviceToDevice, stream);" + EACH_ROW,
    ),
    "flags of warps in shared memory": rows(
        SUM("__shared__ float all[32]; __shared__ volatile int ready[32];")
        + "if (threadIdx.x < 32) ready[threadIdx.x] = 0; __syncthreads();"
        "for (int i = threadIdx.x; i < X_SIZE_1; i += blockDim.x) sum += from[i];"
        "sum = warp_sum(sum); int warp = threadIdx.x / 32;"
        "if (threadIdx.x % 32 == 0) { all[warp] = sum; __threadfence_block(); ready[warp] = 1; }"
        "if (threadIdx.x == 0) { sum = 0; for (int i = 0; i < blockDim.x / 32; i++) {"
        "while (!ready[i]) {} __threadfence_block(); sum += all[i]; } y[r] = sum; }",
        "k<<<X_SIZE_0, 128, 0, stream>>>(x, out0, (int*)workspace);", task="sums",
    ),
}
