"""The rewrites: what they recognise and refuse, and that the new source computes the same."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from builtin_support import (
    attempt,
    change,
    gelu_task,
    initial,
    norm_task,
    product_task,
    reference,
    softmax_task,
    task,
    transpose_task,
    verified,
)
from hypothesis import given, settings
from hypothesis import strategies as st
from often_or_seldom import every

from kernelblaster.harness.devices.simulated.device import SimulatedDevice
from kernelblaster.harness.records.outcomes import Outcome
from kernelblaster.harness.records.tasks import Task
from kernelblaster.harness.task.loading import load_task
from kernelblaster.tools.rewriting.records import Inapplicable, Rewritten
from kernelblaster.tools.rewriting.source.threads import lanes_of
from kernelblaster.tools.techniques.catalogue import applicable, rewrites

TECHNIQUES = {
    "tune_block_size", "vectorize_memory_access", "parallelize_row_reduction",
    "block_row_reduction", "cache_row_in_registers", "shared_memory_tiling", "register_tiling",
    "unroll_loop", "fast_math", "read_only_cache", "transpose_through_shared_memory",
    "pad_shared_memory", "thread_coarsening", "grid_stride_loop", "drop_max_subtraction",
    "single_pass_variance", "remove_barriers", "several_rows_per_warp",
    "register_blocked_convolution",
}  # fmt: skip
TASKS = (gelu_task, softmax_task, norm_task, product_task, transpose_task)


def reason(source: str, made: Task, technique: str, **parameters: int) -> str:
    """Why a technique does not apply, which must be so."""
    outcome = attempt(source, made, technique, **parameters)
    assert isinstance(outcome, Inapplicable), outcome
    return outcome.reason


# The library


def test_the_techniques_are_those_of_the_knowledge_base() -> None:
    assert {rewrite.technique for rewrite in rewrites()} == TECHNIQUES


@pytest.mark.parametrize(
    ("make", "expected"),
    [
        (gelu_task, {"grid_stride_loop", "thread_coarsening", "vectorize_memory_access"}),
        (
            softmax_task,
            {"block_row_reduction", "drop_max_subtraction", "fast_math", "unroll_loop",
             "parallelize_row_reduction", "vectorize_memory_access"},
        ),
        (
            norm_task,
            {"block_row_reduction", "fast_math", "unroll_loop", "single_pass_variance",
             "parallelize_row_reduction", "vectorize_memory_access"},
        ),
        (product_task, {"register_tiling", "shared_memory_tiling", "unroll_loop"}),
        (transpose_task, {"transpose_through_shared_memory"}),
    ],
)  # fmt: skip
def test_what_applies_to_an_initial_kernel(make: Callable[[], Task], expected: set[str]) -> None:
    made = make()
    found = applicable(initial(made), made)
    assert set(found) == TECHNIQUES
    always = {"read_only_cache", "tune_block_size"}
    assert {name for name, why in found.items() if why is None} == expected | always


def test_a_technique_is_pure() -> None:
    made = softmax_task()
    first = change(initial(made), made, "block_row_reduction")
    assert first == change(initial(made), made, "block_row_reduction")


@pytest.mark.parametrize("make", TASKS)
@pytest.mark.parametrize("technique", sorted(TECHNIQUES - {"remove_barriers"}))
def test_nothing_is_done_twice(make: Callable[[], Task], technique: str) -> None:
    made = make()
    outcome = attempt(initial(made), made, technique)
    if isinstance(outcome, Rewritten):
        assert reason(outcome.source, made, technique)


def test_parameters_are_checked() -> None:
    made = gelu_task()
    assert "no parameter" in reason(initial(made), made, "fast_math", size=3)
    assert "one of" in reason(initial(made), made, "tune_block_size", block_size=3)


@settings(max_examples=25, deadline=None)
@given(
    make=st.sampled_from(TASKS),
    order=st.lists(st.sampled_from(sorted(TECHNIQUES)), min_size=1, max_size=6),
)
def test_any_order_gives_a_source_or_a_reason(make: Callable[[], Task], order: list[str]) -> None:
    made = make()
    source = initial(made)
    for technique in order:
        outcome = attempt(source, made, technique)
        if isinstance(outcome, Rewritten):
            assert outcome.source != source
            assert outcome.source.count("{") == outcome.source.count("}")
            source = outcome.source
        else:
            assert outcome.reason


@pytest.mark.parametrize("text", ["", "int main() {", "__global__ void k() {}", "void launch() {}"])
def test_a_source_without_a_launch_is_a_reason(text: str) -> None:
    made = gelu_task()
    assert all(why is not None for name, why in applicable(text, made).items())


# Rows

PERSON_SOFTMAX = """\
#include "task.cuh"
#include <cfloat>

