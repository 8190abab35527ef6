"""What the proposer is not shown: techniques that cannot act on a kernel, and only those."""

from __future__ import annotations

from typing import Any

import pytest
from builtin_support import norm_task, product_task, softmax_task

from kernelblaster.harness.records import LaunchProfile, Profile, Provenance
from kernelblaster.tools.techniques.catalogue import unfit
from kernelblaster.tools.techniques.conditions import AtHand

SOFTMAX = softmax_task().model_copy(update={"op_class": "softmax"})
NORM = norm_task().model_copy(update={"op_class": "normalization"})
PRODUCT = product_task().model_copy(update={"op_class": "matmul"})
USED = "smsp__sass_average_data_bytes_per_sector_mem_global_op_{}.ratio"
SECTORS = "l1tex__average_t_sectors_per_request_pipe_lsu_mem_global_op_{}.ratio"


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


@pytest.mark.parametrize(
    ("technique", "out", "fits"),
    [
        ("fuse_elementwise_kernels", at_hand(), at_hand(launches=2)),
        ("register_tiling", at_hand(), at_hand(task=PRODUCT)),
        ("single_pass_variance", at_hand(), at_hand(task=NORM)),
        ("online_softmax", at_hand(applied=frozenset({"cache_row_in_registers"})), at_hand()),
        ("online_softmax", at_hand(task=NORM), at_hand()),
        ("unroll_loop", at_hand(applied=frozenset({"unroll_loop"})), at_hand()),
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
    assert unfit(technique, out)
    assert unfit(technique, fits) is None


def test_what_nothing_is_known_of_may_act() -> None:
    assert unfit("a_new_technique", at_hand()) is None
    assert unfit("loop_interchange", at_hand()) is None, "not counted is not without waste"
