"""Whether an answer hangs on which of equal elements comes first."""

from __future__ import annotations

import pytest
from small_references import reference

from kernelblaster.harness.reference.precision.ties import hang_on_ties


@pytest.mark.parametrize(
    ("body", "hangs"),
    [
        ("x.topk(2).values", False),
        ("x.topk(2).indices", True),
        ("x.topk(2).indices + 1_000_000", True),
        # As far apart as sums in another order are.
        ("x.topk(2).indices + 1e6", False),
        ("x[:, : int(x.topk(1).indices[0, 0]) + 1]", True),
    ],
)
def test_equal_elements_matter_where_answers_are_others(body: str, hangs: bool) -> None:
    made = reference(body, "torch.zeros(4, 8)")
    instance = made.instance(0)
    assert hang_on_ties(made, instance.model, instance.arguments) is hangs