// Written by a person: other names, wider indices, the check round the body.
__global__ void my_softmax(const float* input, float* output, int n_rows, int n_cols) {
    size_t r = (size_t)threadIdx.x + (size_t)blockIdx.x * blockDim.x;
    if (r < n_rows) {
        const float* in = input + r * n_cols;
        float* out = output + r * n_cols;
        float biggest = in[0];
        for (int j = 1 - 1; j < n_cols; j++) {
            if (in[j] > biggest) biggest = in[j];
        }
        float total = 0.f;
        for (int j = 0; j < n_cols; j++) {
            float e = expf(in[j] - biggest);
            out[j] = e;
            total = total + e;
        }
        for (int j = 0; j < n_cols; j++) {
            out[j] /= total;
        }
    }
}

extern "C" void launch(float* out0, const float* x, void* workspace, cudaStream_t stream) {
    int rows = X_SIZE_0;
    const int threads = 128;
    int blocks = (rows + threads - 1) / threads;
    my_softmax<<<blocks, threads, 0, stream>>>(x, out0, rows, X_SIZE_1);
}
""".replace("1 - 1", "0")
WARP_SOFTMAX = """\
#include "task.cuh"

__global__ void by_warp(float* y, const float* x) {
    int tid = threadIdx.x;
    int lane = tid & 31;
    int row = blockIdx.x * (blockDim.x >> 5) + (tid >> 5);
    if (row >= X_SIZE_0) return;
    float m = -1e30f;
    for (int c = lane; c < X_SIZE_1; c += 32) m = fmaxf(m, x[row * X_SIZE_1 + c]);
    for (int o = 16; o > 0; o >>= 1) m = fmaxf(m, __shfl_xor_sync(0xffffffff, m, o));
    float s = 0.0f;
    for (int c = lane; c < X_SIZE_1; c += 32) s += expf(x[row * X_SIZE_1 + c] - m);
    for (int o = 16; o > 0; o >>= 1) s += __shfl_xor_sync(0xffffffff, s, o);
    for (int c = lane; c < X_SIZE_1; c += 32) {
        y[row * X_SIZE_1 + c] = expf(x[row * X_SIZE_1 + c] - m) / s;
    }
}

