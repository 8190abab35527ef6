"""Answers to a batch, some rows of it at a time: what takes too much memory all at once.

That is the same only where no row's answer hangs on another row's input. It is found out, not
taken for granted: a piece's answers must stay as they are, in every bit, while all rows outside it
are no numbers.
"""

from __future__ import annotations

import copy
import math
from collections.abc import Callable, Sequence
from typing import Any

import torch

from ...judge.tensor_comparison import are_equal
from ..loading.model import Reference, clone_arguments

MOST_PIECES = 8


def pieces_of(
    reference: Reference,
    model: torch.nn.Module,
    arguments: Sequence[Any],
    answers: Sequence[torch.Tensor],
) -> int:
    """Return in how many pieces of the first axis a model may be asked; 0 where in none.

    Args:
        answers: what the model answers, in its own precision.

    Raises ReferenceFault where memory is short.
    """
    lengths = {answer.shape[0] if answer.dim() else 1 for answer in answers}
    length = lengths.pop()
    batched: list[torch.Tensor] = []

    def note(tensor: torch.Tensor) -> torch.Tensor:
        batched.append(tensor)
        return tensor

    _of_rows(arguments, length, note)
    floating = all(tensor.is_floating_point() for tensor in batched)
    if lengths or length < 2 or not (batched and floating):
        return 0
    count = min(MOST_PIECES, length)
    for rows in _pieces(length, count):

        def spoilt(tensor: torch.Tensor, rows: slice = rows) -> torch.Tensor:
            copied = tensor.detach().clone()
            copied[: rows.start].fill_(math.nan)
            copied[rows.stop :].fill_(math.nan)
            return copied

        others = reference.outputs(copy.deepcopy(model), _of_rows(arguments, length, spoilt))
        if not all(
            other.shape == answer.shape and are_equal(other[rows], answer[rows])
            for other, answer in zip(others, answers, strict=True)
        ):
            return 0
    return count


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


def _pieces(length: int, count: int) -> list[slice]:
    ends = [length * place // count for place in range(count + 1)]
    return [slice(start, stop) for start, stop in zip(ends, ends[1:], strict=False)]


def _of_rows(
    arguments: Sequence[Any], length: int, change: Callable[[torch.Tensor], torch.Tensor]
) -> Any:
    """Return the arguments with `change` of those that have so many rows."""
    return clone_arguments(
        arguments,
        lambda tensor: change(tensor) if tensor.dim() and len(tensor) == length else tensor,
    )

