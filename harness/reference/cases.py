"""Runs inside the reference child: inputs over several distributions with PyTorch's answers.

Written for each case: every tensor of the launch signature as NAME.bin (outputs hold PyTorch's
answer on the CPU) and, for floating outputs, out<k>.f64.bin: the answer in double precision.
"""

from __future__ import annotations

import copy
import itertools
import json
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import torch

from ..records import Tolerance
from .case import Case, fresh
from .model import Instance, Reference, ReferenceFault, clone_arguments
from .mutants import Mutants

CASES = (
    (0, "normal", "as get_inputs() gives them"),
    (1, "gaussian", "normal distribution"),
    (2, "uniform", "uniform over [-1, 1)"),
    (3, "large", "normal distribution times a large factor"),
    (4, "constant", "each tensor holds one value"),
    (5, "zeros", "normal distribution, half of it exact zeros"),
    (6, "offset", "normal distribution around a value far from zero"),
)
"""(seed, name, what floating-point inputs hold). Integer inputs are always get_inputs()'s own."""

LARGE_FACTORS = (128.0, 32.0, 8.0, 2.0)
"""The first that PyTorch itself survives is used. exp() overflows in float32 above 88."""

OFFSETS = (16.0, 4.0)
"""The same, for how far from zero. A variance of 4096 values taken as E[x^2] - E[x]^2, summed in
order in float32, is there 5 times the tolerance off; two plain passes stay at a third of it. From
32 on plain kernels fail too in one row of thousands: that would refuse honest ones."""

_CONSTANTS = (0.5, -1.25, 2.0, 0.75)  # Exact in every floating type: sums of them are exact too.


def write_cases(reference: Reference, directory: Path) -> None:
    """Write all cases and cases.json. Raises ReferenceFault (also where forward() is random)."""
    insist, weak = True, Mutants(reference)
    described: list[dict[str, Any]] = []
    for index, (seed, name, meaning) in enumerate(CASES):
        case, how = first_finite(reference, seed, name, insist)
        if name == "normal":
            _refuse_random(reference, case)
            # Some references answer with infinities by design (masks): then so may all cases.
            insist = case.finite
        folder = directory / str(index)
        folder.mkdir()
        case.write(folder)
        tolerances = case.tolerances(scaled=name in ("large", "offset"))
        weak.try_case(case, [Tolerance.model_validate(each) for each in tolerances])
        described.append(
            {
                "name": f"seed{seed}-{name}",
                "directory": str(index),
                "inputs": meaning,
                "factor": how.factor,
                "tolerances": tolerances,
                "own_errors": case.own_errors(),
            }
        )
    document = {"cases": described, "weak_to": weak.weak_to(), "torch": torch.__version__}
    text = json.dumps(document, indent=1)
    (directory / "cases.json").write_text(text, encoding="utf-8")


class Draw(NamedTuple):
    """How the inputs and parameters of a case were chosen: enough to choose them again."""

    seed: int
    distribution: str
    disturbed: bool
    """Whether parameters and buffers that hold one value were changed."""
    factor: float
    positive: bool


def first_finite(
    reference: Reference, seed: int, distribution: str, insist: bool
) -> tuple[Case, Draw]:
    """Return a case and how it was drawn, from the most demanding that PyTorch survives.

    A logarithm wants positive inputs, an exponential small ones, and a parameter may not stand
    being disturbed; get_inputs()'s own values are the last resort. Raises ReferenceFault.
    """
    signs = (False,) if distribution == "normal" else (False, True)
    factors = {"large": LARGE_FACTORS, "offset": OFFSETS}.get(distribution, (1.0,))
    for disturbed, factor, positive in itertools.product((True, False), factors, signs):
        how = Draw(seed, distribution, disturbed, factor, positive)
        case = Case(reference, draw(reference, how))
        if case.finite or not insist:
            return case, how
    how = Draw(seed, "normal", disturbed=False, factor=1.0, positive=False)
    return Case(reference, draw(reference, how)), how


def draw(reference: Reference, how: Draw) -> Instance:
    """Return the model and the inputs of a case, the same each time. Raises ReferenceFault."""
    instance = reference.instance(how.seed)
    generator = torch.Generator(reference.device).manual_seed(how.seed + 1000)
    if how.disturbed:
        _disturb_constants(instance, generator)
    if how.distribution != "normal":
        change = _Inputs(how.distribution, how.factor, how.positive, generator)
        for tensor in instance.inputs.values():
            tensor.copy_(change(tensor))
    return instance


def redrawn(own: torch.Tensor, how: Draw, generator: torch.Generator) -> torch.Tensor:
    """Return new values of a draw's distribution in a tensor's place."""
    return _Inputs(how.distribution, how.factor, how.positive, generator)(own)


class _Inputs:
    """Draws new values for one floating tensor after another; keeps the structure of the old."""

    def __init__(
        self, distribution: str, factor: float, positive: bool, generator: torch.Generator
    ) -> None:
        self.distribution = distribution
        self.factor = factor
        self.positive = positive
        self.generator = generator
        self.drawn = 0

    def __call__(self, own: torch.Tensor) -> torch.Tensor:
        if not own.is_floating_point():
            return own
        shape, device = tuple(own.shape), self.generator.device
        noise = partial(torch.randn, shape, generator=self.generator, device=device)
        even = partial(torch.rand, shape, generator=self.generator, device=device)
        if self.distribution == "uniform":
            value = even() * 2 - 1
        elif self.distribution == "constant":
            value = torch.full(shape, _CONSTANTS[self.drawn % len(_CONSTANTS)], device=device)
        elif self.distribution == "offset":
            value = noise() + self.factor
        else:
            value = noise() * self.factor
        if self.distribution == "zeros":
            value *= even() < 0.5
        self.drawn += 1
        if self.positive:
            value = value.abs()
        # A triangular or symmetric matrix is what the task is about: it stays one.
        if float((own == 0).float().mean()) > 0.1:
            value *= own != 0
        if own.dim() == 2 and own.shape[0] == own.shape[1] and torch.equal(own, own.T):
            value = value.triu() + value.triu(1).T
        return value.to(own.dtype)


def _disturb_constants(instance: Instance, generator: torch.Generator) -> None:
    """Change parameters and buffers that hold one value (weights of ones, biases of zeros).

    Otherwise a candidate that ignores them would pass. Buffers only grow: they hold variances.
    """
    with torch.no_grad():
        for tensors, random in ((instance.parameters, torch.randn), (instance.buffers, torch.rand)):
            for tensor in tensors.values():
                if tensor.is_floating_point() and bool((tensor == tensor.flatten()[0]).all()):
                    shape, device = tuple(tensor.shape), generator.device
                    noise = random(shape, generator=generator, device=device) * 0.25
                    tensor.add_(noise.to(tensor.dtype))


def _refuse_random(reference: Reference, case: Case) -> None:
    arguments = clone_arguments(case.instance.arguments, fresh)
    again = reference.outputs(copy.deepcopy(case.model), arguments)
    for first, second in zip(case.outputs, again, strict=True):
        if not torch.equal(first.nan_to_num(nan=0.5), second.nan_to_num(nan=0.5)):
            raise ReferenceFault(
                "forward() gives another answer when called again on the same input (dropout or "
                "random numbers): there is nothing to verify a kernel against"
            )
