"""Runs inside the reference child: inputs over several distributions with PyTorch's answers.

Written for each case: every tensor of the launch signature as NAME.bin (outputs hold PyTorch's
answer on the CPU) and, for floating outputs, out<k>.f64.bin: the answer in double precision.
"""

from __future__ import annotations

import copy
import itertools
import json
import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import torch

from ..judge.tensor_comparison import CHUNK, largest_error
from ..records import TOLERANCES, Tolerance
from .model import Instance, Reference, ReferenceFault, clone_arguments, lacks_memory
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

OWN_ERROR_FACTOR = 8.0
"""A candidate may be this many times as far from the double-precision answer as PyTorch is, where
that is more than the tolerance: it sums in another order, which is not an error."""

_CONSTANTS = (0.5, -1.25, 2.0, 0.75)  # Exact in every floating type: sums of them are exact too.

Change = Callable[[torch.Tensor], torch.Tensor]


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


class Case:
    """One instance with the tensors it started from and what PyTorch makes of it."""

    def __init__(self, reference: Reference, instance: Instance) -> None:
        self.instance = instance
        named = instance.inputs | instance.parameters | instance.buffers
        # forward() may change buffers and inputs: a candidate is given what it started from.
        self.tensors = {name: tensor.detach().clone() for name, tensor in named.items()}
        self.model = copy.deepcopy(instance.model)
        arguments = clone_arguments(instance.arguments, _fresh)
        self.outputs = reference.outputs(copy.deepcopy(self.model), arguments)
        self.exact = self._double(reference)

    @property
    def finite(self) -> bool:
        """Whether the answers are finite, in single and in double precision."""
        return all_finite([*self.outputs, *(exact for exact in self.exact if exact is not None)])

    def own_errors(self) -> list[float | None]:
        """Return PyTorch's largest error of each output against double precision."""
        return [
            None if exact is None else largest_error(answer, exact)
            for answer, exact in zip(self.outputs, self.exact, strict=True)
        ]

    def tolerances(self, scaled: bool, full: bool = False) -> list[dict[str, float]]:
        """Return the tolerance of each output: KernelBench's, wider where PyTorch itself needs it.

        With `scaled` the absolute part is relative to the root mean square of the output, as sums
        of large terms that cancel are precise relative to the terms only; what PyTorch computes
        without any error (moving data, a maximum) needs no such room. At `full` dimensions it is
        relative to a root mean square below 1 too: the elements of a softmax over thousands are
        all smaller than KernelBench's tolerance, and zeros would pass.
        """

        def absolute(base: float, answer: torch.Tensor, error: float | None) -> float:
            square = root_mean_square(answer) if scaled or full else 1.0
            if scaled and error != 0.0:
                base *= max(1.0, square) if math.isfinite(square) else 1.0
            if full and 0.0 < square < 1.0:
                base *= square
            return max(base, OWN_ERROR_FACTOR * (error or 0.0))

        return each_tolerance(self.outputs, self.own_errors(), absolute)

    def write(self, folder: Path) -> None:
        for name, tensor in self.tensors.items():
            write_tensor(folder / f"{name}.bin", tensor)
        for index, (answer, exact) in enumerate(zip(self.outputs, self.exact, strict=True)):
            write_tensor(folder / f"out{index}.bin", answer)
            if exact is not None:
                write_tensor(folder / f"out{index}.f64.bin", exact)

    def _double(self, reference: Reference) -> list[torch.Tensor | None]:
        """Return the answers in double precision; None where a model insists on its own type."""
        nothing: list[torch.Tensor | None] = [None] * len(self.outputs)
        try:
            model = copy.deepcopy(self.model).double()
            answers = reference.outputs(
                model, clone_arguments(self.instance.arguments, lambda t: _to_double(_fresh(t)))
            )
        except (ReferenceFault, RuntimeError) as error:
            if lacks_memory(error):
                raise ReferenceFault(f"in double precision: {error}") from error
            return nothing
        if [answer.shape for answer in answers] != [answer.shape for answer in self.outputs]:
            return nothing
        return [
            exact if exact.dtype is torch.float64 and answer.is_floating_point() else None
            for answer, exact in zip(self.outputs, answers, strict=True)
        ]


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
    arguments = clone_arguments(case.instance.arguments, _fresh)
    again = reference.outputs(copy.deepcopy(case.model), arguments)
    for first, second in zip(case.outputs, again, strict=True):
        if not torch.equal(first.nan_to_num(nan=0.5), second.nan_to_num(nan=0.5)):
            raise ReferenceFault(
                "forward() gives another answer when called again on the same input (dropout or "
                "random numbers): there is nothing to verify a kernel against"
            )


def _fresh(tensor: torch.Tensor) -> torch.Tensor:
    return tensor.detach().clone()


def _to_double(tensor: torch.Tensor) -> torch.Tensor:
    return tensor.double() if tensor.is_floating_point() else tensor


def each_tolerance(
    answers: Sequence[torch.Tensor],
    errors: Sequence[float | None],
    absolute: Callable[[float, torch.Tensor, float | None], float],
) -> list[dict[str, float]]:
    """Return each output's tolerance, 0 where it holds no floating numbers.

    `absolute` is given KernelBench's absolute part, PyTorch's answer and its own error.
    """
    found = []
    for answer, error in zip(answers, errors, strict=True):
        base = TOLERANCES.get(str(answer.dtype).removeprefix("torch."))
        if base is None:
            found.append({"absolute": 0.0, "relative": 0.0})
            continue
        found.append(
            {"absolute": absolute(base.absolute, answer, error), "relative": base.relative}
        )
    return found


def all_finite(answers: Iterable[torch.Tensor]) -> bool:
    """Say whether no element is infinite or undefined."""
    return all(bool(torch.isfinite(part).all()) for answer in answers for part in _parts(answer))


def root_mean_square(answer: torch.Tensor) -> float:
    """Return the root of the mean of the squares, taken in double precision."""
    total = sum(float(part.to(torch.float64, copy=True).square_().sum()) for part in _parts(answer))
    return math.sqrt(total / max(1, answer.numel()))


def _parts(answer: torch.Tensor) -> Iterator[torch.Tensor]:
    """Yield pieces whose copies the allocator keeps: fresh pages cost more than the work."""
    yield from answer.reshape(-1).split(CHUNK)


def write_tensor(path: Path, tensor: torch.Tensor) -> None:
    """Write raw little-endian row-major elements; bfloat16, which numpy lacks, as its bits."""
    tensor = tensor.detach().contiguous()
    if tensor.dtype is torch.bfloat16:
        tensor = tensor.view(torch.int16)
    tensor.numpy().tofile(path)
