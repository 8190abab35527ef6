"""What the proposer is not shown: techniques that cannot act on a kernel, and only those."""

from __future__ import annotations

from typing import Any

import pytest
from builtin_support import (
    gelu_task,
    node,
    norm_task,
    product_task,
    ref,
    softmax_task,
    task,
    transpose_task,
)

from kernelblaster.harness.records.profiles import LaunchProfile, Profile
from kernelblaster.harness.records.tasks import Task
from kernelblaster.harness.records.timings import Provenance
from kernelblaster.memory.knowledge.states.conditions import misnamed
from kernelblaster.tools.techniques import operators
from kernelblaster.tools.techniques.catalogue import techniques, unfit
from kernelblaster.tools.techniques.conditions import OTHER_TASK, AtHand

SOFTMAX, NORM, PRODUCT = softmax_task(), norm_task(), product_task()
USED = "smsp__sass_average_data_bytes_per_sector_mem_global_op_{}.ratio"
SECTORS = "l1tex__average_t_sectors_per_request_pipe_lsu_mem_global_op_{}.ratio"

STALLS = "smsp__average_warps_issue_stalled_{}_per_issue_active.ratio"
FETCHED = {STALLS.format("long_scoreboard"): 3.0, "ptxas__spill_store_bytes": 0.0}
LOOP = "for (int k = 0; k < K; ++k) sum += x[k];"


def launch(
    metrics: dict[str, float] | None = None, terms: dict[str, float] | None = None
) -> LaunchProfile:
    return LaunchProfile(
        kernel="k", grid=(64, 1, 1), block=(256, 1, 1), microseconds=10.0, metrics=metrics or {},
        terms=terms or {}, bottleneck="dram",
    )  # fmt: skip


def at_hand(
    metrics: dict[str, float] | None = None, launches: int = 1,
    terms: dict[str, float] | None = None, **changes: Any,
) -> AtHand:  # fmt: skip
    profile = Profile(
        launches=(launch(metrics, terms),) * launches, gpu="H100", provenance=Provenance.SIMULATED
    )
    found = AtHand(SOFTMAX, "__syncthreads();", profile, frozenset())
    return found._replace(**changes)


def many_blocks() -> Profile:
    large = launch().model_copy(update={"grid": (4096, 1, 1)})
    return Profile(launches=(large,), gpu="H100", provenance=Provenance.SIMULATED)


@pytest.mark.parametrize(
    ("technique", "out", "fits"),
    [
        ("fuse_elementwise_kernels", at_hand(), at_hand(launches=2)),
        ("register_tiling", at_hand(), at_hand(task=PRODUCT)),
        ("single_pass_variance", at_hand(), at_hand(task=NORM)),
        ("online_softmax", at_hand(applied=frozenset({"cache_row_in_registers"})), at_hand()),
        ("online_softmax", at_hand(task=NORM), at_hand()),
        ("unroll_loop", at_hand(applied=frozenset({"unroll_loop"}), source=LOOP),
         at_hand(source=LOOP)),
        ("unroll_loop", at_hand(source="out[i] = x[i];"), at_hand(source=LOOP)),
        ("software_prefetch", at_hand(source="out[i] = x[i];"), at_hand(source=LOOP)),
        ("predicated_tail", at_hand(source="out[i] = x[i];"), at_hand(source="if (i < N)")),
        ("index_strength_reduction", at_hand(source="out[i] = x[i]; // all"),
         at_hand(source="int row = i / WIDTH;")),
        ("constant_memory_parameters", at_hand(source="__constant__ float table[8];"), at_hand()),
        ("occupancy_launch_bounds", at_hand({"launch__registers_per_thread": 32.0}),
         at_hand({"launch__registers_per_thread": 96.0})),
        ("thread_coarsening", at_hand(), at_hand()._replace(profile=many_blocks())),
        ("shrink_code", at_hand(FETCHED | {STALLS.format("no_instruction"): 0.0}),
         at_hand(FETCHED | {STALLS.format("no_instruction"): 0.3})),
        ("fast_math", at_hand(source="sum += a[i] * b[i]; grid((n + 31) / 32);"),
         at_hand(source="y[i] = expf(x[i]);")),
        ("fast_math", at_hand(source="i / 2"), at_hand(source="out[i] = (1.0f / total) * x;")),
        ("fast_math", at_hand(source="dim3 grid((DIM_N + TILE - 1) / TILE);"),
         at_hand(source="y[i] = x[i] / total;")),
        ("loop_interchange", at_hand({SECTORS.format("ld"): 4.0, SECTORS.format("st"): 4.0}),
         at_hand({SECTORS.format("ld"): 4.0, SECTORS.format("st"): 32.0})),
        ("loop_interchange",
         at_hand({USED.format("ld"): 12.0, SECTORS.format("ld"): 2.0}),
         at_hand({USED.format("ld"): 12.0, SECTORS.format("ld"): 31.0})),
        ("loop_interchange", at_hand({USED.format("ld"): 32.0, USED.format("st"): 32.0}),
         at_hand({USED.format("ld"): 32.0, USED.format("st"): 4.0})),
        ("pad_shared_memory",
         at_hand({"memory_l1_wavefronts_shared": 8.0, "memory_l1_wavefronts_shared_ideal": 8.0}),
         at_hand({"memory_l1_wavefronts_shared": 64.0, "memory_l1_wavefronts_shared_ideal": 8.0})),
        ("split_k", at_hand({"launch__waves_per_multiprocessor": 3.0}, task=PRODUCT),
         at_hand({"launch__waves_per_multiprocessor": 0.2}, task=PRODUCT)),
        ("persistent_kernel", at_hand({"launch__waves_per_multiprocessor": 0.5}),
         at_hand({"launch__waves_per_multiprocessor": 7.8})),
        ("remove_barriers", at_hand(source="int a;"), at_hand()),
        ("warp_aggregated_atomics", at_hand(), at_hand(source="atomicAdd(out, x);")),
        ("two_stage_reduction", at_hand(), at_hand(source="atomicAdd(out, x);")),
        ("parallelize_row_reduction", at_hand(source="__shfl_down_sync"), at_hand()),
        ("block_row_reduction", at_hand(source="__shared__ a; __shfl_xor_sync; __syncthreads();"),
         at_hand(source="__shfl_xor_sync")),
        ("cp_async_pipeline", at_hand({"launch__shared_mem_per_block_static": 32.0}),
         at_hand({"launch__shared_mem_per_block_static": 8192.0})),
        ("cp_async_pipeline", at_hand({"launch__shared_mem_per_block_static": 8192.0},
                                      source="__pipeline_commit();"),
         at_hand({"launch__shared_mem_per_block_static": 8192.0})),
        ("double_buffering", at_hand({"launch__shared_mem_per_block_static": 8192.0},
                                     source="cp.async.bulk.shared::cluster.global"),
         at_hand({"launch__shared_mem_per_block_static": 8192.0})),
        ("read_only_cache", at_hand(source="const float* __restrict__ x"), at_hand()),
        ("grid_stride_loop", at_hand(terms={"dram": 9.0, "launch": 0.2}),
         at_hand(terms={"dram": 9.0, "launch": 5.0})),
        ("half2_arithmetic", at_hand(),
         at_hand(task=SOFTMAX.model_copy(update={"dtype": "float16"}))),
        ("tensor_cores_wmma", at_hand(task=PRODUCT),
         at_hand(task=PRODUCT.model_copy(update={"dtype": "bfloat16"}))),
    ],
)  # fmt: skip
def test_a_technique_is_out_only_where_a_fact_says_so(
    technique: str, out: AtHand, fits: AtHand
) -> None:
    assert unfit([technique], out).get(technique)
    assert not unfit([technique], fits)


