"""Borders are among the numbers of a case, however few these are."""

from __future__ import annotations

import pytest
import torch

from kernelblaster.harness.reference.drawing.borders import (
    RARE_SHARE,
    put_borders,
    put_each_once,
    put_ends,
)

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


def test_numbers_that_are_all_different_stay_so() -> None:
    classes = torch.randperm(8192, generator=torch.Generator().manual_seed(3))[:64]
    held = put_each_once(classes.clone(), [4999, 5000, int(classes[9])], torch.rand(len(classes)))
    assert len(set(held.tolist())) == 64 and {4999, 5000, int(classes[9])} <= set(held.tolist())
    order = torch.randperm(64)
    assert torch.equal(put_each_once(order.clone(), [5, 6, 7], torch.rand(len(order))), order)


@pytest.mark.parametrize("ends", [(0.0,), (0.0, 1.0)])
@pytest.mark.parametrize("count", [0, 1, 3, 100, 4096])
def test_ends_are_put_into_a_share_of_any_size(ends: tuple[float, ...], count: int) -> None:
    value = torch.full((count,), 0.5)
    kept = value.data_ptr()
    found = put_ends(value, ends, torch.Generator().manual_seed(1))
    assert found.data_ptr() == kept
    for end in ends:
        held = int((found == end).sum())
        assert abs(held - RARE_SHARE / len(ends) * count) <= 1