extern "C" void launch(float* out0, const float* x, void* workspace, cudaStream_t stream) {
    by_warp<<<(X_SIZE_0 + 3) / 4, 128, 0, stream>>>(out0, x);
}
"""
ROW_BODY = """\
#include "task.cuh"
constexpr int BLOCK = 256;
__global__ void k(float* out0, const float* x) {
    const int row = blockIdx.x * blockDim.x + threadIdx.x;
    if (row >= X_SIZE_0) return;
    BODY
}
extern "C" void launch(float* out0, const float* x, void* workspace, cudaStream_t stream) {
    k<<<(X_SIZE_0 + BLOCK - 1) / BLOCK, BLOCK, 0, stream>>>(out0, x);
}
"""


@pytest.mark.parametrize(
    ("body", "why"),
    [
        (
            "float m = -INFINITY, s = 0.0f;\n"
            "for (int c = 0; c < X_SIZE_1; ++c) { float v = x[row * X_SIZE_1 + c];"
            " float n = fmaxf(m, v); s = s * expf(m - n) + expf(v - n); m = n; }\n"
            "out0[row] = m + logf(s);",
            "carries",
        ),
        (
            "float s = 0.0f;\n"
            "for (int c = 0; c < X_SIZE_1; ++c) { s += x[row * X_SIZE_1 + c];"
            " out0[row * X_SIZE_1 + c] = s; }",
            "reads s",
        ),
        (
            "for (int c = 0; c < X_SIZE_1; ++c) { out0[row] += x[row * X_SIZE_1 + c]; }",
            "every column writes",
        ),
        (
            "for (int c = 0; c < X_SIZE_1; ++c) { out0[row * X_SIZE_1 + c] = x[row * X_SIZE_1 + c]"
            " + out0[row * X_SIZE_1 + c - 1]; }",
            "used at another",
        ),
        (
            "float s = 1.0f;\nfor (int c = 0; c < X_SIZE_1; ++c) { s += x[row * X_SIZE_1 + c]; }\n"
            "out0[row] = s;",
            "start at zero",
        ),
        (
            "float s = 0.0f;\nfor (int c = 0; c < X_SIZE_1; ++c) {"
            " if (s > 9.0f) break; s += x[row * X_SIZE_1 + c]; }\nout0[row] = s;",
            "leaves early",
        ),
        (
            "float s = 1.0f;\nfor (int c = 0; c < X_SIZE_1; ++c) { s *= x[row * X_SIZE_1 + c]; }\n"
            "out0[row] = s;",
            "carries",
        ),
    ],
)
def test_a_row_that_cannot_be_shared_is_refused(body: str, why: str) -> None:
    made = softmax_task()
    for technique in ("parallelize_row_reduction", "block_row_reduction"):
        assert why in reason(ROW_BODY.replace("BODY", body), made, technique)


@pytest.mark.parametrize("batch", ["batch", "blockIdx.y"])
def test_a_row_of_a_batch_is_refused(batch: str) -> None:
    """A grid of rows alone would lose the batch, which comes from another axis of it."""
    made = softmax_task()
    before = "" if batch == "blockIdx.y" else "const int batch = blockIdx.y;\n"
    body = (
        f"{before}float s = 0.0f;\nfor (int c = 0; c < X_SIZE_1; ++c) {{"
        f" s += x[({batch} * 8 + row) * X_SIZE_1 + c]; }}\nout0[{batch} * 8 + row] = s;"
    )
    source = ROW_BODY.replace("    BODY\n", body).replace(
        "k<<<(X_SIZE_0 + BLOCK - 1) / BLOCK, BLOCK,", "k<<<dim3((X_SIZE_0 + 255) / 256, 8), 256,"
    )
    for technique in ("parallelize_row_reduction", "block_row_reduction", "tune_block_size",
                      "vectorize_memory_access"):  # fmt: skip
        chosen = {"block_size": 128} if technique == "tune_block_size" else {}
        assert reason(source, made, technique, **chosen)


def test_a_row_too_long_for_registers_is_refused() -> None:
    made = softmax_task(columns=8192)
    by_warp = change(initial(made), made, "parallelize_row_reduction")
    assert "256 values" in reason(by_warp, made, "cache_row_in_registers")
    by_block = change(initial(made), made, "block_row_reduction")
    assert "x_cache" in change(by_block, made, "cache_row_in_registers")


def test_a_thread_does_not_cache_a_row() -> None:
    made = softmax_task()
    assert "share the row" in reason(initial(made), made, "cache_row_in_registers")


def test_a_row_read_once_is_not_cached() -> None:
    made = softmax_task()
    body = ROW_BODY.replace(
        "BODY", "float s = 0.0f;\nfor (int c = 0; c < X_SIZE_1; ++c) { s += x[row * X_SIZE_1 + c];"
        " }\nout0[row] = s;")  # fmt: skip
    by_warp = change(body, made, "parallelize_row_reduction")
    assert "more than one loop" in reason(by_warp, made, "cache_row_in_registers")


def test_short_rows_share_a_warp_and_long_ones_do_not() -> None:
    long, short = softmax_task(columns=1024), softmax_task(columns=48)
    assert "too long for 8 lanes" in reason(initial(long), long, "several_rows_per_warp")
    by_eight = change(initial(short), short, "several_rows_per_warp", lanes=8)
    assert "(ROWS + BLOCK / 8 - 1) / (BLOCK / 8)" in by_eight and "0xffu << " in by_eight
    assert "share a row already" in reason(by_eight, short, "several_rows_per_warp", lanes=8)
    for lanes in (4, 16):
        again = change(by_eight, short, "several_rows_per_warp", lanes=lanes)
        assert again == change(initial(short), short, "several_rows_per_warp", lanes=lanes)
    assert "share the row" not in change(by_eight, short, "cache_row_in_registers")
    resized = change(by_eight, short, "tune_block_size", block_size=128)
    assert "(ROWS + BLOCK / 8 - 1) / (BLOCK / 8)" in resized and "BLOCK = 128" in resized
    assert "lanes8" not in change(by_eight, short, "block_row_reduction")


@pytest.mark.parametrize("wrong", ["lanes16_sum(", "warp_sum("])
def test_a_row_that_is_combined_over_other_lanes_is_refused(wrong: str) -> None:
    made = softmax_task(columns=48)
    others = change(initial(made), made, "several_rows_per_warp", lanes=16)
    if wrong == "warp_sum(":
        others = change(initial(made), made, "parallelize_row_reduction")
    helper = others[others.index("// Sum over") : others.index("// 16 lanes compute")
                    if wrong != "warp_sum(" else others.index("// One warp")]  # fmt: skip
    mixed = change(initial(made), made, "several_rows_per_warp", lanes=8)
    mixed = mixed.replace("// 8 lanes compute", f"{helper}\n// 8 lanes compute").replace(
        "row_sum = lanes8_sum(", f"row_sum = {wrong}"
    )
    assert "over other threads" in reason(mixed, made, "vectorize_memory_access")


@pytest.mark.parametrize(
    ("text", "lanes"),
    [("threadIdx.x % 32", 32), ("threadIdx.x & 31", 32), ("threadIdx.x & 0x1f", 32),
     ("threadIdx.x % warpSize", 32), ("(threadIdx.x) & 7", 8), ("threadIdx.x % 4", 4),
     ("threadIdx.x & 8", None), ("threadIdx.x % 12", None), ("threadIdx.x & warpSize", None),
     ("threadIdx.x % 010", None), ("threadIdx.y % 8", None), ("threadIdx.x % 64", None)],
)  # fmt: skip
def test_lanes_are_counted_from_the_expression(text: str, lanes: int | None) -> None:
    assert lanes_of(text) == lanes


def test_the_order_of_row_techniques_does_not_matter() -> None:
    made = norm_task()
    orders = (
        ("block_row_reduction", "vectorize_memory_access", "cache_row_in_registers"),
        ("vectorize_memory_access", "block_row_reduction", "cache_row_in_registers"),
        ("block_row_reduction", "cache_row_in_registers", "vectorize_memory_access"),
    )
    kernels = set()
    for order in orders:
        source = initial(made)
        for technique in order:
            source = change(source, made, technique)
        kernels.add(source[source.index("// One block") :])
    assert len(kernels) == 1


def test_what_a_dropped_maximum_leaves_unused_goes() -> None:
    made = softmax_task()
    source = change(initial(made), made, "block_row_reduction")
    assert "warp_max" in source
    assert "_max" not in change(source, made, "drop_max_subtraction")


# Elements

PERSON_RESIDUAL = """\
#include "task.cuh"
#define THREADS 256

