"""Integers that forward() names and get_inputs() does not draw: found, told and drawn."""

from __future__ import annotations

import pytest
from graph_support import text_task
from small_references import cases, reference

from kernelblaster.harness.records.variations import Variation
from kernelblaster.harness.reference.cases.claimed import claimed_instance
from kernelblaster.harness.reference.cases.exploration import explore
from kernelblaster.harness.task.claims import ClaimedInput, NotAnInput, require_claimable
from kernelblaster.tools.wording.rules import rules_context

ROWS = "torch.randn(N, 40), torch.randint(0, 40, (N,))"
BAGS = "torch.randn(N, 40), torch.randint(0, 8, (N, 8))"
KEPT = "(-x.log_softmax(1).gather(1, y.clamp(min=0)[:, None])[:, 0] * (y != -100)).sum()"


@pytest.mark.parametrize(
    ("body", "inputs", "named"),
    [
        ("F.cross_entropy(x, y)", ROWS, (-100,)),
        ("F.cross_entropy(x, y, ignore_index=-1, label_smoothing=0.1)", ROWS, (-1,)),
        ("F.nll_loss(x, y, reduction='none', ignore_index=99)", ROWS, (99,)),
        ("F.cross_entropy(x.view(N, 5, 8), y % 5)", BAGS, ()),
        ("F.multilabel_margin_loss(x[:, :8], y)", BAGS, (-1,)),
        (KEPT, ROWS, (-100,)),
        ("x[y.clamp(min=0)] * (y >= 0)[:, None]", ROWS, (-1,)),
        ("x[y.clamp(min=0)] * (y > -1)[:, None]", ROWS, (-1,)),
        ("x[torch.where(y < 0, y + N, y)]", ROWS, (-1,)),
        ("torch.where((y == 50256)[:, None], x, 0.0)", ROWS, (50256,)),
        ("torch.where((2 * y + 1 == 201)[:, None], x, 0.0)", ROWS, (100,)),
        ("torch.where((y.int() == 1 << 40)[:, None], x, 0.0)",
         ROWS.replace("(N,)", "(N,), dtype=torch.int32"), ()),
        # Its range holds them, nothing is made of them alone, or forward() does not survive them.
        ("F.cross_entropy(x, y, ignore_index=7)", ROWS, ()),
        ("F.embedding(y, x, padding_idx=3)", ROWS, ()),
        ("x[y.clamp(min=0)] * (y != -100 - N * 0)[:, None].sum().clamp(min=1, max=1)", ROWS, ()),
        ("torch.where((y > 0)[:, None], x[y - 1], 0.0)", ROWS, ()),
        ("torch.where((y == 4000)[:, None], x[y], 0.0)", ROWS, ()),
        # No one names an index that counts from the end.
        ("x[y]", ROWS, ()),
        ("torch.where((y >= 5)[:, None], x[y], 0.0)", ROWS, ()),
    ],
)  # fmt: skip
def test_what_forward_names_and_survives_is_found_where_it_tells(
    body: str, inputs: str, named: tuple[int, ...]
) -> None:
    variation = explore(reference(body, inputs, "x, y"))
    assert variation.named == ({"y": named} if named else {})


def test_integers_in_order_stay_so() -> None:
    for labels in ("torch.arange(40)", "torch.randperm(40)"):
        made = reference("F.cross_entropy(x[:40], y)", f"torch.randn(N, 40), {labels}", "x, y")
        assert explore(made).named == {}


def test_of_a_bag_the_row_that_is_passed_over_is_common_in_a_case() -> None:
    made = reference("F.embedding_bag(y, x, padding_idx=37)",
                     "torch.randn(N, 40), torch.randint(0, 64, (N, 8))", "x, y")  # fmt: skip
    held = [int((case.tensors["y"] == 37).sum()) for case in cases(made, explore(made))]
    assert held[5] > 12 > held[1]


def test_what_is_drawn_is_told_and_may_be_claimed() -> None:
    made = reference("F.cross_entropy(x, y)", ROWS, "x, y")
    found = explore(made)
    assert int(claimed_instance(made, found, _place("y", -100)).inputs["y"][3]) == -100
    with pytest.raises(NotAnInput, match="within 0 and"):
        claimed_instance(made, found, _place("y", -99))

    levels = Variation(levels={"x": "below"}, named={"x": (-100, 7)})
    task = text_task().model_copy(update={"variation": levels})
    assert rules_context(task)["figures"].narrower == (
        " (x: from 0 to its largest, and -100 and 7 as well, by what forward() says or accepts)"
    )
    require_claimable(task, _place("x", -100))
    with pytest.raises(NotAnInput, match="from 0"):
        require_claimable(task, _place("x", -1))


def _place(tensor: str, value: float) -> ClaimedInput:
    place = {"index": [3], "value": value}
    return ClaimedInput.model_validate(
        {"tensors": [{"tensor": tensor, "kind": "own", "places": [place]}]}
    )


def test_a_named_integer_is_of_the_type() -> None:
    made = reference("torch.where((y == 300)[:, None], x, -x)",
                     "torch.randn(N, 40), torch.randint(0, 40, (N,), dtype=torch.uint8)", "x, y")
    assert explore(made).named == {}
