"""Tasks and kernels for the tests of the simulated device: right, and wrong of each kind."""

SCALE_TASK = """
import torch
import torch.nn as nn

N = 4194304


class Model(nn.Module):
    def forward(self, x):
        return x * 2.0 + 1.0


def get_inputs():
    return [torch.randn(N)]


def get_init_inputs():
    return []
"""

HEAD = '#include "task.cuh"\n'
LAUNCH = (
    'extern "C" void launch(float* out0, const float* x, void* workspace, cudaStream_t stream) {'
)

SCALE = (
    HEAD
    + """
__global__ void scale(const float* x, float* y, long long n) {
    long long i = blockIdx.x * (long long)blockDim.x + threadIdx.x;
    if (i < n) y[i] = x[i] * 2.0f + 1.0f;
}
"""
    + LAUNCH
    + """
    scale<<<(X_NUMEL + 255) / 256, 256, 0, stream>>>(x, out0, X_NUMEL);
}
"""
)

SCALE_WARP_BLOCKS = SCALE.replace("+ 255) / 256, 256", "+ 31) / 32, 32")

SCALE_VECTOR = (
    HEAD
    + """
__global__ void scale(const float4* x, float4* y, long long n) {
    long long i = blockIdx.x * (long long)blockDim.x + threadIdx.x;
    if (i < n) {
        float4 v = x[i];
        y[i] = make_float4(v.x * 2.f + 1.f, v.y * 2.f + 1.f, v.z * 2.f + 1.f, v.w * 2.f + 1.f);
    }
}
"""
    + LAUNCH
    + """
    static_assert(X_NUMEL % 4 == 0, "whole vectors");
    scale<<<(X_NUMEL / 4 + 255) / 256, 256, 0, stream>>>((const float4*)x, (float4*)out0,
                                                        X_NUMEL / 4);
}
"""
)

WORKSPACE_AND_TWO_LAUNCHES = (
    HEAD
    + """
__constant__ float factors[2];
__global__ void first(const float* x, float* y, long long n) {
    long long i = blockIdx.x * (long long)blockDim.x + threadIdx.x;
    if (i < n) y[i] = x[i] * factors[0];
}
__global__ void second(const float* x, float* y, long long n) {
    extern __shared__ float tile[];
    long long i = blockIdx.x * (long long)blockDim.x + threadIdx.x;
    tile[threadIdx.x] = i < n ? x[i] : 0.f;
    __syncthreads();
    if (i < n) y[i] = tile[threadIdx.x] + factors[1];
}
extern "C" size_t workspace_bytes() { return X_NUMEL * sizeof(float); }
"""
    + LAUNCH
    + """
    static const float values[2] = {2.f, 1.f};
    float* middle = (float*)workspace;
    cudaMemcpyToSymbolAsync(factors, values, sizeof values, 0, cudaMemcpyHostToDevice, stream);
    cudaMemsetAsync(middle, 0, X_NUMEL * sizeof(float), stream);
    cudaFuncSetAttribute(second, cudaFuncAttributeMaxDynamicSharedMemorySize, 65536);
    first<<<(X_NUMEL + 255) / 256, 256, 0, stream>>>(x, middle, X_NUMEL);
    second<<<(X_NUMEL + 255) / 256, 256, 65536, stream>>>(middle, out0, X_NUMEL);
}
"""
)


def scale_with(
    body: str,
    call: str = "scale<<<(X_NUMEL + 255) / 256, 256, 0, stream>>>(x, out0, X_NUMEL);",
    before: str = "",
) -> str:
    """Return a scale kernel with another body, host code and declarations."""
    return (
        HEAD + before + "\n__global__ void scale(const float* x, float* y, long long n) {\n"
        "    long long i = blockIdx.x * (long long)blockDim.x + threadIdx.x;\n    "
        + body + "\n}\n" + LAUNCH + "\n    " + call + "\n}\n"
    )  # fmt: skip


