"""Runs inside the reference child: one case at full dimensions, with as little memory as it can.

Every page that a process touches for the first time costs more than most of the arithmetic: nothing
is copied that need not be, and the answer in double precision is left for where it is asked for.
"""

from __future__ import annotations

import json
import math
import os
from pathlib import Path

import torch

from .case import Case, all_finite, each_tolerance, root_mean_square, write_tensor
from .cases import Draw, draw
from .model import Reference

SEED = 11
"""None of the seeds of the cases at shrunken dimensions."""

OWN_ERROR_FACTOR = 32.0
"""As case.OWN_ERROR_FACTOR, at full dimensions, where sums are longer."""


def write_full_case(reference: Reference, inputs: Path, answers: Path) -> None:
    """Write what `launch` is given, and apart from it the answers. Raises ReferenceFault.

    answers/case.json holds {"tolerances": one of each output, "disturbed": how the case was drawn,
    "exact": false}: PyTorch's own error is not in these tolerances yet.
    """
    for disturbed in (True, False):
        instance = draw(reference, _how(disturbed))
        # forward() may change its inputs: they are written before.
        for tensors in (instance.inputs, instance.parameters, instance.buffers):
            for name, tensor in tensors.items():
                write_tensor(inputs / f"{name}.bin", tensor)
        outputs = reference.outputs(instance.model, instance.arguments)
        if all_finite(outputs):
            break
    for index, answer in enumerate(outputs):
        write_tensor(answers / f"out{index}.bin", answer)
    tolerances = each_tolerance(outputs, [0.0] * len(outputs), _absolute)
    described = {"tolerances": tolerances, "disturbed": disturbed, "exact": False}
    (answers / "case.json").write_text(json.dumps(described), encoding="utf-8")


def widen_tolerances(reference: Reference, answers: Path) -> None:
    """Answer the case again in double precision, and give its tolerances room for PyTorch's error.

    Raises ReferenceFault.
    """
    described = json.loads((answers / "case.json").read_text(encoding="utf-8"))
    case = Case(reference, draw(reference, _how(described["disturbed"])))
    tolerances = each_tolerance(case.outputs, case.own_errors(), _absolute)
    described |= {"tolerances": tolerances, "exact": True}
    new = answers / f"case.json.{os.getpid()}"
    new.write_text(json.dumps(described), encoding="utf-8")
    new.replace(answers / "case.json")


def _how(disturbed: bool) -> Draw:
    return Draw(SEED, "normal", disturbed, factor=1.0, positive=False)


def _absolute(base: float, answer: torch.Tensor, error: float | None) -> float:
    """Return the absolute part of an output's tolerance; an error of None is an unknown one.

    It is relative to the root mean square of the output: the elements of a softmax over thousands
    are all smaller than KernelBench's tolerance, and zeros would pass.
    """
    square = root_mean_square(answer)
    scale = square if math.isfinite(square) else 1.0
    if error is None:
        scale, error = max(1.0, scale), 0.0
    return max(base * scale, OWN_ERROR_FACTOR * error)
