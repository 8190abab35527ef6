"""Tensors are compared as files of them are, in however many pieces."""

from __future__ import annotations

import pytest
import torch

from kernelblaster.harness.judge import tensor_comparison
from kernelblaster.harness.judge.tensor_comparison import (
    all_agree,
    are_equal,
    compare,
    largest_error,
)
from kernelblaster.harness.records.tensors import Tolerance

TOLERANCE = Tolerance(absolute=1e-4, relative=1e-4)
INF, NAN = float("inf"), float("nan")


@pytest.mark.parametrize(
    ("got", "expected", "equal"),
    [
        (1.0, 1.0, True), (1.00015, 1.0, True), (1.00025, 1.0, False), (100.0099, 100.0, True),
        (9e-5, 0.0, True), (1.1e-4, 0.0, False), (NAN, NAN, True), (NAN, 0.0, False),
        (0.0, NAN, False), (INF, INF, True), (-INF, INF, False), (3e38, INF, False),
        (INF, 3e38, False), (NAN, INF, False), (-0.0, 0.0, True),
    ],
)  # fmt: skip
def test_one_number(got: float, expected: float, equal: bool) -> None:
    found = compare(torch.tensor(got), torch.tensor(expected), TOLERANCE, "y")
    assert (found is None) is equal


def test_integers_and_booleans_are_exact() -> None:
    loose = Tolerance(absolute=0, relative=5)
    found = compare(torch.tensor([1, 3]), torch.tensor([1, 2]), loose, "y")
    assert found is not None and found.index == (1,)
    odd = torch.tensor([2, 0], dtype=torch.uint8).view(torch.bool)
    assert compare(odd, torch.tensor([True, False]), loose, "y") is not None
    assert compare(odd, torch.tensor([True, True]), loose, "y") is not None


@pytest.mark.parametrize("chunk", [5, 24, 1 << 20])
def test_place_count_and_region(chunk: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tensor_comparison, "CHUNK", chunk)
    expected = torch.zeros(4, 6)
    got = expected.clone()
    got[1, 2], got[3, 4], got[2, 2] = NAN, -7.0, 3.0
    found = compare(got, expected, TOLERANCE, "y")
    assert found is not None
    assert (found.index, found.count, found.total) == ((1, 2), 3, 24)
    assert (found.region, found.largest_error) == (((1, 3), (2, 4)), 7.0)
    assert largest_error(got, expected) == 7.0
    alone = compare(got[1], expected[1], TOLERANCE, "y")
    assert alone is not None and (alone.index, alone.region) == ((2,), ((2, 2),))


@pytest.mark.parametrize("chunk", [4, 1000])
def test_equal_in_every_chunk(chunk: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tensor_comparison, "CHUNK", chunk)
    one = torch.arange(10.0).reshape(2, 5)
    assert are_equal(one, one.clone())
    for place in range(10):
        other = one.clone()
        other.view(-1)[place] += 1e-6 if place == 0 else 0.1
        assert not are_equal(one, other)
    assert not are_equal(torch.tensor([torch.nan]), torch.tensor([torch.nan]))


def test_several_outputs_agree_where_each_does() -> None:
    one, two = torch.ones(3), torch.ones(2, 2)
    both = [TOLERANCE, TOLERANCE]
    assert all_agree([one, two], [one, two], both)
    assert not all_agree([one, two + 1], [one, two], both)
    assert not all_agree([one + 1, two], [one, two], both)
    assert all_agree([one, two + 1], [one, two], [TOLERANCE, None])
    assert not all_agree([one], [one.double()], [TOLERANCE])
    assert not all_agree([one], [one.reshape(3, 1)], [TOLERANCE])
    assert not all_agree([one], [one, two], both)