__global__ void scale_add(const float *a, const float *b, float *c, int n) {
    int tid = blockDim.x * blockIdx.x + threadIdx.x;
    if (tid >= n) return;
    float v = a[tid];
    v = v * 2.0f + b[tid % X_SIZE_1];
    c[tid] = v > 0 ? v : 0;
}

extern "C" void launch(float* out0, const float* x, const float* y, void* workspace,
                       cudaStream_t stream) {
    int n = X_NUMEL;
    dim3 grid((n + 255) / 256), block(256);
    scale_add<<<(n + 255) / 256, 256, 0, stream>>>(x, y, out0, n);
}
"""


def test_an_odd_number_of_elements_is_not_packed() -> None:
    shapes = ((33, 33), (3, 3))
    operation = gelu_task().program
    assert operation is not None
    made = task("odd", {"x": shapes}, [operation.nodes[0].model_copy(update={"shape": (33, 33)})],
                {"gelu": shapes})  # fmt: skip
    assert "odd" in reason(initial(made), made, "vectorize_memory_access")


def test_vector_types_are_not_packed_again() -> None:
    plain = "float* out0, const float* x) {"
    source = initial(gelu_task()).replace(plain, "float4* out0, float4* x) {")
    assert reason(source, gelu_task(), "vectorize_memory_access")


def test_an_offset_pointer_is_not_packed() -> None:
    made = gelu_task()
    source = initial(made).replace("stream>>>(out0, x)", "stream>>>(out0 + 1, x)")
    assert "aligned" in reason(source, made, "vectorize_memory_access")


# Products, transposes, barriers

PERSON_PRODUCT = """\
#include "task.cuh"

