"""Double precision some rows at a time: only where no row hangs on another, and then the same."""

from __future__ import annotations

import copy

import pytest
import torch

from kernelblaster.harness.reference.loading.model import Reference, ReferenceFault
from kernelblaster.harness.reference.precision.batch_pieces import MOST_PIECES, pieces_of
from kernelblaster.harness.reference.precision.double_precision import double_answers, double_run

TASK = """
import torch


class Model(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.norm = torch.nn.BatchNorm1d(12)
        self.linear = torch.nn.Linear(12, 12)

    def forward(self, {names}):
        return {answer}


def get_inputs():
    return {inputs}
"""


def pieces(answer: str, inputs: str = "[torch.randn(20, 12)]", names: str = "x") -> int:
    """Return in how many pieces an answer may be computed."""
    text = TASK.format(answer=answer, inputs=inputs, names=names)
    reference = Reference(text, "task.py", {})
    made = reference.instance(1)
    before = [each.clone() for each in made.arguments]
    answers = reference.outputs(
        copy.deepcopy(made.model), [each.clone() for each in made.arguments]
    )
    try:
        return pieces_of(reference, made.model, made.arguments, answers)
    except ReferenceFault:
        return 0  # A piece is no input.
    finally:
        assert all(map(torch.equal, made.arguments, before))


@pytest.mark.parametrize(
    "answer",
    [
        "x.abs()", "x / x.abs().mean(1, keepdim=True)", "self.linear(x).softmax(1)", "x.amax(1)",
        "(x.cumsum(1), x > 0)", "x @ x.new_ones(12, 3)", "torch.where(x > 9, torch.inf, x)",
        "x.mul_(2)", "x.half()", "x / (x - x)",
    ],
)  # fmt: skip
def test_rows_that_are_apart_come_in_pieces(answer: str) -> None:
    assert pieces(answer) == MOST_PIECES


@pytest.mark.parametrize(
    "answer",
    [
        "self.norm(x)", "x - x[-1]", "x - x[:1]", "x.roll(1, 0)", "x.softmax(0)", "x.sum()",
        "x.flip(0)", "x + x.roll(10, 0)", "x.cumsum(0)", "x.sort(0).values", "x.sum(0)",
        "(x, x.mean())", "x.T @ x", "x * (x > 0).float().mean()", "x[0]", "x.argsort(0)",
        "x - x.amax(0)",
        # On how many rows there are, and where among them.
        "x / x.size(0)", "x + 0.01 * torch.arange(len(x)).float()[:, None]",
        "x + torch.linspace(0, 0.01, len(x))[:, None]", "x * (1.001 if len(x) > 9 else 1.0)",
        # Integers, which may be places.
        "(x, x.argmax(1))", "x[torch.arange(20)]", "x.sort(1).values",
    ],
)  # fmt: skip
def test_rows_that_hang_on_others_do_not(answer: str) -> None:
    assert pieces(answer) == 0


def test_what_has_as_many_rows_and_is_no_batch_is_noticed() -> None:
    both = "[torch.randn(20, 20), torch.randn(20, 20)]"
    assert pieces("x @ w", both, "x, w") == 0
    assert pieces("x * w", both, "x, w") == MOST_PIECES
    assert pieces("x @ w", "[torch.randn(20, 12), torch.randn(12, 5)]", "x, w") == MOST_PIECES


def test_integers_may_be_places() -> None:
    assert pieces("x[i]", "[torch.randn(20, 12), torch.arange(20)]", "x, i") == 0


def test_few_rows_are_as_many_pieces() -> None:
    assert pieces("x.abs()", "[torch.randn(3, 12)]") == 3
    assert pieces("x.abs()", "[torch.randn(1, 12)]") == 0


def short_of_memory(answer: str, rows: int) -> Reference:
    """Return a reference that finds no memory in double precision for more than so many rows."""
    text = TASK.format(answer=answer, inputs="[torch.randn(20, 12)]", names="x")
    limit = f"""
    def __call__(self, x):
        if x.dtype is torch.float64 and len(x) > {rows}:
            raise torch.OutOfMemoryError("CUDA out of memory")
        return super().__call__(x)

"""
    return Reference(text.replace("\ndef get_inputs", limit + "\ndef get_inputs"), "task.py", {})


def test_where_memory_is_short_the_answers_are_the_same() -> None:
    reference = short_of_memory("self.linear(x).softmax(1), x > 0", 3)
    made = reference.instance(1)
    answers = reference.outputs(made.model, made.arguments)
    with pytest.raises(ReferenceFault):
        double_run(reference, made.model, made.arguments)
    for _ in range(2):
        exact, whole = double_answers(reference, made.model, made.arguments, answers)
        plenty = short_of_memory("self.linear(x).softmax(1), x > 0", 99)
        wanted, _ = double_run(plenty, plenty.instance(1).model, made.arguments)
        assert exact is not None and exact.dtype is torch.float64 and whole is None
        torch.testing.assert_close(exact, wanted, rtol=1e-14, atol=1e-14)
        assert reference.double_comes_in_pieces == MOST_PIECES
        assert not reference.lacked_memory_for_double


@pytest.mark.parametrize(
    ("answer", "rows"), [("self.norm(x)", 3), ("x.abs()", 1)], ids=["mixes", "no memory either"]
)
def test_where_pieces_do_not_help_memory_is_lacking(answer: str, rows: int) -> None:
    reference = short_of_memory(answer, rows)
    made = reference.instance(1)
    answers = reference.outputs(made.model, made.arguments)
    with pytest.raises(ReferenceFault, match="in double precision: .*out of memory"):
        double_answers(reference, made.model, made.arguments, answers)
    assert not reference.lacked_memory_for_double
    found = double_answers(reference, made.model, made.arguments, answers, dispensable=True)
    assert found == [None] and reference.lacked_memory_for_double


def test_rows_that_hang_on_others_only_for_some_values_are_noticed_then() -> None:
    """What was so of one case is asked anew of the next."""
    reference = short_of_memory("x * (0.9 if x.abs().max() > 9 else 1.0)", 3)
    made = reference.instance(1)
    small = made.arguments[0]
    large = small.clone()
    large[0] = 10.0
    for x, known in ((small, True), (large, False), (small, True)):
        answers = reference.outputs(made.model, [x])
        (exact,) = double_answers(reference, made.model, [x], answers, dispensable=True)
        assert (exact is not None) is known
        reference.lacked_memory_for_double = False
