"""One case of a reference: an instance, PyTorch's answers to it, and how exact they are."""

from __future__ import annotations

import copy
import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path

import torch

from ..judge.tensor_comparison import CHUNK, largest_error
from ..records import TOLERANCES
from .model import Instance, Reference, ReferenceFault, clone_arguments, lacks_memory

OWN_ERROR_FACTOR = 8.0
"""A candidate may be this many times as far from the double-precision answer as PyTorch is, where
that is more than the tolerance: it sums in another order, which is not an error."""


class Case:
    """One instance with the tensors it started from and what PyTorch makes of it."""

    def __init__(self, reference: Reference, instance: Instance) -> None:
        self.instance = instance
        named = instance.inputs | instance.parameters | instance.buffers
        # forward() may change buffers and inputs: a candidate is given what it started from.
        self.tensors = {name: tensor.detach().clone() for name, tensor in named.items()}
        self.model = copy.deepcopy(instance.model)
        arguments = clone_arguments(instance.arguments, fresh)
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
                model, clone_arguments(self.instance.arguments, lambda t: _to_double(fresh(t)))
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


def fresh(tensor: torch.Tensor) -> torch.Tensor:
    """Return a copy that nothing else writes to."""
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
