"""Which known techniques cannot act on a kernel, by facts of its task, its code and its profile.

For prompts alone: it shortens what a model reads. What may be tried is the proposal table's matter.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import NamedTuple

from ...harness.records import Profile, Task

WITH_PRODUCTS = ("matmul", "mixed")
"""Classes of operation that tensor cores can serve."""
OVER_ROWS = ("softmax", "normalization", "reduction", "mixed")
APPLIED_GAIN = 1.01
"""Gain above which a technique counts as applied to a file."""
FULL_SECTOR = 31.0
"""Bytes used of the 32 of a sector from which none are wasted."""
CONSECUTIVE = 4.5
"""Sectors of a request up to which the lanes of a warp read consecutive words, or shared ones."""

SMALL_SHARED = 1024
"""Bytes of shared memory of a block below which no tiles are staged there."""
HIDDEN_LAUNCH = 0.1
"""Share of the first resource's time below which the rate of blocks holds nothing back."""
OTHER_CLASS = "not for this class of operation"

CLASSES: dict[str, tuple[str, ...]] = {
    "shared_memory_tiling": WITH_PRODUCTS,
    "register_tiling": WITH_PRODUCTS,
    "split_k": WITH_PRODUCTS,
    "tensor_cores_wmma": WITH_PRODUCTS,
    "kernel_fusion_epilogue": WITH_PRODUCTS,
    "single_pass_variance": ("normalization", "reduction", "mixed"),
    "online_softmax": ("softmax", "mixed"),
    "drop_max_subtraction": ("softmax", "mixed"),
    "parallelize_row_reduction": OVER_ROWS,
    "block_row_reduction": OVER_ROWS,
    "cache_row_in_registers": OVER_ROWS,
    "two_stage_reduction": OVER_ROWS,
}
"""Classes of operation that a technique can serve; those not named serve all."""

PRECONDITIONS = {
    "drop_max_subtraction": (
        "leaves out softmax's maximum pass; only where the values before it are bounded "
        "(|x| < 80): the tests' inputs go to 128"
    ),
}
"""Techniques that the tests forbid but for a condition, which is told instead of their card."""


class AtHand(NamedTuple):
    """What is known of a kernel."""

    task: Task
    source: str
    profile: Profile
    applied: frozenset[str]
    """Techniques that gained on the way to it."""

    def metric(self, name: str) -> float | None:
        """Return a metric of the longest launch."""
        return self.profile.dominant.metrics.get(name)


def unfit(technique: str, at_hand: AtHand) -> str | None:
    """Return why a technique cannot act on a kernel in a few words; None where nothing says so."""
    if technique in at_hand.applied:
        return "applied already, with gain"
    op_class = at_hand.task.op_class
    if op_class not in CLASSES.get(technique, (op_class,)):
        return OTHER_CLASS
    rule = _RULES.get(technique)
    return rule(at_hand) if rule else None


def _one_launch(at_hand: AtHand) -> str | None:
    return "there is one launch" if len(at_hand.profile.launches) == 1 else None


def _no_half(at_hand: AtHand) -> str | None:
    half = at_hand.task.dtype in ("float16", "bfloat16")
    return None if half else f"the tensors are {at_hand.task.dtype}"


def _tolerance(at_hand: AtHand) -> str | None:
    return "rounded factors miss the tolerance" if at_hand.task.dtype == "float32" else None


def _in_registers(at_hand: AtHand) -> str | None:
    cached = "cache_row_in_registers" in at_hand.applied
    return "the rows are in registers" if cached else None


def _no_waste(at_hand: AtHand) -> str | None:
    known = 0
    for kind in ("ld", "st"):
        operation = f"mem_global_op_{kind}.ratio"
        used = at_hand.metric(f"smsp__sass_average_data_bytes_per_sector_{operation}")
        sectors = at_hand.metric(f"l1tex__average_t_sectors_per_request_pipe_lsu_{operation}")
        consecutive = sectors is not None and 0 < sectors <= CONSECUTIVE
        if used and used < FULL_SECTOR and not consecutive:
            return None
        if not used and sectors and not consecutive:
            return None  # a measured profile does not count the bytes that were used
        known += bool(used or consecutive)
    one = known and len(at_hand.profile.launches) == 1
    return "no bytes of the sectors are wasted" if one else None


