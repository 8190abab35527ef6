"""thread_coarsening: a thread computes several elements, a block's width apart."""

from __future__ import annotations

from dataclasses import replace

from ...harness.records.tasks import Task
from ..rewriting.kernels.element_kernel import ElementKernel, element_kernels, written
from ..rewriting.kernels.recognised import first_changed
from ..rewriting.records import Kernels, NotRecognised, Outcome, Parameters, Rewritten
from .conditions import at_least
from .technique import Technique


def technique() -> Technique:
    """Return the technique; `factor` is the number of elements (or packs) a thread takes."""
    return Technique(
        name="thread_coarsening",
        moves=("-many_waves",),
        description="Let each thread handle several elements, interleaved by the block's width.",
        applies_when=(
            "Work per thread is a few instructions: launch rate, index arithmetic or latency with "
            "one load in flight is the limit."
        ),
        avoid_when="The grid is small: fewer threads would leave SMs empty.",
        side_effects="Smaller grid, more registers, more loads in flight per thread.",
        notes=(
            "Element j of a thread lies at base + j * blockDim.x so that accesses stay coalesced; "
            "issue all loads before the first use."
        ),
        parameters={"factor": (4, 2)},
        formerly={"items": "factor"},
        sources=(
            "Magni, Dubach and O'Boyle, \"A Large-Scale Cross-Architecture Evaluation "
            'of Thread-Coarsening" (SC 2013)',
            'Volkov, "Better Performance at Lower Occupancy" (GTC 2010)',
        ),
        change=_apply,
        conditions=(at_least("blocks_per_sm", 1.0),),
    )


def _apply(source: str, task: Task, parameters: Parameters, kernels: Kernels) -> Outcome:
    items = parameters["factor"]

    def change(found: ElementKernel) -> Rewritten:
        if found.body.stride or found.body.items == items:
            raise NotRecognised(
                f"a thread takes {items} elements already, or strides over the grid"
            )
        text = written(found, replace(found.body, items=items))
        return Rewritten(source=text, note=f"{found.kernel.name}: {items} a thread")

    return first_changed(element_kernels(source, task, kernels), change)