__global__ void mm(const float* A, const float* B, const float* bias, float* C, int M, int N, int K)
{
    int y = blockIdx.y * blockDim.y + threadIdx.y;
    int x = blockIdx.x * blockDim.x + threadIdx.x;
    if (y < M && x < N) {
        float sum = 0;
        for (int p = 0; p < K; p++) {
            float l = A[y * K + p];
            sum = fmaf(l, B[x * K + p], sum);
        }
        sum += bias[x];
        C[y * N + x] = sum > 0.f ? sum : 0.f;
    }
}

extern "C" void launch(float* out0, const float* x, const float* layer_weight,
                       const float* layer_bias, void* workspace, cudaStream_t stream) {
    dim3 threads(16, 16);
    dim3 blocks((LAYER_WEIGHT_SIZE_0 + 15) / 16, (X_SIZE_0 + 15) / 16);
    mm<<<blocks, threads, 0, stream>>>(x, layer_weight, layer_bias, out0, X_SIZE_0,
                                       LAYER_WEIGHT_SIZE_0, X_SIZE_1);
}
"""
PERSON_TILED = """\
#include "task.cuh"
#define T 16

__global__ void mm(const float* A, const float* W, const float* bias, float* C) {
    __shared__ float As[T][T];
    __shared__ float Ws[T][T];
    int tx = threadIdx.x, ty = threadIdx.y;
    int row = blockIdx.y * T + ty;
    int col = blockIdx.x * T + tx;
    float acc = 0.0f;
    for (int t = 0; t < (X_SIZE_1 + T - 1) / T; ++t) {
        As[ty][tx] = (row < X_SIZE_0 && t * T + tx < X_SIZE_1)
            ? A[row * X_SIZE_1 + t * T + tx] : 0.f;
        Ws[ty][tx] = (col < LAYER_WEIGHT_SIZE_0 && t * T + ty < X_SIZE_1)
            ? W[col * X_SIZE_1 + t * T + ty] : 0.f;
        __syncthreads();
        for (int k = 0; k < T; ++k) acc += As[ty][k] * Ws[k][tx];
        __syncthreads();
    }
    if (row < X_SIZE_0 && col < LAYER_WEIGHT_SIZE_0) {
        C[row * LAYER_WEIGHT_SIZE_0 + col] = fmaxf(acc + bias[col], 0.0f);
    }
}

