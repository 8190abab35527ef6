"""cache_row_in_registers: what several passes read of a row is loaded once and kept."""

from __future__ import annotations

from dataclasses import replace

from ...harness.records.tasks import Task
from ..rewriting.kernels.recognised import first_changed
from ..rewriting.kernels.row_kernel import RowKernel, row_kernels, written
from ..rewriting.records import Kernels, NotRecognised, Outcome, Parameters, Rewritten
from .conditions import computes, read_once
from .operators import ROWS
from .technique import Technique


def technique() -> Technique:
    """Return the technique."""
    return Technique(
        name="cache_row_in_registers",
        description=(
            "Read each row once into registers and make all passes (maximum, sum, normalise) over "
            "the registers."
        ),
        applies_when=(
            "A row operation with several passes over the same row, and rows short enough: "
            "elements per thread at most about 32."
        ),
        avoid_when=(
            "Rows are too long: arrays that do not fit registers spill to local memory, which is "
            "worse than reading L1 again. The trip count is not a compile-time constant."
        ),
        side_effects="Registers per thread grow by the elements kept; occupancy falls.",
        notes=(
            "float values[COLUMNS / threads_per_row] per thread, fully unrolled loops so that "
            "indices are constants; global traffic falls from three reads and one write per "
            "element to one and one."
        ),
        sources=(
            'CUDA C++ Best Practices Guide, "Local Memory"',
            'CUDA C++ Programming Guide, "Device Memory Accesses"',
        ),
        change=_apply,
        conditions=(computes(*ROWS),),
        unfit=read_once,
    )


def _apply(source: str, task: Task, parameters: Parameters, kernels: Kernels) -> Outcome:
    def change(found: RowKernel) -> Rewritten:
        if found.body.cached:
            raise NotRecognised("the row is kept in registers already")
        if found.body.mapping == "thread":
            raise NotRecognised("one thread cannot keep a whole row: share the row first")
        text = written(found, replace(found.body, cached=True))
        return Rewritten(source=text, note=f"{found.kernel.name}: the row is read once")

    return first_changed(row_kernels(source, task, kernels), change)
