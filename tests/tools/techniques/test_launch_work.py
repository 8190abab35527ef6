"""What each kernel of a file can be doing is read off its text; in doubt it may do all."""

from __future__ import annotations

import pytest
from builtin_support import node, norm_task, product_task, ref, task

from kernelblaster.harness.records.profiles import LaunchProfile, Profile
from kernelblaster.harness.records.tasks import Task
from kernelblaster.harness.records.timings import Provenance
from kernelblaster.tools.rewriting.source.kernel_text import own_text
from kernelblaster.tools.techniques.catalogue import fitness, techniques
from kernelblaster.tools.techniques.conditions import OTHER_TASK, AtHand
from kernelblaster.tools.techniques.launch_work import operators_of

HELPERS = """
#define STAGES 3
#define COPY(to, from) asm volatile("cp.async.commit_group;")
// Sums over a warp, __shfl included.
__device__ float warp_sum(float v) {
    for (int o = 16; o; o /= 2) v += __shfl_xor_sync(0xffffffffu, v, o);
    return v;
}
template <int N>
__device__ __forceinline__ float scaled(float v) { return v * N; }
"""
NORM = """
__global__ void norm_rows(const float* x, float* y) {
    float squares = 0.0f;
    for (int i = threadIdx.x; i < 512; i += 32) squares += x[i] * x[i];
    const float total = warp_sum(squares);
    for (int i = threadIdx.x; i < 512; i += 32) y[i] = scaled<2>(x[i]) * rsqrtf(total);
}
"""
PRODUCT = """
template <int TILE>
__global__ void __launch_bounds__(256) product(const float* a, const float* b, float* c) {
    __shared__ float as[TILE][TILE], bs[TILE][TILE];
    float sum = 0.0f;
    for (int k = 0; k < 512; k += TILE) {
        COPY(as, a);
        a += TILE;
        __syncthreads();
        for (int i = 0; i < TILE; i++) sum += as[threadIdx.y][i] * bs[i][threadIdx.x];
    }
    c[threadIdx.x] = 0.5f * sum * (1.0f + erff(sum * 0.7f));
}
"""
ADD = """
__global__ void add(const float* x, float* y) {
    const int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < 4096) y[i] = y[i] + x[i];
}
"""
FILE = HELPERS + NORM + PRODUCT + ADD
NAMES = ("norm_rows", "product", "add")


def block() -> Task:
    """A norm of rows, a product, and a sum of two tensors."""
    shape = ((512, 512), (32, 32))
    nodes = [
        node("mean", "aten.mean.dim", [ref("x"), [-1]], (512,)),
        node("mm", "aten.mm.default", [ref("x"), ref("x")], shape[0]),
        node("out", "aten.add.Tensor", [ref("mm"), ref("x")], shape[0]),
    ]
    return task("block", {"x": shape}, nodes, {"out": shape})


def at_hand(**microseconds: float) -> AtHand:
    launches = tuple(
        LaunchProfile(kernel=name, grid=(64, 1, 1), block=(256, 1, 1), microseconds=us,
                      metrics={"launch__shared_mem_per_block_static": 8192.0 * (name == "product")},
                      bottleneck="dram")
        for name, us in microseconds.items()
    )  # fmt: skip
    profile = Profile(launches=launches, gpu="H100", provenance=Provenance.SIMULATED)
    return AtHand(block(), FILE, profile, frozenset())


def test_a_kernels_text_is_its_own_with_what_it_uses() -> None:
    norm, product = own_text(FILE, "norm_rows"), own_text(FILE, "void product<16>(const float*)")
    assert norm and product
    assert "warp_sum(float v)" in norm and "scaled(float v)" in norm and "COPY" not in norm
    assert "cp.async.commit_group" in product and "__shfl" not in product
    assert "included" not in norm and "STAGES" not in product
    assert own_text(FILE, "warp_sum") is None and own_text(FILE, "other") is None
    assert own_text(FILE, "void (anonymous namespace)::product<16>(const float*)") == product


def test_each_kernel_can_be_doing_its_own_work() -> None:
    found = operators_of(block(), FILE, NAMES)
    assert found == {
        "norm_rows": {"mean", "add"}, "product": {"mm", "add"}, "add": {"add"},
    }  # fmt: skip


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("sum += as[threadIdx.y][i] * bs[i][threadIdx.x]",
         "sum = fmaf(as[threadIdx.y][i], bs[i][threadIdx.x], sum)"),
        ("sum += as[threadIdx.y][i] * bs[i][threadIdx.x]",
         'asm("mma.sync.aligned.m16n8k8.row.col" : "+f"(sum))'),
        ("sum += as[threadIdx.y][i] * bs[i][threadIdx.x]",
         "sum += as[0][i] * bs[i][0] + as[1][i] * bs[i][1]"),
    ],
)  # fmt: skip
def test_a_product_is_told_however_it_is_written(before: str, after: str) -> None:
    found = operators_of(block(), FILE.replace(before, after), NAMES)
    assert "mean" not in found["product"] and "mm" in found["product"]


@pytest.mark.parametrize(
    "more",
    ["for (int i = 0; i < 4; i++) total += x[i];", "for (;;) best = fmaxf(best, x[0]);",
     "atomicAdd(y, 1.0f);", "v = __shfl_xor_sync(~0u, v, 1);"],
)  # fmt: skip
def test_a_product_that_also_meets_over_rows_may_do_both(more: str) -> None:
    declared = "float total = 0.0f, best = 0.0f, v = 0.0f; float *x = c, *y = c;"
    fused = FILE.replace("float sum = 0.0f;", f"float sum = 0.0f; {declared} {more}")
    assert operators_of(block(), fused, NAMES)["product"] == {"mm", "mean", "add"}


def test_what_no_kernel_seems_to_do_any_may_do() -> None:
    """Of one kernel all, of a product in an unread form each; of a text not found, anything."""
    assert operators_of(product_task(), NORM, ["norm_rows"])["norm_rows"] == {"mm"}
    unread = FILE.replace("sum += as[threadIdx.y][i] * bs[i][threadIdx.x]", "gather(sum)")
    assert all("mm" in names for names in operators_of(block(), unread, NAMES).values())
    assert operators_of(norm_task(), "", ["k"])["k"] == {"layer_norm"}


def test_a_technique_is_asked_of_each_kernel_that_takes_much_of_the_time() -> None:
    found = fitness(techniques(), at_hand(norm_rows=30.0, product=60.0, add=10.0))
    assert found.kernels["register_tiling"] == ("product",)
    assert found.kernels["cache_row_in_registers"] == ("norm_rows",)
    assert found.kernels["vectorize_memory_access"] == ("product", "norm_rows", "add")
    assert found.unfit["cp_async_pipeline"] == "tiles are copied ahead already"
    assert found.unfit["winograd_convolution"] == OTHER_TASK


def test_rows_of_a_kernel_that_takes_hardly_any_time_are_not_spoken_of() -> None:
    found = fitness(techniques(), at_hand(norm_rows=5.0, product=65.0, add=30.0))
    for name in ("cache_row_in_registers", "block_row_reduction", "parallelize_row_reduction"):
        assert found.unfit[name] == "no kernel that takes much of the time has such work", name
    assert "register_tiling" in found.kernels