@pytest.mark.parametrize("name", techniques())
def test_each_technique_says_to_a_machine_when_it_cannot_act(name: str) -> None:
    technique = techniques()[name]
    assert technique.conditions or technique.unfit or technique.precondition


def test_what_nothing_is_known_of_may_act() -> None:
    assert not unfit(["a_new_technique"], at_hand())
    assert not unfit(["loop_interchange"], at_hand()), "not counted is not without waste"
    unread = SOFTMAX.model_copy(update={"program": None})
    assert not unfit(["register_tiling", "winograd_convolution"], at_hand(task=unread))


# Which techniques are heard of follows from the operators of the task, and from the device -----


def convolution(
    shapes: tuple[tuple[int, ...], ...], stride: int = 1, transposed: bool = False
) -> Task:
    """A two-dimensional convolution of x by w; shapes of both and of the result."""
    name = "conv_transpose2d.input" if transposed else "conv2d.default"
    made = node("conv", f"aten.{name}", [ref("x"), ref("w"), None, [stride, stride]], shapes[2])
    inputs = {"x": (shapes[0],) * 2, "w": (shapes[1],) * 2}
    return task("convolution", inputs, [made], {"conv": (shapes[2],) * 2})


def pool(taps: int, stride: int) -> Task:
    made = node("pool", "aten.max_pool2d.default", [ref("x"), [taps, taps], [stride, stride]],
                (1, 1, 8, 8))  # fmt: skip
    given = (1, 1, 8 * stride + taps - stride, 8 * stride + taps - stride)
    return task("pool", {"x": (given, given)}, [made], {"pool": ((1, 1, 8, 8),) * 2})


def vector_product() -> Task:
    shape = ((512, 256), (33, 20))
    made = node("mv", "aten.mv.default", [ref("a"), ref("b")], (512,))
    inputs = {"a": shape, "b": ((256,), (20,))}
    return task("vector", inputs, [made], {"mv": ((512,), (33,))})


def scan() -> Task:
    shape = ((64, 4096), (3, 40))
    made = node("scan", "aten.cumsum.default", [ref("x"), 1], shape[0])
    return task("scan", {"x": shape}, [made], {"scan": shape})


def column_sum() -> Task:
    shape = ((64, 4096), (3, 40))
    made = node("sum", "aten.sum.dim_IntList", [ref("x"), [0]], (4096,))
    return task("columns", {"x": shape}, [made], {"sum": ((4096,), (40,))})


