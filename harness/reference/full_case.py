"""Runs inside the reference child: one case at full dimensions, with as little memory as it can.

Every page that a process touches for the first time costs more than most of the arithmetic: nothing
is copied that need not be, and the answer in double precision is left for where it is asked for.
"""

from __future__ import annotations

import json
import os
import time
from pathlib import Path

from ..records import Tolerance, Variation
from .case import Case, is_cast, write_tensor
from .cases import seed_of
from .draws import Draw, draw
from .model import Reference
from .tolerances import all_finite, tolerance_of

SEED = 11
"""None of the seeds of the cases at shrunken dimensions."""

OWN_ERROR_FACTOR = 32.0
"""As tolerances.OWN_ERROR_FACTOR, at full dimensions, where sums are longer."""


def write_full_case(
    reference: Reference, inputs: Path, answers: Path, variation: Variation, secret: int = 0
) -> None:
    """Write what `launch` is given, and apart from it the answers. Raises ReferenceFault.

    answers/case.json holds {"tolerances": one of each output, "disturbed": how the case was drawn,
    "exact": false, "seconds": what making it took}: PyTorch's own error is not in these
    tolerances yet.
    """
    began = time.monotonic()
    for disturbed in (True, False):
        instance = draw(reference, _how(disturbed, secret), variation)
        # forward() may change its inputs: they are written before.
        for tensors in (instance.inputs, instance.parameters, instance.buffers):
            for name, tensor in tensors.items():
                write_tensor(inputs / f"{name}.bin", tensor)
        outputs = reference.outputs(instance.model, instance.arguments)
        if all_finite(outputs):
            break
    for index, answer in enumerate(outputs):
        write_tensor(answers / f"out{index}.bin", answer)
    tolerances = [
        tolerance_of(answer, None, scale="both", cast=is_cast(instance, answer))
        for answer in outputs
    ]
    described = {
        "tolerances": [each and each.model_dump() for each in tolerances],
        "disturbed": disturbed, "exact": False, "seconds": time.monotonic() - began,
    }  # fmt: skip
    (answers / "case.json").write_text(json.dumps(described), encoding="utf-8")


def widen_tolerances(
    reference: Reference, answers: Path, variation: Variation, secret: int = 0
) -> None:
    """Answer the case again in double precision, and give its tolerances room for PyTorch's error.

    Raises ReferenceFault.
    """
    described = json.loads((answers / "case.json").read_text(encoding="utf-8"))
    case = Case(reference, draw(reference, _how(described["disturbed"], secret), variation))
    before = [Tolerance.model_validate(each) for each in described["tolerances"]]
    wider = case.tolerances("both", OWN_ERROR_FACTOR)
    tolerances = [
        new and {"absolute": max(old.absolute, new.absolute), "relative": old.relative}
        for old, new in zip(before, wider, strict=True)
    ]
    described |= {"tolerances": tolerances, "exact": True}
    new = answers / f"case.json.{os.getpid()}"
    new.write_text(json.dumps(described), encoding="utf-8")
    new.replace(answers / "case.json")


def _how(disturbed: bool, secret: int) -> Draw:
    return Draw(seed_of(SEED, secret), "normal", still=not disturbed)
