"""One case of a reference: an instance, PyTorch's answers to it, and how exact they are."""

from __future__ import annotations

import copy
import functools
import math
import time
from collections.abc import Sequence
from pathlib import Path

import torch

from ...judge.tensor_comparison import largest_error
from ...records.tensors import Tolerance
from ...task.rules import OWN_ERROR_FACTOR
from ..drawing.structure import count_of
from ..loading.model import Instance, Reference, ReferenceFault, clone_arguments
from ..precision.double_precision import double_answers
from ..precision.rounding import SHORT, OperationsSeen, answers_in_order, plain_answers
from ..precision.steps import Steps, steps_of
from ..precision.ties import hang_on_ties
from ..precision.tolerances import (
    Scale,
    all_finite,
    base_of,
    excess,
    root_mean_square,
    tolerance_of,
    with_steps,
)

PRECISE = 0.01
"""Of an answer's root mean square: PyTorch's own error, beyond what any number is rounded by, where
there is much to compare."""

_HALF_TYPES = (torch.float16, torch.bfloat16)


class Case:
    """One instance with the tensors it started from and what PyTorch makes of it."""

    def __init__(self, reference: Reference, instance: Instance) -> None:
        self.instance, self._reference = instance, reference
        named = instance.inputs | instance.parameters | instance.buffers
        # forward() may change buffers and inputs, but never has these: all calls get copies.
        self.tensors = {name: tensor.detach() for name, tensor in named.items()}
        self.model = instance.model
        arguments = clone_arguments(instance.arguments, fresh)
        self.outputs = reference.outputs(copy.deepcopy(self.model), arguments)
        self.seen = OperationsSeen()
        finite = all_finite(self.outputs)
        began = time.monotonic()
        self.exact = double_answers(
            reference, self.model, instance.arguments, self.outputs, self.seen,
            dispensable=reference.double_is_dispensable,
        )  # fmt: skip
        self.finite = all_finite(each for each in self.exact if each is not None) and finite
        """Whether the answers are finite, in single and in double precision."""
        self.exact_seconds = time.monotonic() - began
        """What double precision takes."""

    @property
    def hangs_on_ties(self) -> bool:
        """Whether answers are others where another one of equal elements comes first."""
        return self.seen.places and hang_on_ties(
            self._reference, self.model, self.instance.arguments
        )

    def own_errors(self) -> list[float | None]:
        """Return PyTorch's largest error of each output against double precision."""
        return [
            None if exact is None else largest_error(answer, exact)
            for answer, exact in zip(self.outputs, self.exact, strict=True)
        ]

    @property
    def is_precise(self) -> bool:
        """Whether PyTorch's own error leaves a part of each answer to be compared."""
        for answer, exact in zip(self.outputs, self.exact, strict=True):
            base = base_of(answer.dtype, is_cast(self.instance, answer))
            if exact is not None and base is not None:
                off = excess(answer, exact, base.relative)
                if off > PRECISE * root_mean_square(answer):
                    return False
        return True

    def tolerances(
        self, scale: Scale, factor: float = OWN_ERROR_FACTOR
    ) -> tuple[Tolerance | None, ...]:
        """Return the tolerance of each output; see `tolerance_of`. Raises ReferenceFault."""
        plain, is_example = self.plain()
        return tuple(
            with_steps(
                tolerance_of(
                    answer, steps.exact if steps and exact is not None else exact, other,
                    scale=scale, cast=is_cast(self.instance, answer), factor=factor,
                    is_example=is_example,
                ), steps,
            )
            for answer, exact, other, steps in zip(
                self.outputs, self.exact, plain, self.steps, strict=True
            )
        )  # fmt: skip

    @functools.cached_property
    def steps(self) -> list[Steps | None]:
        """What rounding to whole numbers, or comparing, near a tie makes of each output."""
        whole = any(not answer.is_floating_point() for answer in self.outputs)
        if not (self.seen.rounds or (self.seen.compares and whole)):
            return [None] * len(self.outputs)
        return steps_of(self._reference, self.instance, self.model, self.outputs)

    def plain(
        self, equal_terms: float | None = None, *, by_rows: bool = False
    ) -> tuple[list[torch.Tensor | None], bool]:
        """Return what plain sums make of the answers, and whether that is an example.

        Where sums are long it is the worst that they make; see rounding.py. None where it is not
        known, and where all sums are of double precision: any order of them is exact enough.
        `equal_terms` is the share of the inputs that is one value, found here where it is
        not said; `by_rows` says that rows of the first axis differ in size.
        """
        long = self.seen.is_long
        if not (long or self.seen.reduced >= SHORT) or not any(
            exact is not None for exact in self.exact
        ):
            return [None] * len(self.exact), False
        given = (self._reference, self.model, self.instance.arguments, self.outputs)
        if not self._adds_in_single():
            return [None] * len(self.exact), False
        try:
            if not long:
                return answers_in_order(*given, by_rows=by_rows), True
            if equal_terms is None:
                inputs = self.instance.inputs.values()
                floating = [each for each in inputs if each.is_floating_point()]
                # A term is another's equal where all that it is made of is.
                equal_terms = math.prod(map(_equal_share, floating)) if floating else 0.0
            return plain_answers(*given, equal_terms=equal_terms, by_rows=by_rows), False
        except ReferenceFault:  # Memory is short: there is as much room as there is without.
            return [None] * len(self.exact), False

    def _adds_in_single(self) -> bool:
        if not any(answer.dtype is torch.float64 for answer in self.outputs):
            return True
        arguments = clone_arguments(self.instance.arguments, fresh)
        with OperationsSeen() as single:
            self._reference.outputs(copy.deepcopy(self.model), arguments)
        return bool(single.narrow)

    def write(self, folder: Path) -> None:
        for name, tensor in self.tensors.items():
            write_tensor(folder / f"{name}.bin", tensor)
        for index, (answer, exact) in enumerate(zip(self.outputs, self.exact, strict=True)):
            write_tensor(folder / f"out{index}.bin", answer)
            if exact is not None:
                write_tensor(folder / f"out{index}.f64.bin", exact)


def fresh(tensor: torch.Tensor) -> torch.Tensor:
    """Return a copy that nothing else writes to."""
    return tensor.detach().clone()


def _equal_share(tensor: torch.Tensor) -> float:
    """Return the share of elements that are zero, or are all one value if that is more."""
    first = tensor.reshape(-1)[0]
    alike = max(count_of(tensor, each) for each in (0.0, first))
    return float(alike / tensor.numel())


def is_cast(instance: Instance, answer: torch.Tensor) -> bool:
    """Say whether a task that is given no half-precision numbers returns some."""
    given = (*instance.inputs.values(), *instance.parameters.values(), *instance.buffers.values())
    return answer.dtype in _HALF_TYPES and not any(each.dtype in _HALF_TYPES for each in given)


def forms(answers: Sequence[torch.Tensor]) -> list[tuple[torch.Size, torch.dtype]]:
    """Return shape and type of each answer."""
    return [(answer.shape, answer.dtype) for answer in answers]


def write_tensor(path: Path, tensor: torch.Tensor) -> None:
    """Write raw little-endian row-major elements; bfloat16, which numpy lacks, as its bits."""
    tensor = tensor.detach().contiguous()
    if tensor.dtype is torch.bfloat16:
        tensor = tensor.view(torch.int16)
    tensor.numpy().tofile(path)
