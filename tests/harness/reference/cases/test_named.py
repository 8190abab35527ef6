"""Integers that forward() names and get_inputs() does not draw: found, told and drawn."""

from __future__ import annotations

import pytest
import torch
from graph_support import text_task
from small_references import cases, reference

from kernelblaster.harness.records.parts import Span, in_words, joined, slices_of
from kernelblaster.harness.records.variations import Variation
from kernelblaster.harness.reference.cases.claimed import claimed_instance
from kernelblaster.harness.reference.cases.exploration import explore
from kernelblaster.harness.task.claims import ClaimedInput, NotAnInput, require_claimable
from kernelblaster.tools.wording.rules import rules_context

ROWS = "torch.randn(N, 40), torch.randint(0, 40, (N,))"
BAGS = "torch.randn(N, 40), torch.randint(0, 8, (N, 8))"
KEPT = "(-x.log_softmax(1).gather(1, y.clamp(min=0)[:, None])[:, 0] * (y != -100)).sum()"

SHIFTED = (
    "F.cross_entropy(x, (lambda z: (z[:-1].copy_(y[1:]), z[-1].fill_(-100), z)[2])("
    "torch.zeros_like(y)))"
)
HIDDEN = "F.cross_entropy(x, (lambda z: (z.masked_fill_(z == 7, -100), z)[1])(y.clone()))"
CHANGED = "F.cross_entropy(x, y.clone().mul_(3).remainder_(40))"


