"""Answers to a batch, some rows of it at a time: what takes too much memory all at once.

That is the same only where no row's answer hangs on the other rows, on how many there are, or on
its place among them. So each time the model is asked in its own precision too, a piece at a time,
and has to answer what it answered to all at once. What is left of a doubt is a tenth of the
tolerance, too little to widen one.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from ...judge.tensor_comparison import agree
from ...records.tensors import Tolerance
from ...task.rules import TOLERANCES
from ..loading.model import Reference, clone_arguments

MOST_PIECES = 8
SHARE = 0.1
"""Of the tolerance for a type: as near are answers to a piece those to all."""


def pieces_of(
    reference: Reference,
    model: torch.nn.Module,
    arguments: Sequence[Any],
    answers: Sequence[torch.Tensor],
) -> int:
    """Return in how many pieces of the first axis a model may be asked; 0 where in none.

    Model and arguments stay as they are.

    Args:
        answers: what the model answers to all, in its own precision.

    Raises ReferenceFault, RuntimeError: a piece is no input, or memory is short.
    """
    lengths = {answer.shape[0] if answer.dim() else 1 for answer in answers}
    length = lengths.pop()
    if lengths or length < 2 or _takes_or_makes_integers(reference, model, arguments):
        return 0
    count = min(MOST_PIECES, length)
    for rows in _pieces(length, count):

        def piece(tensor: torch.Tensor, rows: slice = rows) -> torch.Tensor:
            return tensor.detach()[rows].clone()

        part = _of_rows(arguments, length, piece, others=_fresh)
        found = reference.outputs(copy.deepcopy(model), part)
        if not _are_alike(found, [answer[rows] for answer in answers]):
            return 0
    return count


def _takes_or_makes_integers(
    reference: Reference, model: torch.nn.Module, arguments: Sequence[Any]
) -> bool:
    """Say whether there are integers, which may be places of rows that a piece does not have: on a
    GPU that would be the end of the process's context."""
    seen, model, arguments = _Integers(), copy.deepcopy(model), clone_arguments(arguments, _fresh)
    with seen:
        reference.outputs(model, arguments)
    return bool(seen.any)


class _Integers(TorchDispatchMode):  # type: ignore[misc]
    """Notes whether an operation has to do with integers."""

    def __init__(self) -> None:
        super().__init__()
        self.any = False

    def __torch_dispatch__(
        self, function: Any, types: Any, args: Any = (), kwargs: Any = None
    ) -> Any:
        answer = function(*args, **(kwargs or {}))
        self.any |= any(
            isinstance(each, torch.Tensor)
            and not (each.is_floating_point() or each.is_complex() or each.dtype is torch.bool)
            for each in tree_leaves((args, kwargs, answer))
        )
        return answer


def answers_in_pieces(
    answer: Callable[[Sequence[Any]], list[torch.Tensor]],
    arguments: Sequence[Any],
    answers: Sequence[torch.Tensor],
    count: int,
) -> list[torch.Tensor]:
    """Return what `answer` gives for each piece of the arguments, put together.

    Args:
        answer: answers one piece's arguments.
        answers: those to all of the arguments, for their shapes.
        count: as `pieces_of` returns it.
    """
    whole: list[torch.Tensor] = []
    for rows in _pieces(len(answers[0]), count):

        def piece(tensor: torch.Tensor, rows: slice = rows) -> torch.Tensor:
            return tensor[rows]

        found = answer(_of_rows(arguments, len(answers[0]), piece))
        whole = whole or [
            each.new_empty(wanted.shape) for each, wanted in zip(found, answers, strict=True)
        ]
        for each, into in zip(found, whole, strict=True):
            into[rows] = each
    return whole


def _are_alike(found: Sequence[torch.Tensor], wanted: Sequence[torch.Tensor]) -> bool:
    if [(a.shape, a.dtype) for a in found] != [(b.shape, b.dtype) for b in wanted]:
        return False
    return all(
        agree(a.contiguous(), b.contiguous(), _near(b)) for a, b in zip(found, wanted, strict=True)
    )


def _near(wanted: torch.Tensor) -> Tolerance:
    base = TOLERANCES.get(str(wanted.dtype).removeprefix("torch."))
    if base is None:
        return Tolerance(absolute=0.0, relative=0.0)
    size = float(wanted.abs().nan_to_num(0.0, 0.0, 0.0).mean(dtype=torch.float64))
    return Tolerance(
        absolute=SHARE * base.absolute * min(size, 1.0), relative=SHARE * base.relative
    )


def _pieces(length: int, count: int) -> list[slice]:
    ends = [length * place // count for place in range(count + 1)]
    return [slice(start, stop) for start, stop in zip(ends, ends[1:], strict=False)]


def _of_rows(
    arguments: Sequence[Any],
    length: int,
    change: Callable[[torch.Tensor], torch.Tensor],
    others: Callable[[torch.Tensor], torch.Tensor] = lambda tensor: tensor,
) -> Any:
    """Return the arguments with `change` of those that have so many rows."""

    def changed(tensor: torch.Tensor) -> torch.Tensor:
        is_batch = tensor.dim() > 0 and len(tensor) == length
        return change(tensor) if is_batch else others(tensor)

    return clone_arguments(arguments, changed)


def _fresh(tensor: torch.Tensor) -> torch.Tensor:
    return tensor.detach().clone()
