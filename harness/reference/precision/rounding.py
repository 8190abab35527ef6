"""PyTorch's answers as far off as plain float32 sums make them: the room that honest kernels need.

PyTorch adds in blocks, and its own error says little of a kernel that adds one term after the
other, which is no fault. Each operation that adds is answered in double precision here, and its
answer moved, up or down at random, by as much as a plain sum of that many terms is rounded; what
that makes of the task's answers, through all that follows, is what a tolerance has to allow.

A plain sum of n terms, in units of u, half a unit in the last place of 1:

- its roundings go up and down: WALK * u * sqrt(n) of the partial sums, which are as large as the
  answer where terms have one sign, and as the answers' root mean square where they cancel;
- terms of one sign are rounded more often down than up once they are small beside the unit of the
  partial sum: DRIFT * (u * n)^2 of the answer. A million products of uniform numbers: 1.7e-4;
- equal terms are all rounded the same way: EQUAL * u * n of the answer at worst, as far as terms
  are equal.

No more than LONGEST terms are taken to be added by one thread.

Where all sums are shorter, these bounds would be far too wide for what most kernels do: the sums of
operations that reduce are really added in order then, on the CPU, and all else is moved by as much
as such sums mostly are off (WALK_OF_MOST, and EQUAL_OF_MOST where the terms of one are equal). That
is an example of a kernel, and no bound.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode

from ..loading.model import Reference
from .double_precision import double_answers
from .in_order import FACTORS, IN_ORDER, SCANS, axes_added
from .steps import compares, ranks, rounds
from .ties import UNPROMISED

UNIT = 2.0**-24
WALK = 2.0
"""Standard deviations are 0.4 and less; of a million answers the worst is five of these off."""
WALK_OF_MOST = 0.4
DRIFT = 0.125
EQUAL = 0.5
EQUAL_OF_MOST = 0.25
"""The worst that sums of 64 to a million equal terms are off, whatever the term."""
ALIKE = 2.0**-16
"""Numbers no further apart, relative, are rounded as equal ones are: each product before a sum is
off by less, and beside a partial sum of many terms that is nothing."""
LONGEST = 1 << 20
LONG = 1 << 16
"""Terms from which on a plain sum is looked at: of fewer it is 3e-5 off, a third of the tolerance
for float32."""

SHORT = 16
"""Terms of a reduction from which on it is added in order; of fewer it is hardly ever off."""

_aten = torch.ops.aten


def plain_answers(
    reference: Reference,
    model: torch.nn.Module,
    arguments: Sequence[Any],
    answers: Sequence[torch.Tensor],
    *,
    equal_terms: float,
    by_rows: bool = False,
) -> list[torch.Tensor | None]:
    """Return `answers` as plain float32 sums would make them at worst; None as `double_answers`.

    Args:
        equal_terms: share of the inputs, of all of them together, that is one value, zero mostly,
            and makes equal terms: those of a softmax over zeros, for example.
        by_rows: whether numbers are of another size for each index of the first axis.

    Raises ReferenceFault where memory is short.
    """
    mode = _Moved(equal_terms, by_rows=by_rows)
    return double_answers(reference, model, arguments, answers, mode)


def answers_in_order(
    reference: Reference,
    model: torch.nn.Module,
    arguments: Sequence[Any],
    answers: Sequence[torch.Tensor],
    *,
    by_rows: bool = False,
) -> list[torch.Tensor | None]:
    """Return `answers` as one plain kernel makes them; None and `by_rows` as above.

    Raises ReferenceFault where memory is short.
    """
    return double_answers(reference, model, arguments, answers, _AddedInOrder(by_rows))


class OperationsSeen(TorchDispatchMode):  # type: ignore[misc]
    """Notes of what runs under it what tolerances and the choice of cases hang on."""

    def __init__(self) -> None:
        super().__init__()
        self.terms = self.reduced = 0.0
        """Of the longest sum, and of the longest that is no product of matrices and no
        convolution."""
        self.factors = 0.0
        """Of the longest product of floating numbers."""
        self.narrow = False
        """Whether anything is added in less than double precision."""
        self.rounds = self.compares = False
        """Whether floating numbers are rounded to whole ones, or compared or ranked; see steps.py.
        """
        self.places = False
        """Whether anything is asked for places that equal elements leave open."""

    @property
    def is_long(self) -> bool:
        """Whether a plain sum of so many terms may be further off than tolerances are wide."""
        return self.terms >= LONG

    def __torch_dispatch__(
        self, function: Any, types: Any, args: Any = (), kwargs: Any = None
    ) -> Any:
        answer = function(*args, **(kwargs or {}))
        self.places |= function in UNPROMISED
        self.rounds |= rounds(function, args, kwargs or {})
        self.compares |= compares(function, args) or ranks(function, args)
        count = _TERMS.get(function.overloadpacket) or _TERMS_OF_NORMS.get(function.overloadpacket)
        if count is not None:
            first = answer if isinstance(answer, torch.Tensor) else answer[0]
            self.narrow |= first.dtype is not torch.float64
            terms = count(args, first)
            self.terms = max(self.terms, terms)
            if function.overloadpacket in FACTORS and args[0].is_floating_point():
                self.factors = max(self.factors, terms)
            if function.overloadpacket not in _PRODUCTS:
                self.reduced = max(self.reduced, terms)
        return answer


class OtherSums(TorchDispatchMode):  # type: ignore[misc]
    """Has operations answered in another way; those made of others are taken apart first."""

    def __init__(self) -> None:
        super().__init__()
        self._taken_apart = _parts_of_norms()

    def __torch_dispatch__(
        self, function: Any, types: Any, args: Any = (), kwargs: Any = None
    ) -> Any:
        named = kwargs or {}
        parts = self._taken_apart.get(function)
        if parts is None and function._can_decompose():
            # What PyTorch itself only spells out (attention, a variance by its axes) comes whole
            # where no gradient is asked for.
            parts = function.decompose
        if parts is not None:
            with self:
                return parts(*args, **named)
        return self.answer(function, args, named)

    def answer(self, function: Any, args: Any, named: dict[str, Any]) -> Any:
        """Return what an operation answers instead."""
        raise NotImplementedError


class _Moved(OtherSums):
    """Moves the answer of every operation that adds."""

    walk, equal = WALK, EQUAL

    def __init__(self, equal_terms: float, *, by_rows: bool = False) -> None:
        super().__init__()
        self._equal_terms, self._by_rows = equal_terms, by_rows
        self._generators: dict[torch.device, torch.Generator] = {}

    def answer(self, function: Any, args: Any, named: dict[str, Any]) -> Any:
        """Return the answer, moved."""
        answer = function(*args, **named)
        operation = function.overloadpacket
        count = _TERMS.get(operation)
        if count is None or args[0].is_complex():
            return answer
        share = self._equal_share(function, args)
        if operation in _SPREADS:
            return self._move_spread(function, args, answer, share)
        terms: float | torch.Tensor = count(args, answer)
        if operation in SCANS and args[0].dim():
            terms = _terms_before(args, answer)
        if operation in (*_OF_ONE_SIGN, *FACTORS) or (
            operation in (*_MAY_CANCEL, *SCANS) and (args[0] >= 0).all()
        ):
            return self._move(answer, terms, share, 0.0)
        if operation in SCANS:
            # Of each place by itself: what is far behind is larger by far.
            usual = args[0].double().square()
            usual = usual.cumsum(args[1]) if args[0].dim() else usual  # The squares are let go.
            return self._move(answer, terms, share, usual.sqrt_())
        if operation not in _MAY_CANCEL:
            return self._move(answer, terms, share, self._size(answer, answer))
        # Of a few sums all may be small by chance, and the partial ones not.
        partial = self._size(args[0], answer) * math.sqrt(terms)
        usual = partial / (terms if operation is _aten.mean else 1.0)
        if not self._by_rows:
            usual = torch.maximum(usual, self._size(answer, answer))
        return self._move(answer, terms, share, usual)

    def _equal_share(self, function: Any, args: Any) -> float | torch.Tensor:
        """Return which share of the terms of each answer is one value."""
        return self._equal_terms

    def _move_spread(
        self, function: Any, args: Any, answer: Any, share: float | torch.Tensor
    ) -> Any:
        """Return a variance or deviation, with its mean where that is asked for, moved.

        What the mean is off, squared, is in every variance, and all that is in one of equal terms.
        """
        alone = isinstance(answer, torch.Tensor)
        spread = answer if alone else answer[0]
        terms = _reduced(args, spread)
        mean = _mean_of(function, args, spread) if alone else answer[1]
        off = mean.abs() * self._drift(terms, _as(share, mean))
        moved = self._move(spread, terms, share, 0.0)
        if function.overloadpacket in (_aten.std, _aten.std_mean):
            moved = torch.hypot(moved, off)
        else:
            moved = moved + off.square()
        if alone:
            return moved
        usual = self._size(answer[1], answer[1])
        return type(answer)((moved, self._move(answer[1], terms, share, usual)))

    def _move(
        self,
        answer: torch.Tensor,
        terms: float | torch.Tensor,
        share: float | torch.Tensor,
        usual: float | torch.Tensor,
    ) -> torch.Tensor:
        """Return the answer, moved.

        `usual` is the size of the sums on the way to it; 0 where none is larger than the answer,
        and then what is no less than zero stays so.
        """
        if not answer.is_floating_point() or (isinstance(terms, float) and terms <= 1):
            return answer
        walked = self.walk * UNIT * terms**0.5
        # Answers of gigabytes: nothing is written down twice.
        moved = answer.abs().mul_(walked + self._drift(terms, _as(share, answer)))
        moved.add_(usual.mul_(walked) if isinstance(usual, torch.Tensor) else usual * walked)
        generator = self._generators.setdefault(
            answer.device, torch.Generator(answer.device).manual_seed(0)
        )
        ways = torch.rand(
            answer.shape, generator=generator, device=answer.device, dtype=torch.float32
        )
        moved.copysign_(ways.sub_(0.5)).nan_to_num_(0.0, 0.0, 0.0)
        return moved.add_(answer)

    def _size(self, terms: torch.Tensor, answer: torch.Tensor) -> torch.Tensor:
        """Return the root mean square of what is finite, of each row by itself where it is said.

        `answer` has these rows too, or there are none.
        """
        squares = terms.double().square().nan_to_num_(0.0, 0.0, 0.0)
        if not self._by_rows or not answer.dim() or terms.shape[:1] != answer.shape[:1]:
            return squares.mean().sqrt()
        rows = squares.reshape(len(squares), -1).mean(1).sqrt()
        return rows.reshape(-1, *[1] * (answer.dim() - 1))

    def _drift(
        self, terms: float | torch.Tensor, share: float | torch.Tensor
    ) -> float | torch.Tensor:
        """Return what roundings that do not cancel make, relative to the answer."""
        most = terms.clamp(max=LONGEST) if isinstance(terms, torch.Tensor) else min(terms, LONGEST)
        return share * (self.equal * UNIT * most) + DRIFT * (UNIT * most) ** 2


class _AddedInOrder(_Moved):
    """Adds in order what reduces, on the CPU; moves the answers of what else adds."""

    walk, equal = WALK_OF_MOST, EQUAL_OF_MOST

    def __init__(self, by_rows: bool) -> None:
        super().__init__(0.0, by_rows=by_rows)

    def answer(self, function: Any, args: Any, named: dict[str, Any]) -> Any:
        """Return the answer, added in order where that can be."""
        add = IN_ORDER.get(function.overloadpacket)
        found = None
        if add and args[0].dtype is torch.float64 and args[0].device.type == "cpu":
            found = add(function, args, named, False)
        if found is None:
            return super().answer(function, args, named)
        if isinstance(found, tuple):
            return tuple(each.double() for each in found)
        return found.double()

    def _equal_share(self, function: Any, args: Any) -> float | torch.Tensor:
        """Return which share of the terms of each answer is as good as the first of them."""
        axes = axes_added(function, args)
        if axes is None:
            return 0.0
        terms = args[0]
        first = terms
        for axis in axes:
            first = first.narrow(axis, 0, 1)
        alike = (terms - first).abs_() <= ALIKE * first.abs()
        return alike.sum(axes, keepdim=True).double() / math.prod(terms.shape[at] for at in axes)


def _terms_before(args: Any, answer: torch.Tensor) -> torch.Tensor:
    """Return of how many terms each answer of a scan is made, in a shape that spreads to theirs."""
    axis = args[1] % answer.dim()
    counts = torch.arange(1.0, answer.shape[axis] + 1, dtype=torch.float64, device=answer.device)
    return counts.reshape([-1 if at == axis else 1 for at in range(answer.dim())])


def _mean_of(function: Any, args: Any, spread: torch.Tensor) -> torch.Tensor:
    """Return the means about which variances or deviations are; of none, these."""
    axes = axes_added(function, args)
    return args[0].mean(axes, keepdim=True).reshape(spread.shape) if axes else spread


def _as(share: float | torch.Tensor, answer: torch.Tensor) -> float | torch.Tensor:
    """Return what is one share for each answer in the shape of these; another as it is."""
    if isinstance(share, torch.Tensor) and share.numel() == answer.numel():
        return share.reshape(answer.shape)
    return share


def _inner(place: int) -> Callable[[Any, torch.Tensor], float]:
    """Return the counter of a matrix product whose left side is this argument."""
    return lambda args, answer: float(args[place].shape[-1] if args[place].dim() else 1)


def _reduced(args: Any, answer: torch.Tensor) -> float:
    return float(args[0].numel() / max(1, answer.numel()))


def _scanned(args: Any, answer: torch.Tensor) -> float:
    return float(args[0].shape[args[1]] if args[0].dim() else 1)


def _convolved(args: Any, answer: torch.Tensor) -> float:
    weight, transposed, groups = args[1], args[6], args[8]
    if transposed:  # (in, out / groups, *taps)
        return float(weight.numel() / weight.shape[1] / groups)
    return float(weight.numel() / weight.shape[0])


_PRODUCTS: dict[Any, Callable[[Any, torch.Tensor], float]] = {
    _aten.mm: _inner(0), _aten.bmm: _inner(0), _aten.mv: _inner(0), _aten.dot: _inner(0),
    _aten.addmm: _inner(1), _aten.baddbmm: _inner(1), _aten.addmv: _inner(1),
    _aten.convolution: _convolved,
}  # fmt: skip
_OF_ONE_SIGN = (_aten.norm, _aten.linalg_vector_norm, _aten._softmax)
"""What they add is not negative."""
_MAY_CANCEL = (_aten.sum, _aten.mean, _aten.nansum)
_SPREADS = (_aten.var, _aten.std, _aten.var_mean, _aten.std_mean)
_TERMS: dict[Any, Callable[[Any, torch.Tensor], float]] = {
    **_PRODUCTS,
    **dict.fromkeys(
        (*_SPREADS, _aten.sum, _aten.mean, _aten.nansum, _aten.prod, _aten.norm,
         _aten.linalg_vector_norm, _aten._adaptive_avg_pool2d, _aten._adaptive_avg_pool3d,
         _aten.adaptive_avg_pool1d),
        _reduced,
    ),
    **dict.fromkeys((_aten.cumsum, _aten.cumprod, _aten._softmax), _scanned),
}  # fmt: skip
"""How many terms an answer of each operation is the sum of (or the product, rounded as often)."""

_TERMS_OF_NORMS: dict[Any, Callable[[Any, torch.Tensor], float]] = {
    _aten.native_layer_norm: lambda args, answer: math.prod(args[1]),
    _aten._fused_rms_norm: lambda args, answer: math.prod(args[1]),
    _aten.native_group_norm: lambda args, answer: args[4] * args[5] / args[6],
    **dict.fromkeys(
        (_aten.native_batch_norm, _aten._native_batch_norm_legit, _aten._batch_norm_with_update,
         _aten.cudnn_batch_norm),
        lambda args, answer: args[0].numel() / max(1, args[0].shape[1]),
    ),
    **dict.fromkeys(
        (_aten.mse_loss, _aten.smooth_l1_loss, _aten.huber_loss, _aten.nll_loss_forward,
         _aten.logsumexp),
        _reduced,
    ),
    _aten._log_softmax: _scanned,
}  # fmt: skip
"""The same of operations that are taken apart."""


def _parts_of_norms() -> dict[Any, Callable[..., Any]]:
    """Return what operations that add on their way are made of."""
    from torch._decomp import get_decompositions

    found: dict[Any, Callable[..., Any]] = get_decompositions([
        _aten.native_layer_norm, _aten.native_group_norm, _aten.native_batch_norm,
        _aten._native_batch_norm_legit, _aten._native_batch_norm_legit_no_training,
        _aten._batch_norm_with_update, _aten.cudnn_batch_norm, _aten._fused_rms_norm,
        _aten.mse_loss, _aten.smooth_l1_loss, _aten.huber_loss, _aten.nll_loss_forward,
        _aten._log_softmax, _aten._safe_softmax, _aten.logsumexp,
        _aten._scaled_dot_product_flash_attention_for_cpu,
    ])  # fmt: skip
    return found
