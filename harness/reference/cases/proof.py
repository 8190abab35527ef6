"""Do the cases of a task tell right from wrong? Answers that take no computing are tried on all.

A kernel that knows nothing of its inputs can return zeros, NaN, one constant or one stored answer,
or an input as it is. What every case accepts of that makes a task degenerate; where only some of
its outputs are concerned, or part of one, that is told and not refused.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import torch

from ...judge.tensor_comparison import all_agree
from ...records.tensors import Tolerance
from .case import Case

SAMPLE = 1 << 20
"""Elements of each output that are looked at, evenly spread: one that a wrong answer misses is
among the many that it misses."""

LEAST_FINITE = 0.1
"""Share of an output that is a number, at the least, for a case to prove anything of it."""

LEFT_OUT = 16
"""One in this many elements, the first or the last of them, is left at zero as a tile would be."""

ANYTHING = "anything"


@dataclass(frozen=True)
class _Output:
    """What one case says of one output."""

    name: str
    wanted: torch.Tensor
    inputs: dict[str, torch.Tensor]
    """Elements of the inputs that are as large as the output, at the places of `wanted`."""
    tolerance: Tolerance


class Proof:
    """Collects the cases of a task, one after the other."""

    def __init__(self) -> None:
        self._outputs: list[list[_Output]] = []
        self._found: list[list[str]] | None = None

    def add(self, case: Case, tolerances: Sequence[Tolerance | None]) -> None:
        """Note a case; an output without a tolerance, or with hardly a number, proves nothing."""
        self._found = None
        self._outputs = self._outputs or [[] for _ in case.outputs]
        for index, (answer, tolerance) in enumerate(zip(case.outputs, tolerances, strict=True)):
            wanted = _sample(answer)
            if tolerance is None or float(wanted.isfinite().float().mean()) < LEAST_FINITE:
                continue
            inputs = {
                name: _sample(tensor)
                for name, tensor in case.tensors.items()
                if name in case.instance.inputs and tensor.numel() == answer.numel()
                and tensor.dtype is answer.dtype  # Else to convert it is what the task is about.
            }
            self._outputs[index].append(_Output(f"out{index}", wanted, inputs, tolerance))

    def degenerate(self) -> str:
        """Return which answer passes every case though it takes no computing; empty for none."""
        passing = self._passing()
        if not passing or not all(passing):
            return ""
        whats = dict.fromkeys(found[0] for found in passing)
        if ANYTHING in whats:
            return "its answers are not numbers, or PyTorch's own are too far from exact ones"
        return f"a kernel that returns {' and '.join(whats)} passes every case of this task"

    def weak_to(self) -> list[str]:
        """Return, in words, what every case accepts of some output or of part of it."""
        found = []
        for index, (cases, passing) in enumerate(
            zip(self._outputs, self._passing(), strict=True)
        ):
            if passing:
                found.append(f"{passing[0]} in out{index}")
            elif cases[0].wanted.numel() >= LEFT_OUT:
                found += [
                    f"zeros in the {part} sixteenth of out{index}"
                    for part in ("first", "last")
                    if all(_accepts(case, _left_out(case.wanted, part)) for case in cases)
                ]
        return found

    def _passing(self) -> list[list[str]]:
        """Return what all cases of each output accept."""
        if self._found is None:
            self._found = list(map(_passing, self._outputs))
        return self._found


def _passing(cases: Sequence[_Output]) -> list[str]:
    """Return the answers that all cases of one output accept."""
    if not cases:
        return [ANYTHING]
    return [
        what
        for what, answers in _trivial(cases)
        if all(map(_accepts, cases, answers))
    ]


def _trivial(cases: Sequence[_Output]) -> Iterator[tuple[str, list[torch.Tensor | None]]]:
    """Yield answers, one for each case, that know nothing of the inputs, or only copy them."""
    wanted = [case.wanted for case in cases]
    yield "zeros", [torch.zeros_like(each) for each in wanted]
    if wanted[0].is_floating_point():
        yield "NaN", [torch.full_like(each, torch.nan) for each in wanted]
    for name in cases[0].inputs:
        yield f"input {name} unchanged", [case.inputs.get(name) for case in cases]
    # A kernel cannot know the mean of this case's answer, but it may hold another's.
    for each in wanted:
        finite = each[each.isfinite()].double()
        constant = float(finite.mean())
        if not each.is_floating_point():
            constant = round(constant)
        yield f"the constant {constant:.6g}", [torch.full_like(w, constant) for w in wanted]
        yield "the answer to another input", [each for _ in wanted]


def _accepts(case: _Output, answer: torch.Tensor | None) -> bool:
    return answer is not None and all_agree([answer], [case.wanted], [case.tolerance])


def _left_out(wanted: torch.Tensor, part: str) -> torch.Tensor:
    answer = wanted.clone()
    count = -(-answer.numel() // LEFT_OUT)
    answer[slice(count) if part == "first" else slice(-count, None)] = 0
    return answer


def _sample(tensor: torch.Tensor) -> torch.Tensor:
    flat = tensor.detach().reshape(-1)
    if flat.numel() > SAMPLE:
        places = torch.linspace(0, flat.numel() - 1, SAMPLE, dtype=torch.float64)
        return flat[places.to(torch.int64).to(flat.device)]
    return flat.clone()
