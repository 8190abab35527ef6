"""thread_coarsening: a thread computes several elements, a block's width apart."""

from __future__ import annotations

from dataclasses import replace

from ...harness.records import Task
from ..rewriting.element_kernel import element_kernels, written
from ..rewriting.records import Inapplicable, Outcome, Parameters, Rewritten
from ..rewriting.rewrite import Rewrite


def rewrite() -> Rewrite:
    """Return the technique; `items` is the number of elements (or packs) a thread takes."""
    return Rewrite("thread_coarsening", _apply, {"items": (4, 2)})


def _apply(source: str, task: Task, parameters: Parameters) -> Outcome:
    items = parameters["items"]
    for found in element_kernels(source, task):
        if not found.body.stride and found.body.items != items:
            text = written(found, replace(found.body, items=items))
            return Rewritten(source=text, note=f"{found.kernel.name}: {items} a thread")
    return Inapplicable(reason=f"a thread takes {items} elements already, or strides over the grid")