RIGHT = "if (i < n) y[i] = x[i] * 2.0f + 1.0f;"
RUN = "scale<<<(X_NUMEL + 255) / 256, 256, 0, stream>>>(x, out0, X_NUMEL);"
REVERSE = """
    __shared__ float tile[256];
    if (i < n) tile[255 - threadIdx.x] = x[i];
    {barrier}
    if (i < n) y[i] = tile[255 - threadIdx.x] * 2.0f + 1.0f;
"""

WRONG: dict[str, tuple[str, str, tuple[str, ...]]] = {
    # name: (source, outcome, words that the reason must hold)
    "does not compile": (
        scale_with("y[i] = undeclared;"),
        "compile_error",
        ("line 5", "undeclared"),
    ),
    "no launch": (HEAD + "__global__ void k() {}\n", "compile_error", ("launch",)),
    "getenv": (
        scale_with(RIGHT, 'if (!getenv("HOME")) return; ' + RUN, "#include <cstdlib>"),
        "forbidden",
        ("getenv",),
    ),
    "fopen": (
        scale_with(RIGHT, 'fopen("/etc/passwd", "r"); ' + RUN, "#include <cstdio>"),
        "forbidden",
        ("fopen",),
    ),
    "cudaMalloc": (
        scale_with(RIGHT, "void* p; cudaMalloc(&p, 16); " + RUN),
        "forbidden",
        ("cudaMalloc",),
    ),
    "exit": (
        scale_with(RIGHT, "exit(0); " + RUN, "#include <cstdlib>"),
        "crashed",
        ("status 0", "launch"),
    ),
    "thread": (
        scale_with(
            RIGHT, "pthread_t t; pthread_create(&t, 0, 0, 0); " + RUN, "#include <pthread.h>"
        ),
        "forbidden",
        ("pthread_create",),
    ),
    "another stream": (
        scale_with(RIGHT, RUN.replace("stream>>>", "0>>>")),
        "forbidden",
        ("default stream",),
    ),
    "abort": (scale_with(RIGHT, "__builtin_abort();"), "crashed", ("SIGABRT",)),
    "null dereference": (
        scale_with(RIGHT, "*(volatile int*)8 = 1; " + RUN),
        "crashed",
        ("SIGSEGV",),
    ),
    "host touches device": (
        scale_with(RIGHT, RUN + " ((volatile float*)out0)[0] = 1.f;"),
        "crashed",
        ("device memory",),
    ),
    "too many threads": (
        scale_with(RIGHT, "scale<<<(X_NUMEL + 2047) / 2048, 2048, 0, stream>>>(x, out0, X_NUMEL);"),
        "crashed",
        ("invalid launch", "scale", "2048"),
    ),
    "too much shared memory": (
        scale_with(
            RIGHT, "scale<<<(X_NUMEL + 255) / 256, 256, 50000, stream>>>(x, out0, X_NUMEL);"
        ),
        "crashed",
        ("shared", "50000", "scale"),
    ),
    "endless device loop": (
        scale_with("while (((volatile float*)y)[0] != 42.f) { } " + RIGHT),
        "timed_out",
        ("scale",),
    ),
    "read out of bounds": (
        scale_with("if (i < n) y[i] = x[i + 1] * 0.f + x[i] * 2.0f + 1.0f;"),
        "out_of_bounds",
        ("line 5", "past the end", "x"),
    ),
    "write out of bounds": (
        scale_with(RIGHT + " if (i == n - 1) y[n] = 0.f;"),
        "out_of_bounds",
        ("line 5", "out0"),
    ),
    "memset past the end": (
        scale_with(RIGHT, "cudaMemsetAsync(out0, 0, X_NUMEL * 4 + 64, stream); " + RUN),
        "out_of_bounds",
        ("cudaMemsetAsync",),
    ),
    "misaligned": (
        scale_with(
            "if (i + 2 < n) { float2 v = __ldcg((const float2*)(x + i)); "
            "y[i] = x[i] * 2.0f + 1.0f + 0.f * (v.x + v.y); } else " + RIGHT
        ),
        "misaligned",
        ("line 5",),
    ),
    "race": (
        scale_with(
            REVERSE.replace("{barrier}", "").replace(
                "y[i] = tile[255 - threadIdx.x]", "y[i] = tile[255 - (threadIdx.x ^ 64)]"
            )
        ),
        "race",
        ("scale",),
    ),
    "uninitialised shared read": (
        scale_with(
            "__shared__ float t[512]; t[threadIdx.x] = 0.f; __syncthreads(); "
            "if (i < n) y[i] = x[i] * 2.0f + 1.0f + t[256 + threadIdx.x] * 0.f;"
        ),
        "uninitialized_read",
        ("line 5",),
    ),
    "divergent barrier": (
        scale_with(
            "__shared__ float s[256]; int t = threadIdx.x; "
            "if (t < 40) { s[t] = 1.f; __syncthreads(); s[t] += s[t + 1]; } "
            "else { s[t] = 2.f; __syncthreads(); s[t] *= s[t - 1]; } "
            "if (i < n) y[i] = x[i] * 2.0f + 1.0f + 0.f * s[t];"
        ),
        "crashed",
        ("barrier",),
    ),
    "trap": (scale_with("if (i == 3) __trap(); " + RIGHT), "crashed", ("trap",)),
    "wrong answer": (
        scale_with("if (i < n) y[i] = i == 7 ? 0.f : x[i] * 2.0f + 1.0f;"),
        "wrong_answer",
        ("out0[7]",),
    ),
    "part of the output": (
        scale_with("if (i < n - 3) y[i] = x[i] * 2.0f + 1.0f;"),
        "wrong_answer",
        ("nan",),
    ),
    "nothing launched": (scale_with(RIGHT, ""), "wrong_answer", ("nan",)),
    "modifies its input": (
        scale_with(RIGHT + " if (i == 0) ((float*)x)[0] = 5.f;"),
        "wrong_answer",
        ("modified its input x",),
    ),
    "order of warps": (
        scale_with(
            "if (i < n) y[i] = x[i] * 2.0f + 1.0f; __shared__ int turn; "
            "if (threadIdx.x == 0) turn = 0; __syncthreads(); "
            "if (i < n && threadIdx.x % 32 == 0) y[i] += atomicAdd(&turn, 1);"
        ),
        "wrong_answer|nondeterministic",
        ("out0",),
    ),
    "enormous workspace": (
        scale_with(RIGHT, before='extern "C" size_t workspace_bytes() { return size_t(1) << 40; }'),
        "crashed",
        ("workspace_bytes",),
    ),
    "unknown instruction": (
        scale_with('asm volatile("wgmma.fence.sync.aligned;"); ' + RIGHT),
        "unsupported|compile_error",
        (),
    ),
}
"""Every one of these must be refused with its outcome."""

