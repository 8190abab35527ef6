"""Where does an answer lose what its inputs say? The operation that makes it constant, named."""

from __future__ import annotations

import copy
import sys
from typing import Any

import torch
from torch.overrides import TorchFunctionMode
from torch.utils._pytree import tree_leaves

from ...records.variations import Variation
from ...task.rules import TOLERANCES
from ..drawing.draws import Draw, draw
from ..loading.model import Instance, Reference, ReferenceFault, clone_arguments
from .case import fresh

SEEDS = (1, 2)


def constant_after(reference: Reference, variation: Variation) -> str:
    """Return which operation makes the answer the same whatever the inputs; empty where none does.

    The first whose result is the same for two inputs, though what it is given is not.
    """
    try:
        one, other = (
            traced(reference, draw(reference, Draw(seed, "gaussian"), variation))
            for seed in SEEDS
        )
    except (ReferenceFault, RuntimeError):
        return ""
    if [step.name for step in one] != [step.name for step in other]:
        return ""
    varies = [not _alike(a.result, b.result) for a, b in zip(one, other, strict=True)]
    for index, step in enumerate(one):
        fed = any(varies[before] for before in step.fed_by)
        if fed and not varies[index]:
            value = step.result.flatten()[0].item()
            words = f"{value:.4g}" if isinstance(value, float) else str(value)
            even = bool((step.result == step.result.flatten()[0]).all())
            result = f"{words} everywhere" if even else "the same numbers"
            return f"{step.name} in line {step.line} gives {result} whatever the input"
    return ""


class Step:
    """One operation: its name, its line in the file, its first result, which steps it reads."""

    def __init__(self, name: str, line: int, result: torch.Tensor, fed_by: list[int]) -> None:
        self.name, self.line, self.result, self.fed_by = name, line, result, fed_by


def traced(reference: Reference, instance: Instance) -> list[Step]:
    """Return the operations of forward(), in order; the instance stays as it is."""
    trace: _Trace = _Trace(reference.path)
    with trace:
        reference.outputs(
            copy.deepcopy(instance.model), clone_arguments(instance.arguments, fresh)
        )
    return trace.steps


class _Trace(TorchFunctionMode):  # type: ignore[misc]
    """Notes every operation that makes a tensor, the line it stands in, and what it is fed by."""

    def __init__(self, path: str) -> None:
        super().__init__()
        self.steps: list[Step] = []
        self._path = path
        self._made: dict[int, int] = {}
        self._held: list[torch.Tensor] = []

    def __torch_function__(
        self, function: Any, types: Any, args: Any = (), kwargs: Any = None
    ) -> Any:
        given = [each for each in tree_leaves((args, kwargs or {})) if torch.is_tensor(each)]
        result = function(*args, **(kwargs or {}))
        made = next((each for each in tree_leaves(result) if torch.is_tensor(each)), None)
        if made is not None:
            fed_by = [self._made[id(each)] for each in given if id(each) in self._made]
            name = getattr(function, "__name__", "an operation")
            self._made[id(made)] = len(self.steps)
            self._held.append(made)  # An id is a tensor's own while that is held.
            self.steps.append(Step(name, self._line(), fresh(made), fed_by))
        return result

    def _line(self) -> int:
        frame = sys._getframe(2)
        while frame is not None and frame.f_code.co_filename != self._path:
            frame = frame.f_back  # type: ignore[assignment]
        return frame.f_lineno if frame is not None else 0


def _alike(one: torch.Tensor, other: torch.Tensor) -> bool:
    """Say whether two results differ by no more than rounding."""
    if one.shape != other.shape:
        return False
    if not one.is_floating_point():
        return bool(torch.equal(one, other))
    dtype = str(one.dtype).removeprefix("torch.")
    base = TOLERANCES.get(dtype, TOLERANCES["bfloat16"])
    return bool(
        torch.allclose(one, other, rtol=base.relative, atol=base.absolute, equal_nan=True)
    )
