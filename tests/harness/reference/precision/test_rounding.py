"""Room for plain sums: a kernel that adds in order is right, one that leaves terms out is not."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

from kernelblaster.harness.judge.tensor_comparison import all_agree
from kernelblaster.harness.reference.cases.case import Case
from kernelblaster.harness.reference.loading.model import Instance, Reference
from kernelblaster.harness.reference.precision.in_order import IN_ORDER, add_in_order
from kernelblaster.harness.reference.precision.rounding import (
    LONG,
    OperationsSeen,
    OtherSums,
    _Moved,
    answers_in_order,
    plain_answers,
)
from kernelblaster.harness.reference.precision.tolerances import tolerance_of

PRODUCT = """
import torch


class Model(torch.nn.Module):
    def forward(self, a, b):
        return {answer}


def get_inputs():
    return [torch.{draw}, torch.{draw}]
"""
DRAWS = {
    "uniform": "rand(2, 1 << 19)",
    "gaussian": "randn(2, 1 << 19)",
    "equal": "full((2, 1 << 19), 0.7)",
    "offset": "randn(2, 1 << 19) + 16",
}


def case_of(draw: str, answer: str = "(a * b).sum(-1)") -> Case:
    reference = Reference(PRODUCT.format(answer=answer, draw=draw), "product.py", {})
    return Case(reference, reference.instance(0))


def in_order(instance: Instance, step: int = 0) -> list[torch.Tensor]:
    """Return sums of one term after the other in single precision; without one of `step` terms."""
    a, b = instance.inputs.values()
    terms = (a * b).numpy()
    if step:
        terms[:, step // 3 :: step] = 0.0
    return [torch.from_numpy(np.cumsum(terms, axis=1, dtype=np.float32)[:, -1].copy())]


@pytest.fixture(scope="module", params=list(DRAWS))
def product(request: pytest.FixtureRequest) -> tuple[str, Case]:
    return request.param, case_of(DRAWS[request.param])


def test_a_plain_sum_of_half_a_million_terms_is_right(product: tuple[str, Case]) -> None:
    _, case = product
    assert all_agree(in_order(case.instance), case.outputs, case.tolerances("both"))


def test_one_term_of_ten_thousand_is_missed_where_terms_cancel(product: tuple[str, Case]) -> None:
    name, case = product
    agrees = all_agree(in_order(case.instance, 10_000), case.outputs, case.tolerances("both"))
    assert not (agrees and name == "gaussian")


def test_zeros_that_become_equal_terms_are_rounded_alike() -> None:
    # As a softmax over a row of which half is zero: half of its terms are the same number.
    draw = "randn(2, 393216).mul(torch.rand(2, 393216) < 0.5)"
    case = case_of(draw, "a.softmax(-1)")
    x = next(iter(case.instance.inputs.values()))
    terms = (x - x.amax(-1, keepdim=True)).exp()
    sums = np.cumsum(terms.numpy(), axis=1, dtype=np.float32)[:, -1:].copy()
    found = terms / torch.from_numpy(sums)
    exact = case.exact[0]
    assert exact is not None
    assert float(((found - exact) / exact).abs().max()) > 4e-4, "rounding that does not cancel"
    assert all_agree([found], case.outputs, case.tolerances("both"))
    assert not all_agree([found * 1.01], case.outputs, case.tolerances("both"))


def test_sums_of_few_terms_have_the_room_that_they_had() -> None:
    case = case_of("randn(4, 100)")
    assert not case.seen.is_long
    absolute = case.tolerances("both")[0]
    assert absolute is not None
    size = float(case.outputs[0].double().square().mean().sqrt())
    assert absolute.absolute == pytest.approx(1e-4 * size, rel=1e-6)


@pytest.mark.parametrize(
    ("answer", "terms"),
    [
        ("a @ b.T", 4096),
        ("torch.nn.functional.linear(a, b)", 4096),
        ("(a * b).mean()", 4 * 4096),
        ("a.cumsum(1)", 4096),
        ("a.softmax(1)", 4096),
        ("torch.nn.functional.layer_norm(a, (4096,))", 4096),
        ("torch.nn.functional.group_norm(a.view(1, 4, 4096), 2)", 8192),
        ("torch.nn.functional.batch_norm(a.view(4, 2, 2048), None, None, training=True)", 8192),
        ("torch.nn.functional.mse_loss(a, b)", 4 * 4096),
        ("torch.nn.functional.conv1d(a.view(1, 4, 4096), b[:, :12].reshape(4, 4, 3))", 12),
        ("torch.nn.functional.conv_transpose1d(a.view(1, 4, 4096), b[:, :6].reshape(4, 2, 3))", 12),
        ("torch.linalg.vector_norm(a)", 4 * 4096),
        ("a.relu() + b", 0),
        ("a.amax(1)", 0),
    ],
)
def test_terms_are_counted(answer: str, terms: int) -> None:
    source = PRODUCT.format(answer=answer, draw="randn(4, 4096)")
    reference = Reference(source, "terms.py", {})
    instance, longest = reference.instance(0), OperationsSeen()
    with longest:
        reference.outputs(instance.model, instance.arguments)
    assert longest.terms == terms
    assert longest.is_long is (terms >= LONG)


def test_norms_are_moved_through_their_own_sums() -> None:
    reference = Reference(
        PRODUCT.format(answer="torch.nn.functional.layer_norm(a + 100, (4096,)) + 0 * b",
                       draw="randn(4, 4096)"), "norm.py", {},
    )  # fmt: skip
    case = Case(reference, reference.instance(0))
    found = plain_answers(
        reference, case.model, case.instance.arguments, case.outputs, equal_terms=0.0
    )
    exact = case.exact[0]
    assert exact is not None and found[0] is not None
    # The mean of numbers near 100 is off by 100 times what a mean near 1 is.
    assert 1e-4 < float((found[0] - exact).abs().max()) < 1e-2


@pytest.mark.parametrize("backwards", [False, True])
@pytest.mark.parametrize(
    "answer",
    [
        "a.sum(-1)", "a.sum()", "a.mean((0, 2), keepdim=True)", "a.var(1)", "a.std((1, 2))",
        "torch.cat(torch.var_mean(a, (0, 2), correction=0))", "torch.linalg.vector_norm(a, dim=1)",
        "torch.linalg.vector_norm(a, 1)", "a.norm()", "a.softmax(1)", "a.softmax(-1)",
        "(a + 1).cumsum(1)", "(a / 9).cumprod(-1)", "(a / 9).prod(1)", "(a / 9).prod(0, True)",
        "(a[0, 0] / 2).prod()",
    ],
)  # fmt: skip
def test_reductions_are_added_in_order(answer: str, backwards: bool) -> None:
    answered = eval(answer, {"torch": torch, "a": torch.arange(24.0).view(2, 3, 4)})
    with _InOneOrder(backwards) as mode:
        found = eval(answer, {"torch": torch, "a": torch.arange(24.0).view(2, 3, 4)})
    assert mode.added == 1
    torch.testing.assert_close(found, answered)


class _InOneOrder(OtherSums):
    def __init__(self, backwards: bool) -> None:
        super().__init__()
        self.added, self._backwards = 0, backwards

    def answer(self, function: Any, args: Any, named: dict[str, Any]) -> Any:
        add = IN_ORDER.get(function.overloadpacket)
        self.added += add is not None
        if add is None:
            return function(*args, **named)
        return add(function, args, named, self._backwards)


RUNNING = {
    "a.cumsum(1)": "add.accumulate(a)",
    "a.cumsum(1) / torch.arange(1, 32769)": "add.accumulate(a) / arange",
    "a.flip(1).cumsum(1).flip(1)": "add.accumulate(a[:, ::-1])[:, ::-1]",
    "(b * a.exp()).cumsum(1) / a.exp().cumsum(1)":
        "add.accumulate(b * exp(a)) / add.accumulate(exp(a))",
    "(a * 1e-3).exp().cumprod(1)": "multiply.accumulate(exp(a * 1e-3))",
    "(a * 1e-3).exp().prod(1)": "multiply.accumulate(exp(a * 1e-3))[:, -1]",
}  # fmt: skip
"""Running sums and products, and what one thread for each row makes of them in single precision."""


class _Along:
    """An operation of NumPy's along rows."""

    def __init__(self, operation: Any) -> None:
        self._operation = operation

    def accumulate(self, values: Any) -> Any:
        return self._operation.accumulate(values, axis=1, dtype=np.float32)