ENDLESS_HOST_LOOP = scale_with(RIGHT, "volatile int forever = 1; while (forever) { }")

ROW_SUM_TASK = """
import torch
import torch.nn as nn

ROWS = 8192
COLUMNS = 1024


class Model(nn.Module):
    def forward(self, x):
        return torch.sum(x, dim=1)


def get_inputs():
    return [torch.rand(ROWS, COLUMNS)]


def get_init_inputs():
    return []
"""

ROW_SUM_THREAD = (
    HEAD
    + """
__global__ void rows(const float* x, float* y) {
    int row = blockIdx.x * blockDim.x + threadIdx.x;
    if (row >= X_SIZE_0) return;
    float sum = 0.f;
    for (int j = 0; j < X_SIZE_1; j++) sum += x[row * X_SIZE_1 + j];
    y[row] = sum;
}
"""
    + LAUNCH
    + " rows<<<(X_SIZE_0 + 127) / 128, 128, 0, stream>>>(x, out0); }\n"
)

ROW_SUM_BLOCK = (
    HEAD
    + """
__global__ void rows(const float* x, float* y) {
    __shared__ float part[256];
    float sum = 0.f;
    for (int j = threadIdx.x; j < X_SIZE_1; j += 256) sum += x[blockIdx.x * X_SIZE_1 + j];
    part[threadIdx.x] = sum;
    __syncthreads();
    for (int step = 128; step > 0; step /= 2) {
        if (threadIdx.x < step) part[threadIdx.x] += part[threadIdx.x + step];
        __syncthreads();
    }
    if (threadIdx.x == 0) y[blockIdx.x] = part[0];
}
"""
    + LAUNCH
    + " rows<<<X_SIZE_0, 256, 0, stream>>>(x, out0); }\n"
)

