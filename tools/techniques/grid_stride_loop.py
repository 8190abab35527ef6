"""grid_stride_loop: a grid of fixed size strides over the elements."""

from __future__ import annotations

from dataclasses import replace

from ...harness.records.tasks import Task
from ..rewriting.kernels.element_kernel import ElementKernel, element_kernels, written
from ..rewriting.kernels.recognised import first_changed
from ..rewriting.records import Kernels, NotRecognised, Outcome, Parameters, Rewritten
from .conditions import AtHand
from .technique import Technique

HIDDEN_LAUNCH = 0.1
"""Share of the first resource's time below which the rate of blocks holds nothing back."""


def technique() -> Technique:
    """Return the technique."""
    return Technique(
        name="grid_stride_loop",
        moves=("-many_waves",),
        description=(
            "Launch about as many blocks as fit the GPU and let each thread loop over the data "
            "with the grid's stride."
        ),
        applies_when=(
            "The launch rate of blocks is the limit: very many short blocks, each doing a few "
            "instructions."
        ),
        avoid_when=(
            "Each block's work is long already, or the loop prevents the compiler from knowing "
            "bounds."
        ),
        side_effects=(
            "A loop and its registers; fewer blocks, so the tail is shorter but imbalance shows."
        ),
        notes=(
            "for (i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += gridDim.x * blockDim.x). "
            "Grid of SMs times resident blocks, times 2 to 4. Use 32-bit indices when the size "
            "allows."
        ),
        sources=(
            'NVIDIA Technical Blog, "CUDA Pro Tip: Write Flexible Kernels with '
            'Grid-Stride Loops" (2013)',
        ),
        change=_apply,
        unfit=_launch_hidden,
    )


def _launch_hidden(at_hand: AtHand) -> str | None:
    terms = at_hand.seen.terms
    if not terms or terms.get("launch", 0.0) >= HIDDEN_LAUNCH * max(terms.values()):
        return None
    return "the rate of blocks is no limit"


def _apply(source: str, task: Task, parameters: Parameters, kernels: Kernels) -> Outcome:
    def change(found: ElementKernel) -> Rewritten:
        if found.body.stride:
            raise NotRecognised("threads stride over the grid already")
        text = written(found, replace(found.body, stride=True, items=1))
        return Rewritten(source=text, note=f"{found.kernel.name}: threads stride over the grid")

    return first_changed(element_kernels(source, task, kernels), change)
