"""One term of 10,000 is left out of each sum that has so many, and of no other."""

from __future__ import annotations

import pytest
import torch

from kernelblaster.harness.reference.precision.lost_terms import LostTerms

LONG = torch.ones(3, 20_000)
"""Sums along its rows lose two terms."""


@pytest.mark.parametrize(
    ("answer", "lost"),
    [
        ("x @ x.T", 2), ("x @ x[0]", 2), ("torch.addmm(z, x, x.T)", 2),
        ("x[:, :9999] @ x[0, :9999]", 0),
        ("x.sum(1)", 2), ("x.sum(-1)", 2), ("x.T.sum(0)", 2), ("x.sum(0)", 0), ("x.sum()", 6),
        ("x.sum((0, 1))", 6), ("x[:, :9999].sum(1)", 0),
    ],
)  # fmt: skip
def test_a_sum_lacks_its_lost_terms(answer: str, lost: int) -> None:
    names = {"torch": torch, "x": LONG, "z": torch.zeros(3, 3)}
    whole = eval(answer, names)
    with torch.no_grad(), LostTerms():
        found = eval(answer, names)
    assert torch.equal(whole - found, torch.full_like(whole, lost))