ROW_SUM_WARP = (
    HEAD
    + """
__global__ void rows(const float* x, float* y) {
    int row = (blockIdx.x * blockDim.x + threadIdx.x) / 32, lane = threadIdx.x % 32;
    if (row >= X_SIZE_0) return;
    float sum = 0.f;
    #pragma unroll 8
    for (int j = lane; j < X_SIZE_1; j += 32) sum += x[row * X_SIZE_1 + j];
    for (int step = 16; step > 0; step /= 2) sum += __shfl_down_sync(~0u, sum, step);
    if (lane == 0) y[row] = sum;
}
"""
    + LAUNCH
    + " rows<<<(X_SIZE_0 + 7) / 8, 256, 0, stream>>>(x, out0); }\n"
)

MATMUL_TASK = """
import torch
import torch.nn as nn

N = 2048


class Model(nn.Module):
    def forward(self, a, b):
        return torch.matmul(a, b)


def get_inputs():
    return [torch.randn(N, N), torch.randn(N, N)]


def get_init_inputs():
    return []
"""

MATMUL_LAUNCH = (
    'extern "C" void launch(float* out0, const float* a, const float* b, void* workspace, '
    "cudaStream_t stream) {\n"
)

MATMUL_NAIVE = (
    HEAD
    + """
__global__ void product(const float* a, const float* b, float* c) {
    constexpr int n = A_SIZE_1;
    int x = blockIdx.x * 16 + threadIdx.x, y = blockIdx.y * 16 + threadIdx.y;
    if (x >= n || y >= n) return;
    float sum = 0.f;
    for (int k = 0; k < n; k++) sum += a[y * n + k] * b[k * n + x];
    c[y * n + x] = sum;
}
"""
    + MATMUL_LAUNCH
    + """
    dim3 grid((A_SIZE_1 + 15) / 16, (A_SIZE_0 + 15) / 16);
    product<<<grid, dim3(16, 16), 0, stream>>>(a, b, out0);
}
"""
)

MATMUL_TILED = (
    HEAD
    + """
constexpr int T = 32;
__global__ void product(const float* a, const float* b, float* c) {
    constexpr int n = A_SIZE_1;
    __shared__ float left[T][T], right[T][T];
    int tx = threadIdx.x, ty = threadIdx.y, x = blockIdx.x * T + tx, y = blockIdx.y * T + ty;
    float sum = 0.f;
    for (int k = 0; k < n; k += T) {
        left[ty][tx] = y < n && k + tx < n ? a[y * n + k + tx] : 0.f;
        right[ty][tx] = k + ty < n && x < n ? b[(k + ty) * n + x] : 0.f;
        __syncthreads();
        #pragma unroll
        for (int i = 0; i < T; i++) sum += left[ty][i] * right[i][tx];
        __syncthreads();
    }
    if (x < n && y < n) c[y * n + x] = sum;
}
"""
    + MATMUL_LAUNCH
    + """
    dim3 grid((A_SIZE_1 + T - 1) / T, (A_SIZE_0 + T - 1) / T);
    product<<<grid, dim3(T, T), 0, stream>>>(a, b, out0);
}
"""
)

