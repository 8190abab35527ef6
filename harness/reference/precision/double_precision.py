"""PyTorch's answers in double precision, also where the model casts to a narrower type on its way.

Casts between floating types are left out: what an output is before it is cast to half precision is
what the operation computes. Where memory does not suffice for all at once, answers whose rows do
not hang on one another are computed some rows at a time (batch_pieces.py).
"""

from __future__ import annotations

import copy
from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import torch
from torch.overrides import TorchFunctionMode

from ..loading.model import (
    Reference,
    ReferenceFault,
    clone_arguments,
    lacks_gpu_memory,
    lacks_memory,
)
from .batch_pieces import answers_in_pieces, pieces_of

SAME = 1e-2
"""How far answers in two precisions may be apart, relative to the largest."""
_NARROW = (torch.float32, torch.float16, torch.bfloat16)
_CASTS = (torch.Tensor.float, torch.Tensor.half, torch.Tensor.bfloat16)


def double_answers(
    reference: Reference,
    model: torch.nn.Module,
    arguments: Sequence[Any],
    answers: Sequence[torch.Tensor],
    mode: AbstractContextManager[Any] | None = None,
    *,
    dispensable: bool = False,
) -> list[torch.Tensor | None]:
    """Return what `answers` are in double precision; None where a model insists on its own type.

    Model and arguments stay as they are. Operations run under a `mode` of PyTorch, where one is
    given. Raises ReferenceFault where memory is short, in pieces too; None then too where that is
    dispensable, which the reference notes.
    """
    nothing: list[torch.Tensor | None] = [None] * len(answers)
    if dispensable and reference.lacked_memory_for_double:
        return nothing  # It takes seconds to learn again that it lacks the memory.
    found, lacking = _all_at_once(reference, model, arguments, mode)
    if lacking:
        # Only now are the frames gone whose tensors the exception held.
        found, lacking = _in_pieces(reference, model, arguments, answers, mode, lacking)
    if lacking:
        if not dispensable:
            raise ReferenceFault(f"in double precision: {lacking}") from lacking
        reference.lacked_memory_for_double = True
    if [exact.shape for exact in found] != [answer.shape for answer in answers]:
        return nothing
    return [
        exact if exact.dtype is torch.float64 and answer.is_floating_point() else None
        for answer, exact in zip(answers, found, strict=True)
    ]


def _are_alike(answers: Sequence[torch.Tensor], exact: Sequence[torch.Tensor]) -> bool:
    """Say whether answers are no further apart than rounding puts them."""
    return [each.shape for each in answers] == [each.shape for each in exact] and all(
        bool(torch.allclose(one.double(), other.double(), SAME, SAME * _size(one), equal_nan=True))
        for one, other in zip(answers, exact, strict=True) if one.is_floating_point()
    )  # fmt: skip


def _size(answer: torch.Tensor) -> float:
    finite = answer[answer.isfinite()]
    return float(finite.abs().amax()) if finite.numel() else 0.0


def _all_at_once(
    reference: Reference, model: torch.nn.Module, arguments: Sequence[Any],
    mode: AbstractContextManager[Any] | None,
) -> tuple[list[torch.Tensor], Exception | None]:  # fmt: skip
    """Return the answers, none where a model insists on its own type; and the lack of memory."""
    if reference.double_comes_in_pieces:
        return [], MemoryError("all at once lacked memory before")
    try:
        return double_run(reference, model, arguments, mode), None
    except (ReferenceFault, RuntimeError) as error:
        return [], _lack(error)


def _lack(error: Exception) -> Exception | None:
    """Return the same lack of memory without the frames whose tensors it holds; None for others."""
    if not lacks_memory(error):
        return None
    kind = torch.OutOfMemoryError if lacks_gpu_memory(error) else MemoryError
    return kind(str(error))


def _in_pieces(
    reference: Reference, model: torch.nn.Module, arguments: Sequence[Any],
    answers: Sequence[torch.Tensor], mode: AbstractContextManager[Any] | None, lacking: Exception,
) -> tuple[list[torch.Tensor], Exception | None]:  # fmt: skip
    """Return the same, some rows at a time; none where rows hang on one another."""
    try:
        pieces = pieces_of(reference, model, arguments, answers)
        if not pieces:
            return [], lacking
        reference.double_comes_in_pieces = pieces
        return answers_in_pieces(
            lambda part: double_run(reference, model, part, mode), arguments, answers, pieces
        ), None
    except (ReferenceFault, RuntimeError, ValueError) as error:
        return [], _lack(error) or lacking


def double_run(
    reference: Reference,
    model: torch.nn.Module,
    arguments: Sequence[Any],
    mode: AbstractContextManager[Any] | None = None,
) -> list[torch.Tensor]:
    """Return what the model answers in double precision, of whatever type; see `double_answers`.

    Raises ReferenceFault, RuntimeError.
    """

    def answered(own_type: bool) -> list[torch.Tensor]:
        widened = nullcontext() if own_type else reference.surroundings.with_type(torch.float64)
        with widened, _Widened(), mode or nullcontext():
            return reference.outputs(
                copy.deepcopy(model).double(), clone_arguments(arguments, _to_double)
            )

    try:
        return answered(own_type=True)
    except (ReferenceFault, RuntimeError) as error:
        if lacks_memory(error):
            raise
    # It adds to tensors that it makes itself. These are then of double precision too, unless what
    # forward() compares or ranks falls out otherwise with them.
    found = answered(own_type=False)
    plain = reference.outputs(copy.deepcopy(model), clone_arguments(arguments, torch.clone))
    if not _are_alike(plain, found):
        raise ReferenceFault("in double precision its own tensors make another answer")
    return found


class _Widened(TorchFunctionMode):  # type: ignore[misc]
    """Takes double for every narrower floating type that an operation is asked for."""

    def __torch_function__(
        self, function: Any, types: Any, args: Any = (), kwargs: Any = None
    ) -> Any:
        if function in _CASTS:
            return args[0].double()
        if function is torch.Tensor.view:
            return function(*args, **(kwargs or {}))  # Bits, taken for another type.
        if function is torch.fake_quantize_per_channel_affine:  # Takes no scales in double.
            args = (args[0], args[1].float(), *args[2:])
        named = {name: _widened(value) for name, value in (kwargs or {}).items()}
        return function(*map(_widened, args), **named)


def _widened(value: Any) -> Any:
    return torch.float64 if isinstance(value, torch.dtype) and value in _NARROW else value


def _to_double(tensor: torch.Tensor) -> torch.Tensor:
    wanted = torch.float64 if tensor.is_floating_point() else tensor.dtype
    return tensor.detach().to(wanted, copy=True)
