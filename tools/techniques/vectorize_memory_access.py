"""vectorize_memory_access: neighbouring elements move as one access of 8 or 16 bytes."""

from __future__ import annotations

from dataclasses import replace

from ...harness.records import Task
from ..rewriting import element_kernel, row_kernel
from ..rewriting.launches import argument_of
from ..rewriting.records import Inapplicable, NotRecognised, Outcome, Parameters, Rewritten
from ..rewriting.rewrite import Rewrite
from ..rewriting.syntax import Kernel, Launch


def rewrite() -> Rewrite:
    """Return the technique; `width` is the number of elements an access moves."""
    return Rewrite("vectorize_memory_access", _apply, {"width": (4, 2)})


def _apply(source: str, task: Task, parameters: Parameters) -> Outcome:
    width = parameters["width"]
    reasons = []
    for family in (_elements, _rows):
        try:
            return family(source, task, width)
        except NotRecognised as reason:
            reasons.append(str(reason))
    return Inapplicable(reason="; ".join(reasons))


def _elements(source: str, task: Task, width: int) -> Outcome:
    for found in element_kernel.element_kernels(source, task):
        if found.body.width == width:
            continue
        pair = found.constants.pair(element_kernel.known_count(found))
        if pair is None:
            raise NotRecognised("the number of elements is not a constant of the task")
        if pair.full % 2:
            raise NotRecognised("the number of elements is odd")
        _require_whole_tensors(found.kernel, found.launch)
        body = replace(found.body, width=width)
        text = element_kernel.written(found, body)
        return Rewritten(source=text, note=f"{found.kernel.name}: accesses of {width} elements")
    raise NotRecognised(f"accesses are {width} elements wide already")


def _rows(source: str, task: Task, width: int) -> Outcome:
    for found in row_kernel.row_kernels(source, task):
        if found.body.width == width:
            continue
        pair = found.constants.pair(row_kernel.known_columns(found))
        if pair is None:
            raise NotRecognised("the number of columns is not a constant of the task")
        if pair.full % 2:
            raise NotRecognised("the number of columns is odd")
        _require_whole_tensors(found.kernel, found.launch)
        text = row_kernel.written(found, replace(found.body, width=width))
        return Rewritten(source=text, note=f"{found.kernel.name}: accesses of {width} elements")
    raise NotRecognised(f"accesses are {width} elements wide already")


def _require_whole_tensors(kernel: Kernel, launch: Launch) -> None:
    """Check that the launch passes pointers as it got them: those are aligned."""
    for parameter in kernel.parameters:
        given = argument_of(kernel, launch, parameter.name)
        if parameter.is_pointer and given is not None and not given.isidentifier():
            raise NotRecognised(f"{given} may not be aligned")