@pytest.mark.parametrize(
    ("body", "inputs", "named"),
    [
        ("F.cross_entropy(x, y)", ROWS, (-100,)),
        ("F.cross_entropy(x, y, ignore_index=-1, label_smoothing=0.1)", ROWS, (-1,)),
        ("F.nll_loss(x, y, reduction='none', ignore_index=99)", ROWS, (99,)),
        ("F.cross_entropy(x.view(N, 5, 8), y % 5)", BAGS, ()),
        ("F.multilabel_margin_loss(x[:, :8], y)", BAGS, (-1,)),
        (KEPT, ROWS, (-1, -100)),
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
        ("x[y % 1 + 3] * (y != -100 - N * 0)[:, None].sum().clamp(min=1, max=1)", ROWS, ()),
        ("torch.where((y > 0)[:, None], x[y - 1], 0.0)", ROWS, ()),
        ("torch.where((y == 4000)[:, None], x[y], 0.0)", ROWS, ()),
        # What holds an index within a range says what becomes of all others.
        ("x[y.clamp(min=0)]", ROWS, (-1,)),
        ("x[F.relu(y)]", ROWS, (-1,)),
        ("x[y.clamp(max=39)]", ROWS, (40,)),
        ("x[torch.minimum(y, torch.tensor(39))]", ROWS, (40,)),
        ("x[torch.minimum(torch.tensor(39), y)]", ROWS, (40,)),
        # A number may stand in a tensor that no input has a part in.
        ("x[torch.where(y == torch.tensor(-1), 0, y)] * (y != torch.tensor(-1))[:, None]", ROWS,
         (-1,)),
        ("torch.where((torch.tensor(-1) < y)[:, None], x[y], 0.0)", ROWS, (-1,)),
        ("torch.where((torch.full_like(y, -1) == y)[:, None], 0.0, x[y])", ROWS, (-1,)),
        ("torch.where(torch.isin(y, torch.tensor([5, -1, 64]))[:, None], 0.0, "
         "x[y.clamp(max=39)])", ROWS, (-1, 64, 40)),
        ("torch.where((y[:, None] == torch.arange(-20, 0)).any(1)[:, None], 0.0, x[y])", ROWS, ()),
        ("torch.where((y == y.min() - 1)[:, None], 0.0, x[y])", ROWS, ()),
        ("x[y.abs().clamp(max=20)]", ROWS, (-1,)),
        ("x[(-y).clamp(min=-30)]", ROWS, ()),
        # Elements in other places, or beside others, are what they were.
        ("F.cross_entropy(x[:-1], torch.cat([y, y.new_full((1,), -100)])[1:-1])", ROWS, (-100,)),
        ("F.cross_entropy(x, F.pad(y, (0, 1), value=-100)[1:])", ROWS, (-100,)),
        ("F.cross_entropy(x, y.roll(1).masked_fill(y == 7, -100))", ROWS, (-100,)),
        ("F.cross_entropy(x, torch.where(y == 3, -100, y))", ROWS, (-100,)),
        (SHIFTED, ROWS, (-100,)),
        (HIDDEN, ROWS, (-100,)),
        ("F.cross_entropy(x, torch.stack([y, y])[1].flip(0))", ROWS, (-100,)),
        ("F.cross_entropy(x, y.sort().values)", ROWS, (-100,)),
        (CHANGED, ROWS, ()),
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


@pytest.mark.parametrize(
    ("body", "named", "past"),
    [
        ("torch.where((y >= 0)[:, None], x[y.clamp(min=0)], 0.0)", (-1,), ((-1, -41),)),
        ("x[y.clamp(min=0)]", (-1,), ((-1, -41),)),
        ("x[y.clamp(max=39)]", (40,), ((40, 80),)),
        ("x[torch.where(y > 39, 5, y)]", (40,), ((40, 80),)),
        # As far as forward() survives it.
        ("x[torch.where(y < 0, y + 60, y)]", (-1,), ((-1, -41),)),
        ("F.embedding(torch.where(y < 0, y + 20, y), x)", (-1,), ((-1, -11),)),
        # Of numbers that stand for themselves there are no others.
        ("F.cross_entropy(x, y)", (-100,), ()),
        ("torch.where((y == -1)[:, None], 0.0, x[y])", (-1,), ()),
    ],
)
def test_what_lies_past_a_border_is_drawn_as_far_as_it_is_survived(
    body: str, named: tuple[int, ...], past: tuple[tuple[int, int], ...]
) -> None:
    made = reference(body, "torch.randn(N, 40), torch.randint(0, 40, (N,))", "x, y")
    found = explore(made)
    assert found.named == {"y": named} and found.past == ({"y": past} if past else {})
    held = {int(each) for each in cases(made, found)[5].tensors["y"]}
    assert named[0] in held
    for first, last in past:
        assert any(min(first, last) <= each <= max(first, last) and each != first for each in held)


PAIRS = "torch.randn(N, 40), torch.randint(0, 40, (2, 64))"
TAGS = "torch.randn(N, 40), torch.randint(0, 40, (64, 3, 4))"
SAFE = "x[{0}.clamp(min=0)] * ({0} >= 0)[:, None] + x[{1}]"


@pytest.mark.parametrize(
    ("body", "inputs", "part"),
    [
        (SAFE.format("y[1]", "y[0]"), PAIRS, "[1]"),
        (SAFE.format("y.unbind()[1]", "y.unbind()[0]"), PAIRS, "[1]"),
        (SAFE.format("y.chunk(2)[0][0]", "y[1]"), PAIRS, "[0]"),
        (SAFE.format("y.T[:, 1].flip(0)", "y[0]"), PAIRS, "[1]"),
        (SAFE.format("y.flatten()[64:]", "y[0]"), PAIRS, "[1]"),
        (SAFE.format("(y + 0)[1]", "y[0]"), PAIRS, "[1]"),
        (SAFE.format("y[:, 1:, 2].reshape(-1)[:64]", "y[:, 0, 0]"), TAGS, "[:, 1:, 2]"),
        (SAFE.format("y[:, 2, :2].clone()[:, 1]", "y[:, 0, 0]"), TAGS, "[:, 2, 1]"),
        # Of both pieces it is named, or all of it is taken at once.
        ("x[y[0].clamp(min=0)] + x[y[1].clamp(min=0)]", PAIRS, ""),
        ("x[y.clamp(min=0)[1]] + x[y.clamp(min=0)[0]]", PAIRS, ""),
    ],
)  # fmt: skip
def test_what_is_named_of_a_piece_is_drawn_there_alone(body: str, inputs: str, part: str) -> None:
    made = reference(body, inputs, "x, y")
    found = explore(made)
    assert found.named == {"y": (-1,)}
    assert in_words(found.parts.get("y", {}).get(-1, ())) == part
    (beyond,) = found.beyond("y")
    for case in cases(made, found):
        drawn = case.tensors["y"]
        outside = torch.ones_like(drawn, dtype=torch.bool)
        outside[slices_of(beyond.part, drawn.shape)] = False
        assert not bool((drawn[outside] < 0).any())
    assert bool((cases(made, found)[5].tensors["y"] < 0).any())


def test_what_is_named_of_a_piece_is_told_and_claimed_there_alone() -> None:
    made = reference(SAFE.format("y[1]", "y[0]"), PAIRS, "x, y")
    found = explore(made)

    def placed(index: list[int]) -> ClaimedInput:
        places = [{"index": index, "value": -1}]
        return ClaimedInput.model_validate(
            {"tensors": [{"tensor": "y", "kind": "own", "places": places}]}
        )

    assert int(claimed_instance(made, found, placed([1, 3])).inputs["y"][1, 3]) == -1
    with pytest.raises(NotAnInput, match="within 0 and"):
        claimed_instance(made, found, placed([0, 3]))
    again = Variation.model_validate_json(found.model_dump_json())
    assert again == found

    half = (Span(0, 512, 1024, 1024),)
    levels = Variation(levels={"x": "below"}, named={"x": (-1,)}, parts={"x": {-1: half}})
    task = text_task().model_copy(update={"variation": levels})
    assert rules_context(task)["figures"].narrower == (
        " (x: from 0 to its largest, and -1 (in x[512:] alone) as well, by what forward() says or "
        "accepts)"
    )


def test_a_part_is_the_same_share_at_any_size() -> None:
    halves, second = Span(1, 4, 8, 8), Span(0, 1, 2, 2)
    assert slices_of((halves,), (3, 6)) == (slice(None), slice(3, 6))
    assert slices_of((second, halves), (2, 4096)) == (slice(1, 2), slice(2048, 4096))
    assert joined((second, halves), (halves,)) == (halves,)
    assert joined((Span(0, 0, 1, 3),), (Span(0, 1, 2, 3),)) == (Span(0, 0, 2, 3),)
    assert joined((Span(0, 0, 1, 2),), (second,)) == () == joined((), (second,))
    assert in_words((Span(2, 0, 4, 8),)) == "[:, :, :4]"


@pytest.mark.parametrize("labels", ["torch.randint(1, 65, (N,))", "torch.randint(0, 64, (N,)) + 1"])
def test_what_is_compared_with_is_common_where_zero_is_not_survived(labels: str) -> None:
    made = reference("F.embedding(y - 1, x) * (y != 7)[:, None]", f"torch.randn(N, 40), {labels}",
                     "x, y")  # fmt: skip
    found = explore(made)
    assert found.levels["y"] == "range"
    assert int((cases(made, found)[5].tensors["y"] == 7).sum()) >= 2


def test_what_is_compared_with_is_common_where_no_case_of_zeros_is_survived() -> None:
    made = reference("torch.where(y == 777, 0.0, x[:, 0] / y.float())",
                     "torch.randn(N, 40), torch.randint(1, 50000, (N,))", "x, y")  # fmt: skip
    held = cases(made, explore(made))[5].tensors["y"]
    assert int((held == 777).sum()) >= 1 and 1 <= int(held.min()) <= int(held.max()) < 50000


@pytest.mark.parametrize(
    ("labels", "named"),
    [("randint(38, 40, (4,))", (-100,)), ("randint(0, 40, (9,)).sort().values", ()),
     ("arange(0, 40, 2)", ())],
)  # fmt: skip
def test_a_few_labels_may_rise_by_chance_and_those_in_order_do_not(
    labels: str, named: tuple[int, ...]
) -> None:
    made = reference(
        "F.cross_entropy(x[: len(y)], y)", f"torch.randn(N, 40), torch.{labels}", "x, y"
    )
    assert explore(made).named.get("y", ()) == named


def test_labels_that_differ_by_chance_may_be_passed_over() -> None:
    made = reference("F.cross_entropy(x, y)",
                     "torch.randn(16, 4096), torch.randperm(4096)[:16]", "x, y")  # fmt: skip
    found = explore(made)
    held = [case.tensors["y"].tolist() for case in cases(made, found)]
    assert found.named == {"y": (-100,)} and held[5].count(-100) == 1
    assert all(len(set(each)) == 16 for each in held)


def test_integers_in_order_stay_so() -> None:
    made = reference("F.cross_entropy(x[:40], y)", "torch.randn(N, 40), torch.arange(40)", "x, y")
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


def test_what_lies_past_a_border_is_told_and_may_be_claimed() -> None:
    made = reference("x[y.clamp(min=0)]", ROWS, "x, y")
    found = explore(made)
    assert int(claimed_instance(made, found, _place("y", -7)).inputs["y"][3]) == -7
    with pytest.raises(NotAnInput, match="within 0 and"):
        claimed_instance(made, found, _place("y", -42))

    levels = Variation(levels={"x": "below"}, named={"x": (-1, -100)}, past={"x": ((-1, -9),)})
    task = text_task().model_copy(update={"variation": levels})
    assert rules_context(task)["figures"].narrower == (
        " (x: from 0 to its largest, and -100 and all from -9 to -1 as well, by what forward() "
        "says or accepts)"
    )
    require_claimable(task, _place("x", -9))
    with pytest.raises(NotAnInput, match="from 0"):
        require_claimable(task, _place("x", -10))


def _place(tensor: str, value: float) -> ClaimedInput:
    place = {"index": [3], "value": value}
    return ClaimedInput.model_validate(
        {"tensors": [{"tensor": tensor, "kind": "own", "places": [place]}]}
    )


def test_a_named_integer_is_of_the_type() -> None:
    made = reference("torch.where((y == 300)[:, None], x, -x)",
                     "torch.randn(N, 40), torch.randint(0, 40, (N,), dtype=torch.uint8)", "x, y")
    assert explore(made).named == {}