def rows_of(columns: int) -> Task:
    return softmax_task(columns)


WIDE = convolution(((1, 32, 16, 16), (64, 32, 3, 3), (1, 64, 14, 14)))
STRIDED = convolution(((1, 32, 33, 33), (64, 32, 3, 3), (1, 64, 16, 16)), stride=2)
DEPTHWISE = convolution(((1, 32, 16, 16), (32, 1, 3, 3), (1, 32, 14, 14)))
UPWARDS = convolution(((1, 32, 16, 16), (32, 64, 3, 3), (1, 64, 33, 33)), 2, transposed=True)
TURNED = convolution(((1, 32, 14, 14), (32, 64, 3, 3), (1, 64, 16, 16)), transposed=True)
HALF = {"dtype": "float16"}


@pytest.mark.parametrize(
    ("technique", "others", "fits"),
    [
        ("tensor_cores_wmma", [SOFTMAX.model_copy(update=HALF), NORM.model_copy(update=HALF)],
         PRODUCT.model_copy(update=HALF)),
        ("split_precision_products", [SOFTMAX, gelu_task(), PRODUCT.model_copy(update=HALF)],
         PRODUCT),
        ("register_tiling", [SOFTMAX, gelu_task(), transpose_task(), scan()], WIDE),
        ("parallelize_row_reduction", [PRODUCT, gelu_task(), WIDE, scan()], vector_product()),
        ("block_row_reduction", [PRODUCT, gelu_task(), WIDE, pool(3, 1)], NORM),
        ("cache_row_in_registers", [PRODUCT, gelu_task()], NORM),
        ("single_pass_variance", [SOFTMAX, PRODUCT, gelu_task()], NORM),
        ("drop_max_subtraction", [NORM, PRODUCT, gelu_task()], SOFTMAX),
        ("implicit_gemm_convolution", [PRODUCT, SOFTMAX, DEPTHWISE], STRIDED),
        ("winograd_convolution", [PRODUCT, STRIDED, DEPTHWISE, UPWARDS], WIDE),
        ("gather_transposed_convolution", [PRODUCT, WIDE, STRIDED, TURNED], UPWARDS),
        ("separable_pooling", [PRODUCT, WIDE, pool(2, 2)], pool(3, 1)),
        ("column_reduction", [SOFTMAX, PRODUCT, gelu_task()], column_sum()),
        ("algebraic_simplification", [SOFTMAX, PRODUCT], transpose_task()),
        ("single_pass_scan", [PRODUCT, SOFTMAX], scan()),
        ("partial_top_k", [PRODUCT, SOFTMAX, scan()],
         task("top", {"x": ((64, 64),) * 2},
              [node("top", "aten.topk.default", [ref("x"), 4], (64, 4))],
              {"top": ((64, 4),) * 2})),
        ("several_rows_per_warp", [rows_of(1024), PRODUCT], rows_of(48)),
        ("shuffle_transpose", [PRODUCT, SOFTMAX], transpose_task()),
    ],
)  # fmt: skip
def test_a_task_hears_of_what_its_operators_need(
    technique: str, others: list[Task], fits: Task
) -> None:
    for other in others:
        assert unfit([technique], at_hand(task=other)) == {technique: OTHER_TASK}, other.name
    assert not unfit([technique], at_hand(task=fits))


@pytest.mark.parametrize("gpu", ["A100", "L40S", "H100"])
@pytest.mark.parametrize("provenance", [Provenance.SIMULATED, Provenance.NCU])
def test_a_device_hears_of_instructions_that_it_runs(gpu: str, provenance: Provenance) -> None:
    profile = Profile(launches=(launch(),), gpu=gpu, provenance=provenance)
    out = unfit(techniques(), at_hand(task=PRODUCT)._replace(profile=profile))
    hopper = gpu == "H100" and provenance is Provenance.NCU
    assert (out.get("wgmma_products") is None) == hopper
    assert (out.get("thread_block_clusters") is None) == hopper
    assert out.get("split_precision_products") is None


def test_nobody_is_told_of_what_no_rewrite_of_the_task_could_use() -> None:
    products = {
        name for name, reason in unfit(techniques(), at_hand()).items() if reason == OTHER_TASK
    }
    assert {"wgmma_products", "split_precision_products", "stream_k", "tile_rasterization",
            "winograd_convolution", "register_tiling", "partial_top_k"} <= products  # fmt: skip
    assert not {"fast_math", "vectorize_memory_access", "persistent_kernel"} & products


@pytest.mark.parametrize("name", techniques())
def test_conditions_are_on_facts_that_there_are(name: str) -> None:
    for condition in techniques()[name].conditions:
        assert misnamed(condition) is None
        if condition.feature == "operators":
            assert isinstance(condition.value, tuple) and len(condition.value) > 1


def test_operators_are_named_as_graphs_name_them() -> None:
    families = {
        name: value for name, value in vars(operators).items()
        if name.isupper() and isinstance(value, tuple)
    }  # fmt: skip
    assert len(families) > 12
    for name, family in families.items():
        assert all(word.isidentifier() and not word.endswith("_") for word in family), name