MATMUL_REGISTERS = (
    HEAD
    + """
constexpr int BM = 128, BN = 128, BK = 8;
__device__ float at(const float* m, int row, int column) {
    constexpr int n = A_SIZE_1;
    return row < n && column < n ? m[row * n + column] : 0.f;
}
__global__ __launch_bounds__(256) void product(const float* a, const float* b, float* c) {
    constexpr int n = A_SIZE_1;
    __shared__ float left[BK][BM], right[BK][BN];
    int t = threadIdx.x, bx = blockIdx.x * BN, by = blockIdx.y * BM, tx = t % 16, ty = t / 16;
    float acc[8][8] = {};
    for (int k = 0; k < n; k += BK) {
        for (int e = t; e < BM * BK; e += 256)
            left[e % BK][e / BK] = at(a, by + e / BK, k + e % BK);
        for (int e = t; e < BN * BK; e += 256)
            right[e / BN][e % BN] = at(b, k + e / BN, bx + e % BN);
        __syncthreads();
        #pragma unroll
        for (int i = 0; i < BK; i++) {
            float ar[8], br[8];
            #pragma unroll
            for (int j = 0; j < 8; j++) {
                ar[j] = left[i][ty * 8 + j];
                br[j] = right[i][tx + 16 * j];
            }
            #pragma unroll
            for (int p = 0; p < 8; p++)
                #pragma unroll
                for (int q = 0; q < 8; q++) acc[p][q] += ar[p] * br[q];
        }
        __syncthreads();
    }
    for (int p = 0; p < 8; p++)
        for (int q = 0; q < 8; q++)
            if (by + ty * 8 + p < n && bx + tx + 16 * q < n)
                c[(by + ty * 8 + p) * n + bx + tx + 16 * q] = acc[p][q];
}
"""
    + MATMUL_LAUNCH
    + """
    dim3 grid((A_SIZE_1 + BN - 1) / BN, (A_SIZE_0 + BM - 1) / BM);
    product<<<grid, 256, 0, stream>>>(a, b, out0);
}
"""
)

TRANSPOSE_TASK = """
import torch
import torch.nn as nn

N = 4096


class Model(nn.Module):
    def forward(self, x):
        return x.transpose(0, 1).contiguous()


def get_inputs():
    return [torch.randn(N, N)]


def get_init_inputs():
    return []
"""

TRANSPOSE_NAIVE = (
    HEAD
    + """
__global__ void turn(const float* a, float* c) {
    constexpr int n = X_SIZE_0;
    int x = blockIdx.x * 32 + threadIdx.x, y = blockIdx.y * 32 + threadIdx.y;
    if (x < n && y < n) c[x * n + y] = a[y * n + x];
}
"""
    + LAUNCH
    + """
    constexpr int n = (X_SIZE_0 + 31) / 32;
    turn<<<dim3(n, n), dim3(32, 32), 0, stream>>>(x, out0);
}
"""
)

TRANSPOSE_TILED = (
    HEAD
    + """
__global__ void turn(const float* a, float* c) {
    constexpr int n = X_SIZE_0;
    __shared__ float s[32][PITCH];
    int x = blockIdx.x * 32 + threadIdx.x, y = blockIdx.y * 32 + threadIdx.y;
    if (x < n && y < n) s[threadIdx.y][threadIdx.x] = a[y * n + x];
    __syncthreads();
    x = blockIdx.y * 32 + threadIdx.x; y = blockIdx.x * 32 + threadIdx.y;
    if (x < n && y < n) c[y * n + x] = s[threadIdx.x][threadIdx.y];
}
"""
    + LAUNCH
    + """
    constexpr int n = (X_SIZE_0 + 31) / 32;
    turn<<<dim3(n, n), dim3(32, 32), 0, stream>>>(x, out0);
}
"""
)
TRANSPOSE_CONFLICT = TRANSPOSE_TILED.replace("PITCH", "32")
TRANSPOSE_PADDED = TRANSPOSE_TILED.replace("PITCH", "33")
