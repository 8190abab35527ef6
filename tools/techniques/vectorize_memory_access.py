"""vectorize_memory_access: neighbouring elements move as one access of 8 or 16 bytes."""

from __future__ import annotations

from dataclasses import replace

from ...harness.records.tasks import Task
from ..rewriting.kernels.element_kernel import ElementKernel, element_kernels, known_count
from ..rewriting.kernels.element_kernel import written as element_written
from ..rewriting.kernels.recognised import first_changed
from ..rewriting.kernels.row_kernel import RowKernel, known_columns, row_kernels
from ..rewriting.kernels.row_kernel import written as row_written
from ..rewriting.records import Inapplicable, Kernels, NotRecognised, Outcome, Parameters, Rewritten
from ..rewriting.source.launches import argument_of
from ..rewriting.source.syntax import Kernel, Launch, Source
from .conditions import at_least
from .technique import Technique


def technique() -> Technique:
    """Return the technique; `width` is the number of elements an access moves."""
    return Technique(
        name="vectorize_memory_access",
        moves=("-lsu",),
        description=(
            "Load and store 16 bytes per thread with float4 (or int4, or 8 packed halves) instead "
            "of one element."
        ),
        applies_when=(
            "Neighbouring threads read neighbouring elements, the inner size is a multiple of the "
            "vector width, and pointers are 16-byte aligned (allocations are aligned to 256 bytes)."
        ),
        avoid_when=(
            "Rows start at odd offsets, accesses are strided or gathered, or the grid is so small "
            "that fewer threads would leave SMs empty."
        ),
        side_effects=(
            "Fewer threads for the same data; a scalar tail is needed when the size is not a "
            "multiple; registers per thread go up."
        ),
        notes=(
            "Reinterpret the pointer as const float4*, divide the element count by 4, handle the "
            "tail in the same kernel. Fewer, wider requests raise bytes in flight per warp, which "
            "is what saturates DRAM at moderate occupancy."
        ),
        parameters={"width": (4, 2)},
        sources=(
            'NVIDIA Technical Blog, "CUDA Pro Tip: Increase Performance with '
            'Vectorized Memory Access" (2013)',
        ),
        change=_apply,
        conditions=(at_least("elements", 64.0),),
    )


def _apply(source: str, task: Task, parameters: Parameters, kernels: Kernels) -> Outcome:
    found: list[ElementKernel | RowKernel] = []
    reasons = []
    for read in (element_kernels, row_kernels):
        try:
            found += read(source, task, kernels)
        except NotRecognised as reason:
            reasons.append(str(reason))
    if not found:
        return Inapplicable(reason="; ".join(reasons))
    order = [kernel.name for kernel in Source(source).kernels(kernels)]
    found.sort(key=lambda each: order.index(each.kernel.name))
    return first_changed(found, lambda each: _widened(each, parameters["width"]))


def _widened(found: ElementKernel | RowKernel, width: int) -> Rewritten:
    if found.body.width == width:
        raise NotRecognised(f"accesses are {width} elements wide already")
    if isinstance(found, RowKernel):
        what, length = "columns", known_columns(found)
    else:
        what, length = "elements", known_count(found)
    pair = found.constants.pair(length)
    if pair is None:
        raise NotRecognised(f"the number of {what} is not a constant of the task")
    if pair.full % 2:
        raise NotRecognised(f"the number of {what} is odd")
    _require_whole_tensors(found.kernel, found.launch)
    if isinstance(found, RowKernel):
        text = row_written(found, replace(found.body, width=width))
    else:
        text = element_written(found, replace(found.body, width=width))
    return Rewritten(source=text, note=f"{found.kernel.name}: accesses of {width} elements")


def _require_whole_tensors(kernel: Kernel, launch: Launch) -> None:
    """Check that the launch passes pointers as it got them: those are aligned."""
    for parameter in kernel.parameters:
        for each in (launch, *launch.others):
            given = argument_of(kernel, each, parameter.name)
            if parameter.is_pointer and given is not None and not given.isidentifier():
                raise NotRecognised(f"{given} may not be aligned")
