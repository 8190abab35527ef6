"""Does the judge take right answers that were added in another order, and none that miss a part?

Asked by kernelbench_problem.py of each problem, at its small variant, with PyTorch on the CPU and
no device. Every operation that adds is answered anew in single precision, one term after the other,
as a plain kernel adds them (PyTorch adds in blocks, and in double precision here and there), and
what follows goes on from there: all answers must be within the tolerances of all cases. Then one
element of ELEMENTS is left out, of what each of these operations adds, one kind at a time
(operations of the same shapes are one kernel's work), and of the answers: some case must tell.

Taken apart are products of matrices, convolutions of all kinds, sums, means, variances, norms,
softmax, scans, average pooling, and what consists of these (norms of layers, losses, attention,
recurrent layers). What else a problem does is done as PyTorch does it.
"""

from __future__ import annotations

import copy
import math
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager
from typing import Any

import numpy as np
import torch

from kernelblaster.harness.judge.tensor_comparison import all_agree, parts
from kernelblaster.harness.records.tasks import Task
from kernelblaster.harness.records.tensors import Tolerance
from kernelblaster.harness.reference.cases.case import Case, forms, fresh
from kernelblaster.harness.reference.cases.distributions import Usual, first_finite, scale_of
from kernelblaster.harness.reference.loading.model import Reference, clone_arguments
from kernelblaster.harness.reference.precision.in_order import IN_ORDER, InOrder, add_in_order
from kernelblaster.harness.reference.precision.rounding import OtherSums
from kernelblaster.harness.task.rules import CASES

ELEMENTS = 10_000
MOST_LEFT_OUT = 24
"""Kinds of operations of which something is left out in turn; of more, evenly chosen."""
WORK = 1 << 31
"""Most products of one operation that are added anew; a larger one is left as it is, and told."""

_SINGLE = (torch.float32, torch.float16, torch.bfloat16)
_aten = torch.ops.aten
Answers = list[torch.Tensor]


def judged(task: Task) -> dict[str, Any]:
    """Return what the judge says of a problem's answers in other orders, and with parts left out.

    `ordered` and `noticed` say whether all is well; `nearest` is the largest error of another order
    as a share of what is tolerated, `added` counts the operations that were added anew, by name.
    """
    torch.set_num_threads(1)  # What is added is small.
    reference = Reference(task.source, task.path, task.verify.dimensions, reading=task.reading)
    cases = [*_cases(reference, task)]
    found: dict[str, Any] = {}
    nearest, refused = 0.0, []
    for name, backwards in (("ascending", False), ("descending", True)):
        for case, tolerances, told in cases:
            mode = OneByOne(backwards)
            answers = _answers(reference, case, mode)
            nearest = max(nearest, _share(answers, case.outputs, tolerances))
            if not all_agree(answers, case.outputs, tolerances):
                refused.append(f"{told} {name}")
            found["added"], found["as_it_is"] = dict(mode.added), sorted(mode.left)
    unnoticed = [*_unnoticed(reference, cases)]
    return found | {
        "ordered": not refused, "refused": refused, "nearest": round(nearest, 4),
        "noticed": not unnoticed, "unnoticed": unnoticed,
    }  # fmt: skip


Judged = tuple[Case, tuple[Tolerance | None, ...], str]


def _cases(reference: Reference, task: Task) -> Iterator[Judged]:
    """Yield the task's own cases, with their tolerances and names."""
    usual: Usual | None = None
    for number, name, _ in CASES:
        case, how = first_finite(reference, task.variation, number, name, usual)
        if usual is None:
            usual = Usual(how.still, case.finite, forms(case.outputs))
        yield case, case.tolerances(scale_of(name)), name


def _answers(
    reference: Reference, case: Case, mode: AbstractContextManager[Any]
) -> Answers:
    """Return a case's answers by a changed forward()."""
    arguments = clone_arguments(case.instance.arguments, fresh)
    # Recurrent layers and matrices are seen in parts only without oneDNN.
    with torch.backends.mkldnn.flags(enabled=False), mode:
        return reference.outputs(copy.deepcopy(case.model), arguments)


def _share(
    got: Sequence[torch.Tensor],
    wanted: Sequence[torch.Tensor],
    tolerances: Sequence[Tolerance | None],
) -> float:
    """Return the largest error as a share of what is tolerated there."""
    largest = 0.0
    for answer, right, tolerance in zip(got, wanted, tolerances, strict=True):
        if tolerance is None or not right.is_floating_point() or not tolerance.absolute:
            continue
        for a, b in zip(parts(answer), parts(right), strict=True):
            error = (a.double() - b.double()).abs()
            share = error / (tolerance.absolute + tolerance.relative * b.double().abs())
            largest = max(largest, float(torch.where(share.isfinite(), share, 0.0).max()))
    return largest


