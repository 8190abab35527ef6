"""What is in order, or all different, by chance is no structure of a task."""

from __future__ import annotations

import pytest
from small_references import cases, reference

from kernelblaster.harness.reference.cases.case import Case
from kernelblaster.harness.reference.cases.claimed import claimed_instance
from kernelblaster.harness.reference.cases.exploration import explore
from kernelblaster.harness.reference.loading.model import Reference
from kernelblaster.harness.task.claims import ClaimedInput, NotAnInput


def added(where: str) -> Reference:
    """Return a task that adds to the rows of 512 that `where` says."""
    body = "torch.zeros(512).index_add(0, w.flatten(), torch.ones(w.numel()))"
    return reference(body, where, "w")


@pytest.mark.parametrize(
    ("where", "unsorted", "repeating"),
    [
        # Drawn one by one: few of many, few that rise, many.
        ("torch.randint(0, 512, (16,))", (), ("w",)),
        ("torch.randint(0, 512, (16,)).to(torch.int32)", (), ("w",)),
        ("torch.randint(0, 16, (3,))", ("w",), ("w",)),
        ("torch.randint(0, 16, (2,))", (), ("w",)),
        ("torch.randint(0, 16, (2, 3))", ("w",), ("w",)),
        ("torch.randint(0, 512, (64,))", (), ("w",)),
        ("torch.randint(0, 512, (12,)).sort().values", (), ("w",)),
        # By intent.
        ("torch.randperm(512)[:16]", (), ()),
        ("torch.randperm(512)[:3]", ("w",), ()),
        ("torch.randperm(512)[:16].sort().values", (), ()),
        ("torch.arange(16)", (), ()),
        ("torch.arange(3)", (), ()),
        # A row of one holds nothing twice, and none of none.
        ("torch.randint(0, 512, (8, 1))", (), ()),
        ("torch.zeros(0, dtype=torch.int64)", (), ()),
    ],
)
def test_inputs_are_told_whose_structure_is_chance(
    where: str, unsorted: tuple[str, ...], repeating: tuple[str, ...]
) -> None:
    found = explore(added(where))
    assert (found.unsorted, found.repeating) == (unsorted, repeating)


@pytest.mark.parametrize(
    ("where", "repeats"),
    [("torch.randint(0, 512, (16,))", True), ("torch.randperm(512)[:16]", False)],
)
def test_a_case_repeats_what_is_different_by_chance_and_none_what_is_so_by_intent(
    where: str, repeats: bool
) -> None:
    made = added(where)
    held = [case.tensors["w"] for case in cases(made, explore(made))]
    counts = [len(each.unique()) for each in held]
    assert (min(counts) < 12) if repeats else (set(counts) == {16})


def test_three_numbers_that_rise_by_chance_are_not_kept_in_order() -> None:
    made = reference("x[:, None] * y", "torch.randn(3), torch.randn(N)", "x, y")
    found = explore(made)
    assert found.unsorted == ("x",)
    assert not all(_rises(each) for each in cases(made, found))
    drawn = "torch.randn(3).sort().values, torch.randn(N)"
    edges = reference("torch.bucketize(y, x)", drawn, "x, y")
    found = explore(edges)
    assert found.unsorted == ()
    assert all(_rises(each) for each in cases(edges, found))


def _rises(case: Case) -> bool:
    return bool((case.tensors["x"].diff() >= 0).all())


def test_what_repeats_under_another_seed_may_be_claimed_and_what_never_does_may_not() -> None:
    twice = ClaimedInput.model_validate(
        {"tensors": [{"tensor": "w", "kind": "constant", "first": 7}]}
    )
    made = added("torch.randint(0, 512, (16,))")
    assert claimed_instance(made, explore(made), twice).inputs["w"].tolist() == [7] * 16
    made = added("torch.randperm(512)[:16]")
    with pytest.raises(NotAnInput, match="in an order that is part of the task"):
        claimed_instance(made, explore(made), twice)


@pytest.mark.parametrize(
    ("body", "repeating"),
    [
        ("torch.zeros(512, 4).index_copy(0, w, x)", ()),
        ("torch.zeros(512, 4).index_put((w,), x)", ()),
        ("torch.zeros(512, 4).scatter(0, w[:, None].expand(16, 4), x)", ()),
        ("torch.zeros(512, 4).index_put((w,), x, accumulate=True)", ("w",)),
        ("torch.zeros(512, 4).scatter_add(0, w[:, None].expand(16, 4), x)", ("w",)),
        ("torch.zeros(512, 4).scatter_reduce(0, w[:, None].expand(16, 4), x, 'amax')", ("w",)),
        ("torch.zeros(512).scatter(0, w, 2.0)", ("w",)),
        ("torch.zeros(512).index_fill(0, w, 2.0)", ("w",)),
        ("x.repeat(32, 1)[w]", ("w",)),
    ],
)
def test_indices_that_something_is_stored_by_are_drawn_no_freer(
    body: str, repeating: tuple[str, ...]
) -> None:
    made = reference(body, "torch.randn(16, 4), torch.randint(0, 512, (16,))", "x, w")
    assert explore(made).repeating == repeating