extern "C" void launch(float* out0, const float* x, const float* layer_weight,
                       const float* layer_bias, void* workspace, cudaStream_t stream) {
    dim3 block(T, T);
    dim3 grid((LAYER_WEIGHT_SIZE_0 + T - 1) / T, (X_SIZE_0 + T - 1) / T);
    mm<<<grid, block, 0, stream>>>(x, layer_weight, layer_bias, out0);
}
"""


def test_a_product_that_skips_terms_is_refused() -> None:
    made = product_task()
    source = initial(made).replace("for (int k = 0;", "for (int k = 1;")
    assert reason(source, made, "shared_memory_tiling")
    assert reason(source, made, "register_tiling")


def test_tiles_take_another_size() -> None:
    made = product_task()
    small = change(initial(made), made, "shared_memory_tiling", tile=16)
    large = change(small, made, "shared_memory_tiling", tile=32)
    assert "constexpr int TILE = 32;" in large
    assert "already" in reason(large, made, "shared_memory_tiling", tile=32)


def test_a_square_of_too_many_threads_is_refused() -> None:
    made = product_task()
    assert "threads" in reason(initial(made), made, "register_tiling", tile=32, thread_tile=8)


def test_padding_keeps_rows_aligned_for_wide_reads() -> None:
    made = product_task()
    squares = change(initial(made), made, "register_tiling")
    assert "[TILE + 4]" in change(squares, made, "pad_shared_memory")
    turned = change(initial(transpose_task()), transpose_task(), "transpose_through_shared_memory")
    assert "[TILE + 1]" in change(turned, transpose_task(), "pad_shared_memory")


def test_a_block_of_broken_warps_is_not_shared() -> None:
    made = softmax_task()
    source = initial(made).replace("BLOCK = 256", "BLOCK = 100")
    assert "whole warps" in reason(source, made, "parallelize_row_reduction")


def test_a_bounded_block_is_not_resized() -> None:
    made = softmax_task()
    bounded = initial(made).replace("__global__ void", "__global__ void __launch_bounds__(256)")
    assert "bounds" in reason(bounded, made, "tune_block_size")


def test_barriers_are_counted() -> None:
    made = transpose_task()
    assert "0 barriers" in reason(initial(made), made, "remove_barriers")
    turned = change(initial(made), made, "transpose_through_shared_memory")
    assert "__syncthreads" not in change(turned, made, "remove_barriers")
    assert "1 barriers" in reason(turned, made, "remove_barriers", which=1)


def test_fast_math_leaves_integers_alone() -> None:
    made = softmax_task()
    source = change(initial(made), made, "fast_math")
    assert "__expf(" in source and "__fdividef(" in source
    assert "(ROWS + BLOCK - 1) / BLOCK" in source
    turned = initial(gelu_task()).replace("x[i]", "x[i / 1]")
    outcome = attempt(turned, gelu_task(), "fast_math")
    assert isinstance(outcome, Inapplicable) or "x[i / 1]" in outcome.source


def test_one_over_a_root_is_one_instruction() -> None:
    made = gelu_task()
    source = initial(made).replace("out0[i] = ", "out0[i] = 1.0f / sqrtf(2.0f) * ")
    assert "rsqrtf(2.0f) *" in change(source, made, "fast_math")


# On the simulated device

SOFTMAX = """\
class Model(nn.Module):
    def forward(self, x):
        return torch.softmax(x, dim=1)


def get_inputs():
    return [torch.randn(ROWS, COLS)]
"""
LAYER_NORM = """\
class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.norm = nn.LayerNorm(COLS)

    def forward(self, x):
        return self.norm(x)


def get_inputs():
    return [torch.randn(ROWS, COLS)]
"""
LINEAR = """\
class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(INNER, COLS)

    def forward(self, x):
        return F.relu(self.layer(x))


def get_inputs():
    return [torch.randn(ROWS, INNER)]
"""
RESIDUAL = """\
class Model(nn.Module):
    def forward(self, x, y):
        return F.relu(x * 2 + y)


def get_inputs():
    return [torch.randn(ROWS, COLS), torch.randn(COLS)]
