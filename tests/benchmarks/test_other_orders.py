"""Answers added in other orders are the same answers, and what is left out is told."""

from __future__ import annotations

from types import ModuleType
from typing import Any

import pytest
import torch
from places import ROOT
from scripts import import_script

F = torch.nn.functional


@pytest.fixture(scope="module")
def orders() -> ModuleType:
    return import_script(ROOT / "benchmarks" / "kernelbench" / "other_orders.py")


def numbers(*shape: int) -> torch.Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(1))


X, W = numbers(2, 4, 9, 8), numbers(6, 2, 3, 2)
ANSWERS: dict[str, Any] = {
    "addmm": lambda: F.linear(numbers(5, 7), numbers(3, 7), numbers(3)),
    "bmm": lambda: numbers(2, 5, 7) @ numbers(2, 7, 3),
    "mv": lambda: numbers(5, 7) @ numbers(7),
    "convolution": lambda: F.conv2d(X, W, numbers(6), (2, 1), (1, 2), (1, 2), 2),
    "convolution 1d": lambda: F.conv1d(X[0], numbers(3, 9, 3), None, 2),
    "convolution 3d": lambda: F.conv3d(X[None], numbers(3, 2, 2, 3, 2), None, 1, 1),
    "convolution transposed": lambda: F.conv_transpose2d(
        X, numbers(4, 3, 3, 2), None, (2, 3), (1, 0), (1, 2), 2, (2, 1)
    ),
    "convolution transposed 1d": lambda: F.conv_transpose1d(X[0], numbers(9, 2, 3), None, 3, 2, 1),
    "cumsum": lambda: X.cumsum(2),
    "cumprod": lambda: X.cumprod(1),
    "avg_pool2d": lambda: F.avg_pool2d(X, 3, 2, 1),
    "avg_pool2d without padding": lambda: F.avg_pool2d(X, 2, 3, 1, True, False),
    "avg_pool3d": lambda: F.avg_pool3d(X[None], 2),
    "_softmax": lambda: X.softmax(1),
    "var_mean": lambda: F.group_norm(X, 2),
}


@pytest.mark.parametrize("backwards", [False, True])
@pytest.mark.parametrize("name", list(ANSWERS))
def test_another_order_is_the_same_answer(
    orders: ModuleType, name: str, backwards: bool
) -> None:
    mode = orders.OneByOne(backwards)
    with torch.no_grad(), torch.backends.mkldnn.flags(enabled=False):
        right = ANSWERS[name]()
        with mode:
            found = ANSWERS[name]()
    assert mode.added == {name.split()[0]: 1} and not mode.left
    torch.testing.assert_close(found, right, rtol=1e-5, atol=1e-5)


def test_what_is_left_out_changes_the_answer(orders: ModuleType) -> None:
    with torch.no_grad():
        watched = orders.LeftOut(None)
        with watched:
            right = ANSWERS["addmm"]()
        (kind,) = watched.kinds
        with orders.LeftOut(kind):
            less = ANSWERS["addmm"]()
    assert kind == "addmm [3] [5, 7] [7, 3]"
    assert int((less != right).any(1).sum()) == 1


def test_one_element_of_ten_thousand_is_lost(orders: ModuleType) -> None:
    assert int((orders._without_some(torch.ones(20_001)) == 0).sum()) == 2
    assert int((orders._without_some(torch.ones(3)) == 0).sum()) == 1
    sparse = torch.zeros(20_000)
    sparse[9_000] = 1.0
    assert not orders._without_some(sparse).any(), "a zero is no loss"
