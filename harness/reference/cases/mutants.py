"""Answers that lack one thing each: what a task accepts of them, it cannot tell from right."""

from __future__ import annotations

import copy
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, suppress
from typing import Any

import torch
from torch.overrides import TorchFunctionMode

from ...judge.tensor_comparison import all_agree
from ...records.tensors import Tolerance
from ..loading.model import Reference, ReferenceFault, clone_arguments, lacks_memory
from ..precision.lost_terms import ONE_OF, LostTerms
from .case import Case, fresh
from .comparisons import is_whole
from .epsilon import OtherEpsilon

MOST_OPERATIONS = 64
"""Operations of forward() that are left out in turn; later ones are not tried."""
EPSILON_FACTOR = 10.0
HALF = "half precision"
EPSILON = "ten times its epsilons"
LOST = f"leaving one term of {ONE_OF} out of its sums"

Answers = list[torch.Tensor]


class Mutants:
    """Tries each mutant on one case after the other; those that pass every case are the weak spots.

    Half the precision, one term of 10,000 left out of sums, larger epsilons, and each operation of
    forward() left out in turn (its first argument handed on). They are told and not refused: the
    epsilon of a later layer is beyond any tolerance, and a ReLU after an absolute value does
    nothing at all.

    On a GPU an index out of range is no exception but the end of the process's context, so that
    there none is tried of a forward() that makes integers: they may be indices.

    Args:
        reference: whose forward() it is.
        spares_indices: whether to keep away from such; on a GPU by default.
    """

    def __init__(self, reference: Reference, spares_indices: bool | None = None) -> None:
        self._reference = reference
        on_gpu = reference.device.type != "cpu"
        self._spares_indices = on_gpu if spares_indices is None else spares_indices
        self._alive: dict[str, int | str] | None = None
        """Mutants that passed so far, with the operation they leave out; None before a case."""
        self._visible: set[str] = set()
        """Mutants whose answers differed at all, within the tolerance."""

    def try_case(self, case: Case, tolerances: Sequence[Tolerance | None]) -> None:
        """Drop the mutants that this case refuses."""
        if self._alive is None:
            self._alive = self._to_try(case)
        for name, operation in list(self._alive.items()):
            answers = self._answers(case, operation)
            if answers is None or not all_agree(answers, case.outputs, tolerances):
                del self._alive[name]
            elif not all(map(_same, answers, case.outputs)):
                self._visible.add(name)

    def give_up(self) -> None:
        """Try none on further cases, and tell of none: what passed some cases is no finding."""
        self._alive = {}

    def weak_to(self) -> str:
        """Return what every case accepted though it changes the answers; empty where nothing is."""
        return "; ".join(name for name in self._alive or () if name in self._visible)

    def _to_try(self, case: Case) -> dict[str, int | str]:
        """Return all mutants; none of a large task where there is no memory to try any."""
        try:
            return dict(self._all(case))
        except ReferenceFault as fault:
            if not (self._reference.double_is_dispensable and lacks_memory(fault)):
                raise
            return {}

    def _all(self, case: Case) -> Iterator[tuple[str, int | str]]:
        watched = _LeaveOut(None)
        self._forward(case, watched)
        if watched.makes_integers and self._spares_indices:
            return
        if any(answer.dtype in (torch.float32, torch.float64) for answer in case.outputs):
            yield HALF, HALF
        if case.seen.terms >= ONE_OF:
            yield LOST, LOST
        other = OtherEpsilon(EPSILON_FACTOR)
        with suppress(ReferenceFault, RuntimeError):
            self._forward(case, other)
        if other.any:
            yield EPSILON, EPSILON
        for number, name in enumerate(watched.names[:MOST_OPERATIONS]):
            if name:
                yield f"leaving out {name} (operation {number + 1} of forward)", number

    def _answers(self, case: Case, operation: int | str) -> Answers | None:
        """Return a mutant's answers; None where it cannot answer at all."""
        try:
            if operation == HALF:
                return self._half(case)
            if operation == LOST:
                return self._forward(case, LostTerms())
            if operation == EPSILON:
                return self._forward(case, OtherEpsilon(EPSILON_FACTOR))
            assert isinstance(operation, int)
            return self._forward(case, _LeaveOut(operation))
        except (ReferenceFault, RuntimeError, TypeError, ValueError, IndexError):
            return None

    def _half(self, case: Case) -> Answers:
        """Return the answers computed in half precision."""
        model = copy.deepcopy(case.model).half()
        arguments = clone_arguments(case.instance.arguments, _to_half)
        answers = self._reference.outputs(model, arguments)
        return [
            answer.to(wanted.dtype) for answer, wanted in zip(answers, case.outputs, strict=True)
        ]

    def _forward(self, case: Case, mode: AbstractContextManager[Any]) -> Answers:
        arguments = clone_arguments(case.instance.arguments, fresh)
        model = copy.deepcopy(case.model)
        with mode:
            return self._reference.outputs(model, arguments)


class _LeaveOut(TorchFunctionMode):  # type: ignore[misc]
    """Counts the operations that make a tensor of the shape of their first; leaves one of them out.

    `names` holds one name an operation, empty where it cannot be left out.
    """

    def __init__(self, operation: int | None) -> None:
        super().__init__()
        self.names: list[str] = []
        self.makes_integers = False
        self._operation = operation

    def __torch_function__(
        self, function: Any, types: Any, args: Any = (), kwargs: Any = None
    ) -> Any:
        answer = function(*args, **(kwargs or {}))
        made = answer if isinstance(answer, tuple | list) else [answer]
        self.makes_integers |= any(
            isinstance(each, torch.Tensor) and is_whole(each) and each._base is None
            for each in made
        )
        first = next((each for each in args if isinstance(each, torch.Tensor)), None)
        if not isinstance(answer, torch.Tensor) or first is None or answer is first:
            return answer
        number = len(self.names)
        fits = first.shape == answer.shape and first.dtype == answer.dtype
        self.names.append(getattr(function, "__name__", "an operation") if fits else "")
        return first if fits and number == self._operation else answer


def _same(got: torch.Tensor, wanted: torch.Tensor) -> bool:
    return bool(((got == wanted) | (got.isnan() & wanted.isnan())).all())


def _to_half(tensor: torch.Tensor) -> torch.Tensor:
    copied = tensor.detach().clone()
    return copied.half() if copied.is_floating_point() else copied