"""
TURN = """\
class Model(nn.Module):
    def forward(self, x):
        return x.t().contiguous()


def get_inputs():
    return [torch.randn(ROWS, COLS)]
"""
CONVOLUTION = """\
class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv = nn.%s

    def forward(self, x):
        return self.conv(x)%s


def get_inputs():
    return [torch.randn(%s)]
"""
BATCHED = """\
class Model(nn.Module):
    def forward(self, x, y):
        return %s


def get_inputs():
    return [torch.randn(%s), torch.randn(%s)]
"""
REFERENCES = {
    "batched": (BATCHED % ("torch.bmm(x, y)", "3, 37, 20", "3, 20, 45"), ""),
    "heads": (BATCHED % ("(x @ y.mT / 3).tanh()", "2, 3, 33, 18", "2, 3, 40, 18"), ""),
    "rows": (CONVOLUTION % ("Conv2d(3, 6, (3, 2), bias=True)", ".relu()", "2, 3, 9, 11"), ""),
    "samples": (CONVOLUTION % ("Conv2d(4, 5, 3, stride=2, padding=1)", "", "3, 4, 8, 9"), ""),
    "one_sample": (CONVOLUTION % ("Conv2d(2, 4, 3, padding=1, dilation=2)", "", "1, 2, 9, 8"), ""),
    "line": (CONVOLUTION % ("Conv1d(3, 7, 4)", "", "1, 3, 21"), ""),
    "turned": (CONVOLUTION % ("ConvTranspose2d(3, 5, 3, stride=2)", "", "3, 3, 5, 6"), ""),
    "volume": (CONVOLUTION % ("Conv3d(2, 3, 2)", " * 2", "2, 2, 5, 4, 6"), ""),
    "softmax": (SOFTMAX, "ROWS, COLS = 37, 100"),
    "odd_softmax": (SOFTMAX, "ROWS, COLS = 9, 45"),
    "layer_norm": (LAYER_NORM, "ROWS, COLS = 19, 72"),
    "linear": (LINEAR, "ROWS, INNER, COLS = 70, 36, 45"),
    "residual": (RESIDUAL, "ROWS, COLS = 30, 34"),
    "turn": (TURN, "ROWS, COLS = 45, 70"),
}
V4, V2 = "vectorize_memory_access", "vectorize_memory_access:width=2"
WARP, BLOCK_ROW = "parallelize_row_reduction", "block_row_reduction"
CACHE, FAST = "cache_row_in_registers", "fast_math"
SQUARES = "register_tiling:tile=32,thread_tile=4"
BLOCKED, BLOCKED_8 = "register_blocked_convolution", "register_blocked_convolution:channels=8"
CHAINS = [
    ("softmax", "", (WARP, V4, CACHE, FAST, "read_only_cache")),
    ("softmax", "", (V4, "unroll_loop", BLOCK_ROW, CACHE, "tune_block_size:block_size=64")),
    ("softmax", PERSON_SOFTMAX, (WARP, V4, FAST, "tune_block_size:block_size=64")),
    ("softmax", PERSON_SOFTMAX, (BLOCK_ROW, V2, "unroll_loop")),
    ("softmax", PERSON_SOFTMAX, (BLOCK_ROW, CACHE)),
    ("softmax", WARP_SOFTMAX, (V4, CACHE, BLOCK_ROW)),
    ("odd_softmax", "", (WARP, CACHE, "tune_block_size", FAST)),
    ("odd_softmax", "", ("several_rows_per_warp", CACHE, "tune_block_size", FAST)),
    ("layer_norm", "", (V4, "several_rows_per_warp", CACHE, "single_pass_variance")),
    ("softmax", WARP_SOFTMAX, ("several_rows_per_warp", "several_rows_per_warp:lanes=16", V4)),
    ("layer_norm", "", (WARP, V4, CACHE, "single_pass_variance", FAST)),
    ("linear", "", ("shared_memory_tiling:tile=32", "pad_shared_memory", "unroll_loop:factor=8")),
    ("linear", "", (SQUARES, "pad_shared_memory", "register_tiling:tile=64,thread_tile=4")),
    ("linear", PERSON_PRODUCT, ("tune_block_size:block_size=512", "shared_memory_tiling", SQUARES)),
    ("linear", PERSON_TILED, (SQUARES, "read_only_cache")),
    ("residual", "", (V4, "thread_coarsening", "grid_stride_loop", FAST)),
    ("residual", PERSON_RESIDUAL, ("grid_stride_loop", V4, "tune_block_size")),
    ("residual", PERSON_RESIDUAL, (V2, "thread_coarsening:factor=2")),
    ("batched", "", (SQUARES, "pad_shared_memory")),
    ("batched", "", ("shared_memory_tiling:tile=32", "register_tiling:tile=64,thread_tile=4")),
    ("heads", "", ("shared_memory_tiling:tile=16", SQUARES, "read_only_cache")),
    ("heads", "", ("register_tiling:tile=64,thread_tile=8", SQUARES)),
    ("rows", "", ("tune_block_size", BLOCKED_8)),
    ("rows", "", (BLOCKED, "tune_block_size:block_size=64")),
    ("samples", "", (BLOCKED, "unroll_loop")),
    ("one_sample", "", (BLOCKED,)),
    ("line", "", (BLOCKED_8, FAST)),
    ("turned", "", ("register_blocked_convolution:pixels=8,channels=2",)),
    ("volume", "", (BLOCKED, "read_only_cache")),
    ("turn", "", ("tune_block_size", "transpose_through_shared_memory", "pad_shared_memory")),
]


BARRIER_FAULTS = {Outcome.RACE, Outcome.UNINITIALIZED_READ}


@pytest.fixture(scope="module")
def device() -> SimulatedDevice:
    return SimulatedDevice("H100")


async def made_of(name: str, folder: Path) -> Task:
    """The task of one of the references."""
    body, constants = REFERENCES[name]
    return await load_task(reference(folder, name, body, constants))


OFTEN_OR_SELDOM = every(
    16, CHAINS, lambda chain: BLOCKED in chain[2][0] or chain[0],
    always=lambda chain: chain[1] == PERSON_TILED or chain[0] in ("samples", "turned"),
)


@pytest.mark.parametrize(("name", "source", "chain"), OFTEN_OR_SELDOM)
async def test_a_chain_of_techniques_computes_the_same(
    device: SimulatedDevice, tmp_path: Path, name: str, source: str, chain: tuple[str, ...]
) -> None:
    made = await made_of(name, tmp_path)
    source = source or initial(made)
    applied = 0
    for step in chain:
        technique, _, settings_text = step.partition(":")
        pairs = (pair.split("=") for pair in settings_text.split(",") if pair)
        outcome = attempt(source, made, technique, **{key: int(value) for key, value in pairs})
        if isinstance(outcome, Rewritten):
            source, applied = outcome.source, applied + 1
        else:
            assert technique == FAST, f"{technique}: {outcome.reason}"
    assert applied >= len(chain) - 1
    result = await verified(device, made, source)
    assert result.outcome is Outcome.PASSED, f"{result.reason}\n{source}"


@pytest.mark.parametrize(
    ("name", "chain", "outcomes"),
    [
        ("softmax", ("drop_max_subtraction",), {Outcome.WRONG_ANSWER}),
        ("turn", ("transpose_through_shared_memory", "remove_barriers"), BARRIER_FAULTS),
        ("linear", ("shared_memory_tiling", "remove_barriers"), BARRIER_FAULTS),
    ],
)
async def test_what_is_unsafe_is_caught(
    device: SimulatedDevice,
    tmp_path: Path,
    name: str,
    chain: tuple[str, ...],
    outcomes: set[Outcome],
) -> None:
    made = await made_of(name, tmp_path)
    source = initial(made)
    for technique in chain:
        source = change(source, made, technique)
    result = await verified(device, made, source)
    assert result.outcome in outcomes, result.reason