def _no_conflicts(at_hand: AtHand) -> str | None:
    actual = at_hand.metric("memory_l1_wavefronts_shared")
    ideal = at_hand.metric("memory_l1_wavefronts_shared_ideal")
    if actual is None or ideal is None or len(at_hand.profile.launches) > 1:
        return None
    return "there are no bank conflicts" if actual <= 1.01 * ideal else None


def _filled(at_hand: AtHand) -> str | None:
    waves = at_hand.metric("launch__waves_per_multiprocessor")
    return "the grid fills the GPU" if waves is not None and waves >= 1.0 else None


def _one_wave(at_hand: AtHand) -> str | None:
    waves = at_hand.metric("launch__waves_per_multiprocessor")
    return "the grid is one wave or less" if waves is not None and waves <= 1.0 else None


def _no_atomics(at_hand: AtHand) -> str | None:
    return None if "atomic" in at_hand.source else "the file has no atomics"


def _no_partials(at_hand: AtHand) -> str | None:
    single = any(launch.grid == (1, 1, 1) for launch in at_hand.profile.launches)
    return None if single else _no_atomics(at_hand)


def _no_barriers(at_hand: AtHand) -> str | None:
    waits = "__syncthreads" in at_hand.source or ".sync(" in at_hand.source
    return None if waits else "the file has no barriers"


def _rows_shared(at_hand: AtHand) -> str | None:
    meets = "__shfl" in at_hand.source and len(at_hand.profile.launches) == 1
    return "threads share rows already" if meets else None


def _block_rows(at_hand: AtHand) -> str | None:
    meets = "__shared__" in at_hand.source and "__syncthreads" in at_hand.source
    return _rows_shared(at_hand) if meets else None


def _nothing_staged(at_hand: AtHand) -> str | None:
    static = at_hand.metric("launch__shared_mem_per_block_static") or 0.0
    shared = static + at_hand.profile.dominant.dynamic_shared_bytes
    small = shared < SMALL_SHARED and len(at_hand.profile.launches) == 1
    return "no tiles are staged in shared memory" if small else None


def _copied_ahead(at_hand: AtHand) -> str | None:
    ahead = re.search(r"pipeline_commit|cp\.async\.(commit|bulk)|memcpy_async", at_hand.source)
    return "tiles are copied ahead already" if ahead else _nothing_staged(at_hand)


def _launch_hidden(at_hand: AtHand) -> str | None:
    terms = at_hand.profile.dominant.terms
    if not terms or terms.get("launch", 0.0) >= HIDDEN_LAUNCH * max(terms.values()):
        return None
    return "the rate of blocks is no limit"


def _no_slow_functions(at_hand: AtHand) -> str | None:
    found = re.search(r"\b(exp|log|tanh|pow|sqrt|sin|cos|erf)\w*\s*\(", at_hand.source)
    return None if found or _DIVIDES.search(at_hand.source) else "it calls no slow function"


def _restricted(at_hand: AtHand) -> str | None:
    known = "__restrict__" in at_hand.source and len(at_hand.profile.launches) == 1
    return "pointers are __restrict__ already" if known else None


_DIVIDES = re.compile(r"\df\s*/|[\])]\s*/\s*(?![A-Z][A-Z0-9_]*\b)[A-Za-z(]")
"""A division of floating-point values, as far as the text shows it: CAPITALS are sizes."""
_RULES: dict[str, Callable[[AtHand], str | None]] = {
    "fuse_elementwise_kernels": _one_launch,
    "kernel_fusion_epilogue": _one_launch,
    "half2_arithmetic": _no_half,
    "tensor_cores_wmma": _tolerance,
    "online_softmax": _in_registers,
    "fast_math": _no_slow_functions,
    "loop_interchange": _no_waste,
    "transpose_through_shared_memory": _no_waste,
    "pad_shared_memory": _no_conflicts,
    "swizzle_shared_memory": _no_conflicts,
    "split_k": _filled,
    "persistent_kernel": _one_wave,
    "warp_aggregated_atomics": _no_atomics,
    "two_stage_reduction": _no_partials,
    "remove_barriers": _no_barriers,
    "parallelize_row_reduction": _rows_shared,
    "block_row_reduction": _block_rows,
    "double_buffering": _copied_ahead,
    "cp_async_pipeline": _copied_ahead,
    "grid_stride_loop": _launch_hidden,
    "read_only_cache": _restricted,
}
