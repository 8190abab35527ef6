"""A kernel's own part of a module: what a launch counts is then as long as the kernel.

A file may have hundreds of kernels, one for each of its launches.
"""

from __future__ import annotations

from dataclasses import replace

from ..ptx.records import Function, Module
from .operands import reachable


def own_part(module: Module, kernel: str) -> tuple[Module, dict[int, int]]:
    """Return the module with one kernel and what that calls, and where its instructions are now.

    No function of the module may be called by its address, which hangs on its place among them.
    """
    functions, _ = reachable(module, module.functions[kernel])
    names = {function.name for function in functions}
    part = replace(module, functions={}, instructions=[])
    places: dict[int, int] = {}
    for name, function in module.functions.items():
        if name not in names:
            continue
        first = len(part.instructions)
        part.functions[name] = _moved(function, first - function.first)
        for old in module.instructions[function.first : function.last]:
            places[old.index] = len(part.instructions)
            part.instructions.append(replace(old, index=len(part.instructions)))
    return part, places


def _moved(function: Function, by: int) -> Function:
    return replace(
        function,
        first=function.first + by,
        last=function.last + by,
        labels={name: index + by for name, index in function.labels.items()},
        pragmas=[(index + by, words) for index, words in function.pragmas],
    )
