"""Small references made of an expression, and their cases, in the test's own process."""

from __future__ import annotations

from kernelblaster.harness.records.variations import Variation
from kernelblaster.harness.reference.cases.case import Case
from kernelblaster.harness.reference.cases.distributions import Usual, first_finite
from kernelblaster.harness.reference.loading.model import Reference
from kernelblaster.harness.task.rules import CASES

HEAD = """
import torch
import torch.nn as nn
import torch.nn.functional as F

N = 64


"""
MODEL = """class Model(nn.Module):
    def __init__(self):
        super().__init__()
        {init}

    def forward(self, {names}):
        return {body}


def get_inputs():
    return [{inputs}]
"""
"""Text of a model: `init`, the `names` that forward() takes, its `body`, and the `inputs`."""
X = "torch.randn(N, 40)"


def reference(body: str, inputs: str = X, names: str = "x", init: str = "pass") -> Reference:
    """Return a task whose forward() is one expression; N is 64."""
    text = (HEAD + MODEL).format(init=init, names=names, body=body, inputs=inputs)
    return Reference(text, "task.py", {"N": 64})


def cases(made: Reference, variation: Variation) -> list[Case]:
    """Return all the cases that a candidate is verified on, in the order of CASES."""
    found: list[Case] = []
    usual = None
    for number, name, _ in CASES:
        case, how = first_finite(made, variation, number, name, usual)
        usual = usual or Usual(how.still, case.finite, [(o.shape, o.dtype) for o in case.outputs])
        found.append(case)
    return found