def _unnoticed(reference: Reference, cases: Sequence[Judged]) -> Iterator[str]:
    """Yield what can be left out and no case tells."""
    first = cases[0][0]
    watched = LeftOut(None)
    _answers(reference, first, watched)
    kinds = [*watched.kinds]
    step = max(1.0, len(kinds) / MOST_LEFT_OUT)
    for place in range(min(len(kinds), MOST_LEFT_OUT)):
        kind = kinds[int(place * step)]
        changed = lambda case, kind=kind: _answers(reference, case, LeftOut(kind))  # noqa: E731
        if not _is_noticed(cases, changed):
            yield f"of what {kind} adds"
    if not _is_noticed(cases, lambda case: [_without_some(each) for each in case.outputs]):
        yield "of the answers"


def _is_noticed(cases: Sequence[Judged], changed: Callable[[Case], Answers]) -> bool:
    return any(
        not all_agree(changed(case), case.outputs, tolerances) for case, tolerances, _ in cases
    )


def _without_some(tensor: torch.Tensor) -> torch.Tensor:
    """Return a tensor with one element of ELEMENTS zero, of any number one."""
    flat = tensor.clone().reshape(-1)
    places = torch.arange(min(ELEMENTS, flat.numel()) // 3, flat.numel(), ELEMENTS)
    # A zero is no loss: the next element that is none is.
    for place in places.tolist():
        others = flat[place : place + ELEMENTS].nonzero()
        if len(others):
            flat[place + int(others[0])] = 0
    return flat.view(tensor.shape)


class LeftOut(OtherSums):
    """Leaves one element of ELEMENTS out of what operations of a kind add; `kinds` are all."""

    def __init__(self, kind: str | None) -> None:
        super().__init__()
        self.kinds: Counter[str] = Counter()
        self._kind = kind

    def answer(self, function: Any, args: Any, named: dict[str, Any]) -> Any:
        """Return the answer to less."""
        operation = function.overloadpacket
        place = _ADDED.get(operation)
        if place is None or not args[place].is_floating_point():
            return function(*args, **named)
        shapes = (str([*each.shape]) for each in args if isinstance(each, torch.Tensor))
        kind = f"{operation.__name__} {' '.join(shapes)}"
        self.kinds[kind] += 1
        given = list(args)
        if kind == self._kind:
            given[place] = _without_some(given[place])
        return function(*given, **named)


class OneByOne(OtherSums):
    """Adds one term after the other, in single precision; from the last to the first `backwards`.

    `added` counts what was, `left` names what was too much work.
    """

    def __init__(self, backwards: bool) -> None:
        super().__init__()
        self.added: Counter[str] = Counter()
        self.left: set[str] = set()
        self._backwards = backwards

    def answer(self, function: Any, args: Any, named: dict[str, Any]) -> Any:
        """Return the answer, added in order."""
        operation = function.overloadpacket
        add = _ADD.get(operation)
        first = next((each for each in args if isinstance(each, torch.Tensor)), None)
        if add is None or first is None or first.dtype not in _SINGLE:
            return function(*args, **named)
        # Half-precision numbers are added in single precision, as kernels do.
        given = [each.float() if isinstance(each, torch.Tensor) else each for each in args]
        found = add(function, given, named, self._backwards)
        if found is None:
            self.left.add(operation.__name__)
            return function(*args, **named)
        self.added[operation.__name__] += 1
        if isinstance(found, tuple):
            return tuple(each.to(first.dtype) for each in found)
        return found.to(first.dtype)


def _product(left: torch.Tensor, right: torch.Tensor, backwards: bool) -> torch.Tensor | None:
    """Multiply (..., m, k) by (..., k, n)."""
    terms = left.shape[-1]
    total = torch.zeros(*left.shape[:-1], right.shape[-1])
    if total.numel() * terms > WORK:
        return None
    places = range(terms - 1, -1, -1) if backwards else range(terms)
    across, down = left.transpose(-1, -2).contiguous(), right.contiguous()
    for place in places:
        total.addcmul_(across[..., place, :, None], down[..., place, None, :])
    return total


def _mm(function: Any, args: Any, named: dict[str, Any], backwards: bool) -> Any:
    return _product(args[0], args[1], backwards)


def _mv(function: Any, args: Any, named: dict[str, Any], backwards: bool) -> Any:
    return add_in_order(args[0] * args[1], [-1], keep=False, backwards=backwards)


def _addmm(function: Any, args: Any, named: dict[str, Any], backwards: bool) -> Any:
    found = _product(args[1], args[2], backwards)
    if found is None:
        return None
    return named.get("alpha", 1) * found + named.get("beta", 1) * args[0]


def _scan(function: Any, args: Any, named: dict[str, Any], backwards: bool) -> Any:
    """Sums up to each place; backwards by sums of two, four, ... places, as threads do."""
    rows = args[0].movedim(args[1], 0).contiguous()
    join = torch.mul if function.overloadpacket is _aten.cumprod else torch.add
    if not backwards:
        accumulate = np.multiply if join is torch.mul else np.add
        found = torch.from_numpy(accumulate.accumulate(rows.numpy(), axis=0))
        return found.movedim(0, args[1]).contiguous()
    reach = 1
    while reach < len(rows):
        rows = torch.cat([rows[:reach], join(rows[reach:], rows[:-reach])])
        reach *= 2
    return rows.movedim(0, args[1]).contiguous()


def _windows(
    given: torch.Tensor,
    taps: Sequence[int],
    stride: Sequence[int],
    dilation: Sequence[int],
    size: Sequence[int],
) -> torch.Tensor:
    """Return (batch, channels, *taps, *size): what each place of an answer looks at."""
    steps = given.stride()
    return given.as_strided(
        (*given.shape[:2], *taps, *size),
        (*steps[:2], *(step * by for step, by in zip(steps[2:], dilation, strict=True)),
         *(step * by for step, by in zip(steps[2:], stride, strict=True))),
    )  # fmt: skip


def _convolution(function: Any, args: Any, named: dict[str, Any], backwards: bool) -> Any:
    given, weight, bias, stride, padding, dilation, transposed, output_padding, groups = args
    axes = given.dim() - 2
    taps = weight.shape[2:]
    stride, padding, dilation, more = (
        [*each] * (axes if len(each) == 1 else 1)
        for each in (stride, padding, dilation, output_padding or [0])
    )
    if transposed:
        # It is a convolution of what was spread out, by weights that are turned round.
        spread = given.new_zeros(
            *given.shape[:2],
            *((n - 1) * by + 1 for n, by in zip(given.shape[2:], stride, strict=True)),
        )
        spread[(..., *(slice(None, None, by) for by in stride))] = given
        by_group = weight.reshape(groups, -1, *weight.shape[1:])
        weight = by_group.transpose(1, 2).flatten(0, 1).flip(*range(2, 2 + axes))
        before = [by * (t - 1) - p for by, t, p in zip(dilation, taps, padding, strict=True)]
        around = [(each, each + m) for each, m in zip(before, more, strict=True)]
        given, stride = spread, [1] * axes
    else:
        around = [(each, each) for each in padding]
    padded = torch.nn.functional.pad(given, [n for pair in reversed(around) for n in pair])
    padded = padded.contiguous()
    size = [
        (n - by * (t - 1) - 1) // s + 1
        for n, by, t, s in zip(padded.shape[2:], dilation, taps, stride, strict=True)
    ]
    terms = weight[0].numel()
    if given.shape[0] * math.prod(size) * weight.shape[0] * terms > WORK:
        return None
    seen = _windows(padded, taps, stride, dilation, size)
    batch, outputs = given.shape[0], weight.shape[0] // groups
    seen = seen.reshape(batch, groups, terms, 1, -1)
    weights = weight.reshape(groups, outputs, terms, 1)
    total = torch.zeros(batch, groups, outputs, seen.shape[-1])
    for place in range(terms - 1, -1, -1) if backwards else range(terms):
        total.addcmul_(seen[:, :, place], weights[:, :, place])
    total = total.reshape(batch, weight.shape[0], *size)
    return total if bias is None else total + bias.reshape(-1, *[1] * axes)


def _average(function: Any, args: Any, named: dict[str, Any], backwards: bool) -> Any:
    """Average pooling: as many places are added as PyTorch divides by."""
    given, axes = args[0], len(args[1])
    if given.dim() != axes + 2:
        return None
    taps = [*args[1]]
    stride = [*args[2]] if len(args) > 2 and args[2] else taps
    padding = [*args[3]] if len(args) > 3 else [0] * axes
    ones = torch.ones_like(given)
    shares = function(ones, *args[1:], **named)
    size = shares.shape[2:]
    sums = []
    for each in (given, ones):
        more = [max(0, (n - 1) * s + t - p - m) for n, s, t, p, m in
                zip(size, stride, taps, padding, given.shape[2:], strict=True)]  # fmt: skip
        around = [n for p, m in zip(reversed(padding), reversed(more), strict=True) for n in (p, m)]
        padded = torch.nn.functional.pad(each, around).contiguous()
        seen = _windows(padded, taps, stride, [1] * axes, size).flatten(2, 1 + axes)
        sums.append(add_in_order(seen, [2], keep=False, backwards=backwards))
    return sums[0] / (sums[1] / shares)


def _to_one(function: Any, args: Any, named: dict[str, Any], backwards: bool) -> Any:
    """Adaptive pooling to one place."""
    axes = len(args[1])
    if any(size != 1 for size in args[1]):
        return None
    found = add_in_order(args[0], list(range(-axes, 0)), keep=True, backwards=backwards)
    return found / math.prod(args[0].shape[-axes:])


_ADD: dict[Any, InOrder] = {
    **IN_ORDER,
    _aten.mm: _mm, _aten.bmm: _mm, _aten.mv: _mv, _aten.dot: _mv, _aten.addmm: _addmm,
    _aten.baddbmm: _addmm, _aten.convolution: _convolution, _aten.cumsum: _scan,
    _aten.cumprod: _scan, _aten.avg_pool2d: _average, _aten.avg_pool3d: _average,
    _aten._adaptive_avg_pool2d: _to_one, _aten._adaptive_avg_pool3d: _to_one,
}  # fmt: skip
"""How each operation is added anew; None from one means that it was not."""

_ADDED: dict[Any, int] = dict.fromkeys(_ADD, 0) | {_aten.addmm: 1, _aten.baddbmm: 1}
"""Which argument of each is added up."""
