"""Borders are among the numbers of a case, however few these are."""

from __future__ import annotations

import pytest
import torch

from kernelblaster.harness.reference.drawing.borders import put_borders

CLASSES = [4999, 5000, 5001]


@pytest.mark.parametrize("seed", range(40))
def test_each_border_is_held_by_some_of_few_elements(seed: int) -> None:
    stream = torch.Generator().manual_seed(seed)
    classes = torch.randint(0, 8192, (8, 8), generator=stream)
    before = classes.clone()
    put_borders(classes, CLASSES, torch.rand(8, 8, generator=stream))
    assert all(bool((classes == each).any()) for each in CLASSES)
    assert int((classes == before).sum()) > 32, "most stay as they were drawn"


def test_of_too_few_none_is_taken_that_was_not_told() -> None:
    value, even = torch.zeros(6), torch.full((6,), 0.9)
    put_borders(value, [1.0, 2.0], even)
    assert not value.any()
