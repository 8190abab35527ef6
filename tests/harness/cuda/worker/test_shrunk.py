"""Inputs of a timed round differ from those before, and keep what a task may be about."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch

from kernelblaster.harness.cuda.worker.measure_run import shrunk
from kernelblaster.harness.reference.drawing.structure import is_sorted, is_symmetric

STREAM = torch.Generator().manual_seed(1)
SQUARE = torch.randn(64, 64, generator=STREAM)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16, torch.float64])
@pytest.mark.parametrize(
    ("own", "kept"),
    [
        (torch.randn(4, 4000, generator=STREAM).sort().values, is_sorted),
        (torch.linspace(0, 1, 5000), is_sorted),
        (SQUARE + SQUARE.T, is_symmetric),
        (SQUARE.tril(), lambda found: bool((found.triu(1) == 0).all())),
        (torch.rand(5000, generator=STREAM), lambda found: 0 <= found.min() <= found.max() <= 1),
    ],
)
def test_structure_signs_and_ranges_stay(
    own: torch.Tensor, kept: Callable[[torch.Tensor], bool], dtype: torch.dtype
) -> None:
    own = own.to(dtype)
    found = shrunk(own, 0.98, STREAM)
    assert kept(found) and found.dtype is dtype
    assert not torch.equal(found, own) and bool((found.sign() == own.sign()).all())
    assert bool((found.abs() <= own.abs()).all())


def test_what_has_no_structure_is_no_multiple_of_what_it_was() -> None:
    own = torch.rand(5000, generator=STREAM) + 1
    ratio = shrunk(own, 0.98, STREAM) / own
    assert 0.965 < ratio.min() < 0.972 and 0.978 < ratio.max() <= 0.9801