@pytest.mark.parametrize("columns", [16384, 32768, 65536])
@pytest.mark.parametrize("draw", ["randn({})", "rand({})", "full(({}), 0.83)", "randn({}) + 16"])
@pytest.mark.parametrize("answer", RUNNING)
@pytest.mark.parametrize("on_gpu", [False, True])
def test_what_runs_along_a_row_has_room_for_one_thread_and_for_no_lost_term(
    answer: str, draw: str, columns: int, on_gpu: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    if on_gpu:  # There nothing is added in order to see how far off that is.
        monkeypatch.setattr("kernelblaster.harness.reference.precision.rounding.IN_ORDER", {})
    if "1e-3" in answer:
        draw = "randn({})"
    text = answer.replace("32769", str(columns + 1))
    case = case_of(draw.format(f"3, {columns}"), text)
    a, b = (each.numpy() for each in case.instance.inputs.values())
    names = {"a": a, "b": b, "exp": np.exp, "arange": np.arange(1, columns + 1, dtype=np.float32)}
    names |= {"add": _Along(np.add), "multiply": _Along(np.multiply)}

    def answered() -> torch.Tensor:
        return torch.from_numpy(np.ascontiguousarray(eval(RUNNING[answer], names)))

    tolerances = case.tolerances("both")
    assert None not in tolerances
    assert all_agree([answered()], case.outputs, tolerances)
    if draw.startswith("full") and "b *" in answer:
        return  # Of equal numbers any weights make the same mean.
    a[:, 5000:7000] = 0.0
    assert not all_agree([answered()], case.outputs, tolerances)


def test_one_term_comes_after_the_other() -> None:
    # Next to 2**24 a one is lost, two together are not.
    terms = torch.tensor([2.0**24, *[1.0] * 1024])
    assert float(add_in_order(terms, [0], keep=False)) == 2.0**24
    assert float(add_in_order(terms, [0], keep=False, backwards=True)) == 2.0**24 + 1024


def test_attention_is_taken_apart() -> None:
    class Seen(OtherSums):
        def answer(self, function: Any, args: Any, named: dict[str, Any]) -> Any:
            names.append(function.overloadpacket.__name__)
            return function(*args, **named)

    names: list[str] = []
    x = torch.randn(1, 2, 8, 16)
    with torch.no_grad(), Seen():
        torch.nn.functional.scaled_dot_product_attention(x, x, x)
        torch.nn.functional.group_norm(x, 2)
    assert names.count("bmm") == 2 and {"_softmax", "var_mean"} <= {*names}


def test_a_variance_of_equal_numbers_may_be_added_in_order() -> None:
    # The mean of 8192 equal numbers is off by their rounding, and 1e-5 is added to no variance.
    norm = "torch.nn.functional.batch_norm(a, None, None, training=True) * b"
    case = case_of("full((8192, 3), 0.7)", norm)
    found = answers_in_order(case._reference, case.model, case.instance.arguments, case.outputs)[0]
    tolerance = case.tolerances("both")[0]
    assert found is not None and tolerance is None, "nothing but rounding is left of it"
    case = case_of("randn(8192, 3).add(16)", norm)
    found = answers_in_order(case._reference, case.model, case.instance.arguments, case.outputs)[0]
    assert found is not None
    assert all_agree([found.float()], case.outputs, case.tolerances("both"))
    a, b = case.instance.inputs.values()
    mean = add_in_order(a, [0], keep=True) / len(a)
    naive = add_in_order(a.square(), [0], keep=True) / len(a) - mean.square()
    assert not all_agree(
        [(a - mean) / (naive + 1e-5).sqrt() * b], case.outputs, case.tolerances("both")
    ), "a variance taken as E[x^2] - E[x]^2"


@pytest.mark.parametrize(
    "answer",
    [
        "torch.nn.functional.batch_norm(a @ b, None, None, training=True)",
        "torch.nn.functional.layer_norm((a @ b).T, (1024,))",
        "torch.nn.functional.group_norm((a @ b).view(1, 8, 64 * 128), 4)",
        "torch.nn.functional.instance_norm((a @ b).T.view(1, 64, 1024))",
        "(a @ b) - (a @ b).mean(0)",
        "(a @ b).std(0)",
        "(a @ b).var(0, correction=0)",
        "(a @ b).softmax(0)",
        "torch.linalg.vector_norm(a @ b, dim=0)",
    ],
)
def test_a_gpu_has_the_room_that_adding_equal_numbers_in_order_takes(
    answer: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    # On a GPU nothing is added in order to see how far off that is, and PyTorch is hardly off.
    draw = "full((1024, 96), 0.83), torch.randn(96, 64"
    source = PRODUCT.format(answer=f"{answer} + 0.5", draw="").split("    return [torch")[0]
    source += f"    return [torch.{draw})]\n"
    reference = Reference(source, "equal.py", {})
    case = Case(reference, reference.instance(0))
    given = (reference, case.model, case.instance.arguments, case.outputs)
    (in_order,), (exact,) = answers_in_order(*given), case.exact
    monkeypatch.setattr("kernelblaster.harness.reference.precision.rounding.IN_ORDER", {})
    (plain,) = answers_in_order(*given)
    assert exact is not None and in_order is not None
    tolerance = tolerance_of(exact.float(), exact, plain, scale="both", cast=False, is_example=True)
    assert tolerance is None or all_agree([in_order.float()], [exact.float()], [tolerance])


@pytest.mark.parametrize(
    "answer",
    [
        "torch.nn.functional.batch_norm(a, None, None, training=True)",
        "torch.nn.functional.layer_norm(a.T, (1024,))",
        "torch.nn.functional.group_norm(a.T.reshape(1, 64, 1024), 64)",
        "torch.nn.functional.instance_norm(a.T.view(1, 64, 1024))",
        "(a - a.mean(0)) * ((a - a.mean(0)).square().mean(0) + 1e-5).rsqrt()",
        "(a - a.mean(0)) / ((a - a.mean(0)).square().sum(0) / 1024 + 1e-5).sqrt()",
        "(a - a.mean(0)) / (torch.linalg.vector_norm(a - a.mean(0), dim=0) / 32 + 3e-3)",
        "(a - a.mean(0)) / (a.std(0) + 3e-3)",
    ],
)
@pytest.mark.parametrize("on_gpu", [True, False])
def test_equal_numbers_have_their_room_beside_large_ones_too(
    answer: str, on_gpu: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Whatever else varies, and however much: no variance of equal numbers is below zero.
    draw = "cat([torch.full((1024, 32), 0.83), 1000 * torch.randn(1024, 32)], 1"
    source = PRODUCT.format(answer=f"{answer} + 0 * b", draw="").split("    return [torch")[0]
    source += f"    return [torch.{draw}), torch.ones(1)]\n"
    source = source.replace(f"{answer} + 0 * b", f"({answer}) + 0 * b")
    reference = Reference(source, "beside.py", {})
    case = Case(reference, reference.instance(0))
    given = (reference, case.model, case.instance.arguments, case.outputs)
    (in_order,), (exact,) = answers_in_order(*given), case.exact
    if on_gpu:
        monkeypatch.setattr("kernelblaster.harness.reference.precision.rounding.IN_ORDER", {})
    (plain,) = answers_in_order(*given)
    assert exact is not None and in_order is not None and plain is not None
    assert plain.isfinite().all()
    tolerance = tolerance_of(exact.float(), exact, plain, scale="both", cast=False, is_example=True)
    assert tolerance is not None
    assert all_agree([in_order.float()], [exact.float()], [tolerance])


def test_complex_terms_may_be_added_too() -> None:
    terms = torch.randn(64, 3, dtype=torch.complex64)
    with _Moved(0.0):
        assert torch.equal(terms.sum(0), terms.sum(0))
