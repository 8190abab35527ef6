"""Techniques as changes of source text: what agents do to a kernel without a language model."""

from __future__ import annotations

from ...harness.records import Task
from ..rewriting.records import Inapplicable, Outcome, Parameters, Rewritten
from ..rewriting.rewrite import Rewrite
from . import (
    block_row_reduction,
    cache_row_in_registers,
    drop_max_subtraction,
    fast_math,
    grid_stride_loop,
    pad_shared_memory,
    parallelize_row_reduction,
    read_only_cache,
    register_tiling,
    remove_barriers,
    shared_memory_tiling,
    single_pass_variance,
    thread_coarsening,
    transpose_through_shared_memory,
    tune_block_size,
    unroll_loop,
    vectorize_memory_access,
)

__all__ = [
    "Inapplicable", "Outcome", "Parameters", "Rewrite", "Rewritten", "applicable", "rewrites",
]  # fmt: skip


def rewrites() -> tuple[Rewrite, ...]:
    """Return every technique the library can apply, in alphabetical order."""
    modules = (
        block_row_reduction,
        cache_row_in_registers,
        drop_max_subtraction,
        fast_math,
        grid_stride_loop,
        pad_shared_memory,
        parallelize_row_reduction,
        read_only_cache,
        register_tiling,
        remove_barriers,
        shared_memory_tiling,
        single_pass_variance,
        thread_coarsening,
        transpose_through_shared_memory,
        tune_block_size,
        unroll_loop,
        vectorize_memory_access,
    )
    return tuple(module.rewrite() for module in modules)


def applicable(source: str, task: Task) -> dict[str, str | None]:
    """Return for each technique None where it applies, else the reason why not.

    A technique applies when it does with any one of its parameter values.
    """
    found: dict[str, str | None] = {}
    for rewrite in rewrites():
        outcomes = [rewrite.apply(source, task, choice) for choice in _choices(rewrite)]
        refused = [item.reason for item in outcomes if isinstance(item, Inapplicable)]
        found[rewrite.technique] = refused[0] if len(refused) == len(outcomes) else None
    return found


def _choices(rewrite: Rewrite) -> list[dict[str, int]]:
    """Return one choice for each value of each parameter, the others at their first."""
    if not rewrite.parameters:
        return [{}]
    return [{name: value} for name, values in rewrite.parameters.items() for value in values]
