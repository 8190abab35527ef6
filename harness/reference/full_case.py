"""Runs inside the reference child: one case at full dimensions, with as little memory as it can.

Its rows differ in their distribution, so that a kernel wrong on one of them is found at the size at
which it is timed. Every page that a process touches for the first time costs more than most of the
arithmetic: nothing is copied that need not be, and the answer in double precision is left for where
it is asked for.
"""

from __future__ import annotations

import json
import math
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import torch

from ..judge.tensor_comparison import largest_error
from ..records import TOLERANCES
from .case import Case, all_finite, root_mean_square, write_tensor
from .cases import OFFSETS, Draw, draw, redrawn
from .model import Instance, Reference

SEED = 11
"""None of the seeds of the cases at shrunken dimensions."""

OWN_ERROR_FACTOR = 32.0
"""As case.OWN_ERROR_FACTOR, at full dimensions, where sums are longer."""

ROWS = ("large", "offset", "constant", "zeros", "uniform", "gaussian")
"""Distributions of rows, after one that get_inputs() gives: they take turns."""
KINDS = len(ROWS) + 1

FACTORS = (128.0, 8.0)
"""Of rows of large magnitude: the first that PyTorch survives is used."""


class _How(NamedTuple):
    """How the case was drawn: enough to draw it again."""

    factor: float
    """0 where all rows are as get_inputs() gives them."""
    disturbed: bool


_HOW = (*(_How(factor, True) for factor in FACTORS), _How(0.0, True), _How(0.0, False))
"""From the most demanding to the least."""


def write_full_case(
    reference: Reference, inputs: Path, answers: Path, shapes: Sequence[Sequence[int]]
) -> None:
    """Write what `launch` is given, and apart from it the answers. Raises ReferenceFault.

    `shapes` are the outputs'; what rows an input has in common with them may differ.

    answers/case.json holds {"tolerances": one of each output, "rows": what rows hold, "drawn": how
    the case was drawn, "exact": false}: PyTorch's own error is not in these tolerances yet.
    """
    for how in _HOW:
        instance, row_axes = _draw(reference, how, shapes)
        if how.factor and not row_axes:
            continue
        # forward() may change its inputs: they are written before.
        for tensors in (instance.inputs, instance.parameters, instance.buffers):
            for name, tensor in tensors.items():
                write_tensor(inputs / f"{name}.bin", tensor)
        outputs = reference.outputs(instance.model, instance.arguments)
        if all_finite(outputs):
            break
    for index, answer in enumerate(outputs):
        write_tensor(answers / f"out{index}.bin", answer)
    described = {
        "tolerances": [_tolerance(answer, None, row_axes) for answer in outputs],
        "rows": ["own", *(ROWS if row_axes else ())],
        "drawn": how,
        "shapes": shapes,
        "exact": False,
    }
    (answers / "case.json").write_text(json.dumps(described), encoding="utf-8")


def widen_tolerances(reference: Reference, answers: Path) -> None:
    """Answer the case again in double precision, and give its tolerances room for PyTorch's error.

    Raises ReferenceFault.
    """
    described = json.loads((answers / "case.json").read_text(encoding="utf-8"))
    shapes = described["shapes"]
    instance, row_axes = _draw(reference, _How(*described["drawn"]), shapes)
    case = Case(reference, instance)
    described |= {
        "tolerances": [
            _tolerance(answer, exact, row_axes, widened=True)
            for answer, exact in zip(case.outputs, case.exact, strict=True)
        ],
        "exact": True,
    }
    new = answers / f"case.json.{os.getpid()}"
    new.write_text(json.dumps(described), encoding="utf-8")
    new.replace(answers / "case.json")


def _draw(
    reference: Reference, how: _How, shapes: Sequence[Sequence[int]]
) -> tuple[Instance, int]:
    """Return an instance, and how many leading axes count its rows; 0 where all are alike."""
    instance = draw(reference, Draw(SEED, "normal", how.disturbed, factor=1.0, positive=False))
    if not how.factor:
        return instance, 0
    mixed = {
        name: tensor
        for name, tensor in instance.inputs.items()
        if tensor.is_floating_point() and tensor.is_contiguous() and not _has_structure(tensor)
        and all(_shared_axes(tensor.shape, shape) for shape in shapes)
    }  # fmt: skip
    if not mixed:
        return instance, 0
    most = min(_shared_axes(t.shape, shape) for t in mixed.values() for shape in shapes)
    first = next(iter(mixed.values()))
    axes = next(
        (n for n in range(1, most) if math.prod(first.shape[:n]) >= KINDS), most
    )  # fmt: skip
    generator = torch.Generator(reference.device).manual_seed(SEED + 2000)
    factors = {"large": how.factor, "offset": OFFSETS[0]}
    with torch.no_grad():
        for tensor in mixed.values():
            rows = tensor.view(math.prod(tensor.shape[:axes]), -1)
            positive = bool((tensor >= 0).all())
            for kind, name in enumerate(ROWS, 1):
                if kind < len(rows):
                    part = rows[kind::KINDS]
                    change = Draw(SEED, name, True, factors.get(name, 1.0), positive)
                    part.copy_(redrawn(part, change, generator))
    return instance, axes


def _shared_axes(shape: Sequence[int], output: Sequence[int]) -> int:
    """Return how many leading axes of an input are an output's too: its last axis is no row."""
    shared = 0
    for mine, its in zip(shape, output, strict=False):
        if mine != its:
            break
        shared += 1
    return min(shared, max(1, len(shape) - 1))


def _has_structure(tensor: torch.Tensor) -> bool:
    """Say whether zeros or symmetry of a tensor are what the task is about."""
    if float((tensor == 0).float().mean()) > 0.1:
        return True
    square = tensor.dim() == 2 and tensor.shape[0] == tensor.shape[1]
    return square and bool(torch.equal(tensor, tensor.T))


def _tolerance(
    answer: torch.Tensor, exact: torch.Tensor | None, axes: int, *, widened: bool = False
) -> dict[str, Any]:
    """Return the tolerance of an output, its absolute part for each kind of row.

    It is relative to the root mean square of such rows, and of the rows that get_inputs() gives
    where those are larger: the elements of a softmax over thousands are all smaller than
    KernelBench's tolerance, and zeros would pass.

    Args:
        answer: PyTorch's.
        exact: the same in double precision; None where there is none.
        axes: how many leading axes count rows; 0 where all are alike.
        widened: with room for PyTorch's own error.
    """
    base = TOLERANCES.get(str(answer.dtype).removeprefix("torch."))
    numel, rows = answer.numel(), math.prod(answer.shape[:axes]) if axes else 1
    row = max(1, numel // max(1, rows))
    if base is None or not numel:
        return {"absolute": [0.0], "relative": 0.0, "row": row}
    kinds = min(KINDS, rows)
    values = answer.reshape(rows, row)
    found: list[float] = []
    for kind in range(kinds):
        part = values[kind::kinds]
        square = root_mean_square(part)
        scale = square if math.isfinite(square) else 1.0
        scale = max(scale, found[0] / base.absolute if kind else 0.0)
        error = 0.0
        if widened and exact is None:
            scale = max(1.0, scale)
        elif widened and exact is not None:
            error = OWN_ERROR_FACTOR * largest_error(part, exact.reshape(rows, row)[kind::kinds])
        found.append(max(base.absolute * scale, error))
    return {"absolute": found, "relative": base.relative, "row": row}
