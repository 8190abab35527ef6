"""grid_stride_loop: a grid of fixed size strides over the elements."""

from __future__ import annotations

from dataclasses import replace

from ...harness.records import Task
from ..rewriting.element_kernel import element_kernels, written
from ..rewriting.records import Inapplicable, Outcome, Parameters, Rewritten
from ..rewriting.rewrite import Rewrite


def rewrite() -> Rewrite:
    """Return the technique."""
    return Rewrite("grid_stride_loop", _apply)


def _apply(source: str, task: Task, parameters: Parameters) -> Outcome:
    for found in element_kernels(source, task):
        if not found.body.stride:
            text = written(found, replace(found.body, stride=True, items=1))
            return Rewritten(source=text, note=f"{found.kernel.name}: threads stride over the grid")
    return Inapplicable(reason="threads stride over the grid already")
