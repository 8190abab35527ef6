"""Answers with one thing missing: which tasks accept them, and that the task then says so."""

from __future__ import annotations

import pytest
import torch
from small_references import X, cases, reference

from kernelblaster.harness.reference.cases import mutants
from kernelblaster.harness.reference.cases.distributions import scale_of
from kernelblaster.harness.reference.cases.exploration import explore
from kernelblaster.harness.reference.cases.mutants import Mutants
from kernelblaster.harness.reference.loading.model import Reference
from kernelblaster.harness.task.rules import CASES


def weakness(made: Reference) -> str:
    weak = Mutants(made)
    for case, (_, name, _) in zip(cases(made, explore(made)), CASES, strict=True):
        weak.try_case(case, case.tolerances(scale_of(name)))
    return weak.weak_to()


@pytest.mark.parametrize(
    ("body", "weak", "firm"),
    [
        ("torch.relu(x * 2.0) + 1.0", [], ["mul", "relu", "add", "half precision"]),
        ("x / torch.sqrt(x.pow(2).mean(1, keepdim=True) + 1e-7)", [], ["add", "sqrt", "div"]),
        # One beside what is never small is beyond any tolerance: nobody can tell it was left out.
        ("x / torch.sqrt(x.pow(2).mean(1, keepdim=True) + 1.0 + 1e-7)",
         ["add (operation 4 of forward)", mutants.EPSILON], ["sqrt", "div"]),
        # What changes nothing is no weakness.
        ("torch.relu(torch.abs(x)).contiguous()", [], ["relu", "abs", "contiguous"]),
        ("torch.tanh(x * 1e-3) * 1e-3 + x.sign()", ["tanh (operation 2 of forward)"], []),
        # What is computed in half precision anyway, or in no floating numbers, is not tried so.
        ("(x * 2.0).half() + 1.0", [], ["half precision"]),
        ("(x > 0, x.sign() + 1e-9)", ["half precision", "add"], ["gt"]),
        ("torch.where(x > 0, x * 2.0, torch.nan)", [], ["mul", "half precision"]),
    ],
)
def test_what_a_task_cannot_tell_is_told(body: str, weak: list[str], firm: list[str]) -> None:
    said = weakness(reference(body))
    assert all(name in said for name in weak), said
    assert not any(name in said for name in firm), said
    if not weak:
        assert said == ""


@pytest.mark.parametrize(
    ("body", "tried"),
    [
        # Without the clamp, or in half precision, an index lies outside of the table.
        ("x[y.clamp(min=0)].sign() + 1e-9", False),
        ("x[(x[:, 0].sigmoid() * 63).long()].sign() + 1e-9", False),
        ("torch.zeros(N, 40).index_add(0, y - 1 + 1, x).sign() + 1e-9", False),
        ("(x.sign() + 1e-9, x.argmax(1))", False),
        # Inputs that are indices stay what they are.
        ("x[y].sign() + 1e-9", True),
        ("F.nll_loss(x, y, reduction='none').sign() + 1e-9", True),
        ("torch.where(y[:, None] >= 0, x, 0.0).sign() + 1e-9", True),
    ],
)
def test_on_a_gpu_none_is_tried_that_might_make_an_index(body: str, tried: bool) -> None:
    made = reference(body, "torch.randn(N, 40), torch.randint(0, 40, (N,))", "x, y")
    weak = Mutants(made, spares_indices=True)
    for case, (_, name, _) in zip(cases(made, explore(made)), CASES, strict=True):
        weak.try_case(case, case.tolerances(scale_of(name)))
    assert ("leaving out add" in weak.weak_to()) is tried


def test_doubles_are_tried_in_half_precision_too() -> None:
    assert weakness(reference("x * 3.0", f"{X}.double()")) == ""
    assert mutants.HALF in weakness(reference("x.sign() + 1e-9", f"{X}.double()"))


def test_only_the_first_operations_are_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(mutants, "MOST_OPERATIONS", 1)
    body = "x.sign() + 1e-9"
    assert "add" not in weakness(reference(body))
    monkeypatch.setattr(mutants, "MOST_OPERATIONS", 2)
    assert "leaving out add (operation 2 of forward)" in weakness(reference(body))


def test_what_one_case_refuses_stays_refused() -> None:
    made = reference("x * 1.0 + 3e-5")
    weak, (first, *_) = Mutants(made), cases(made, explore(made))
    weak.try_case(first, [None])
    assert "add" in weak.weak_to()
    weak.try_case(first, first.tolerances("down", 0.0))
    # A tolerance of 1e-4 accepts what is 3e-5 off; one of nothing would not.
    assert "add" in weak.weak_to()
    exact = [each and each.model_copy(update={"absolute": 0.0, "relative": 0.0})
             for each in first.tolerances("down")]  # fmt: skip
    weak.try_case(first, exact)
    weak.try_case(first, [None])
    assert weak.weak_to() == ""


def test_answers_that_are_no_numbers_are_the_same() -> None:
    one, other = torch.tensor([1.0, torch.nan]), torch.tensor([1.0, 2.0])
    assert mutants._same(one, one.clone()) and not mutants._same(one, other)
    assert not mutants._same(other, one)


@pytest.mark.parametrize(
    ("body", "told"),
    [
        ("(x * x).mean()", True),  # Of one sign: a term of 10,000 is 1e-4 of the sum.
        ("x @ x.T", False),
        ("x.sum(1)", False),
        ("torch.nn.functional.layer_norm(x, (20000,)).amax(1)", False),
        ("x[:, :5000].sum(1)", False),
    ],
)
def test_lost_terms_of_long_sums_are_tried(body: str, told: bool) -> None:
    said = weakness(reference(body, "torch.randn(2, 20000)"))
    assert (mutants.LOST in said) is told
