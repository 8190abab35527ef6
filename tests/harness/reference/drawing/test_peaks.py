"""Three terms of each long sum outweigh all others, and lie where loops lose them."""

from __future__ import annotations

import math
from collections.abc import Sequence

import pytest
import torch
from small_references import reference

from kernelblaster.harness.judge.tensor_comparison import all_agree
from kernelblaster.harness.records.variations import Variation
from kernelblaster.harness.reference.cases.case import Case
from kernelblaster.harness.reference.drawing.draws import Draw, draw
from kernelblaster.harness.reference.drawing.peaks import LEAST_TERMS, OUTWEIGHS, add_peaks
from kernelblaster.harness.task.rules import PEAKS


def peaked(shape: Sequence[int], most: float = 1e9) -> torch.Tensor:
    value = torch.zeros(tuple(shape))
    add_peaks(value, most, torch.Generator().manual_seed(0))
    return value


@pytest.mark.parametrize(
    ("shape", "axes"),
    [
        ((4, 3000), (1,)), ((3000,), (0,)), ((700, 9), (0,)), ((5, 600, 7), (1,)),
        ((2, 3, 40, 50), (2, 3)), ((2, 3, 40, 50), (1, 2, 3)), ((8, 3, 20, 20), (0, 2, 3)),
        ((2, 3, 40, 50), (0, 1, 2, 3)), ((6, 1, 512), (2,)),
    ],
)  # fmt: skip
def test_the_ends_of_whatever_is_summed_are_peaks(
    shape: tuple[int, ...], axes: tuple[int, ...]
) -> None:
    rest = [axis for axis in range(len(shape)) if axis not in axes]
    rows = peaked(shape).permute(*rest, *axes).flatten(len(rest)).reshape(-1, 1)
    terms = int(torch.tensor([shape[axis] for axis in axes]).prod())
    rows = rows.reshape(-1, terms).abs()
    assert bool((rows[:, 0] > 1).all()) and bool((rows[:, -1] > 1).all())
    assert int((rows > 0).sum(1).min()) >= 2
    # Few, so that each is a large part of the sum: those of wider and of narrower sums beside it.
    assert int((rows > 0).sum(1).max()) <= max(60, terms // 40)


def test_short_sums_have_none_and_the_largest_is_bounded() -> None:
    assert not peaked((LEAST_TERMS - 1,)).any() and not peaked((7, 9)).any()
    assert float(peaked((90_000,)).abs().max()) <= OUTWEIGHS * 300
    assert float(peaked((90_000,), 16.0).abs().max()) <= 16.0
    assert peaked((0, 900)).numel() == 0


def test_the_third_lies_where_a_piece_of_a_sum_ends() -> None:
    places = {300, 3, 4, 596, 595, 7, 8, 592, 591, 31, 32, 576, 575, 127, 128, 512, 511, 255, 256}
    # In the rows of a matrix of as few rows as have no peaks of their own.
    seen = {
        place
        for seed in range(20)
        for place in rows_of(seed).nonzero()[:, 1].tolist()
    }
    assert seen - {0, 599} == places


def rows_of(seed: int) -> torch.Tensor:
    value = torch.zeros(300, 600)
    add_peaks(value, 1e9, torch.Generator().manual_seed(seed))
    wide = value.abs() > OUTWEIGHS * math.sqrt(600) * 1.001
    assert float(value[~wide & (value != 0)].abs().min()) >= OUTWEIGHS * math.sqrt(600) / 1.501
    value[wide] = 0.0  # Those of the matrix as a whole.
    return value


@pytest.mark.parametrize(
    "body",
    ["F.layer_norm(x, (8192,))", "torch.softmax(x, 1)", "torch.logsumexp(x, 1)",
     "x.square().mean(1)", "x.var(1)"],
)  # fmt: skip
def test_a_lost_term_of_thousands_is_wrong(body: str) -> None:
    made = reference(body, "torch.randn(8, 8192)")
    how = Draw(5, "zeros", PEAKS[0])
    case = Case(made, draw(made, how, Variation(levels={"x": "any"})))
    for place in (0, 8191):
        x = case.tensors["x"].clone()
        x[:, place] = float("-inf") if "exp" in body or "soft" in body else 0.0
        (answer,) = made.outputs(case.model, [x])
        if answer.dim() > 1:  # What it answers in that place is another thing.
            answer[:, place] = case.outputs[0][:, place]
        assert not all_agree([answer], case.outputs, case.tolerances("both"))
