"""The numbers that a task compares its inputs with: found in what it does, and drawn."""

from __future__ import annotations

import weakref

import pytest
import torch
from small_references import reference

from kernelblaster.harness.reference.cases.comparisons import comparisons_of
from kernelblaster.harness.reference.cases.distributions import first_finite
from kernelblaster.harness.reference.cases.exploration import explore
from kernelblaster.harness.reference.drawing.borders import MOST, beside
from kernelblaster.harness.reference.loading.model import ReferenceFault


@pytest.mark.parametrize(
    ("body", "borders"),
    [
        ("F.hardshrink(x, 0.25)", {0.25: 1}),
        ("F.softshrink(x)", {0.5: 1}),
        ("F.threshold(x, -2.0, 7.0)", {2.0: 1}),
        ("x.clamp(-1, 2)", {1.0: 1, 2.0: 1}),
        ("torch.clamp(x, max=3.0)", {3.0: 1}),
        ("F.relu6(x)", {6.0: 1}),
        ("F.hardswish(x)", {3.0: 1}),
        ("F.softplus(x, 2.0)", {10.0: 1}),
        ("torch.maximum(x, torch.tensor(0.5))", {0.5: 1}),
        ("x.view(-1, 2).mul_(4).ge(2).float()", {0.5: 1}),
        ("torch.where(-x.abs() < -1.5, x, 0.0)", {1.5: 1}),
        ("torch.where(2.0 * x + 1.0 <= 2.5, x, -x)", {0.75: 4}),
        ("torch.where(x + 1.0 > 6.0, x, 0.0)", {5.0: 2}),
        ("torch.where(1 - x > 0.25, x, 0.0)", {0.75: 4}),
        ("torch.bucketize(x, torch.tensor([0.5, 4.0])).float()", {0.5: 1, 4.0: 1}),
        ("torch.histc(x, 8, -2.0, 4.0)", {2.0: 1, 4.0: 1}),
        ("torch.where(x.sort().values > 1.5, x, 0.0)", {1.5: 1}),
        ("torch.where(torch.cat([x, -x]) > 1.5, 1.0, 0.0)", {1.5: 1}),
        # Behind arithmetic that rounds a number beside the border proves nothing.
        ("torch.where(x * 0.3 > 0.5, x, 0.0)", {}),
        ("torch.where(torch.exp(x) > 0.5, x, 0.0)", {}),
        ("torch.where(x.clone().mul_(0.3) > 0.5, x, 0.0)", {}),
        ("(lambda y: (y.view(-1).mul_(0.3), torch.where(y > 0.5, x, 0.0))[1])(x.clone())", {}),
        ("torch.where(torch.add(x, 1.0, alpha=3) > 5, x, 0.0)", {2.0: 4}),
        ("torch.where(torch.rsub(x, 1.0, alpha=3) > 0.25, x, 0.0)", {}),
        ("torch.where(torch.div(x, 2.0, rounding_mode='floor') > 1, x, 0.0)", {2.0: 1, 4.0: 1}),
        ("torch.div(x, 0.5, rounding_mode='trunc')", {0.5: 1, 1.0: 1}),
        ("torch.remainder(x, -3.0)", {3.0: 1, 6.0: 1}),
        ("torch.fmod(2.0 * x, 1.0)", {0.5: 1, 1.0: 1}),
        ("x // 2.0", {2.0: 1, 4.0: 1}),
        # A tensor of equal numbers is a border, one of data is none.
        ("(x >= torch.ones(40)).float()", {1.0: 1}),
        ("torch.bucketize(x, torch.arange(12) / 4 - 1).float()",
         {0.25: 1, 0.5: 1, 0.75: 1, 1.0: 1, 1.25: 1, 1.5: 1, 1.75: 1}),
        ("torch.maximum(x, x.flip(0))", {}),
        ("torch.where(x > 2000.0, x, 0.0)", {}),
        ("torch.where(x.div(2.0) > 1, x, 0.0)", {2.0: 1}),
        ("F.relu(x) + 0.5", {}),
    ],
)
def test_what_inputs_are_compared_with_is_found(body: str, borders: dict[float, int]) -> None:
    made = reference(body, "torch.randn(64, 40)")
    instance = made.instance(0)
    kept = instance.inputs["x"].clone()
    assert dict(comparisons_of(made, instance).borders) == borders
    assert torch.equal(instance.inputs["x"], kept)


def test_a_border_that_the_type_does_not_hold_has_its_neighbours_alone() -> None:
    half, tenth = beside([(0.5, 1)], torch.float32), beside([(0.1, 1)], torch.float32)
    assert {0.5, -0.5} < set(half) and len(half) == 6
    nearest = float(torch.tensor(0.1))
    assert len(tenth) == 4 and nearest not in tenth
    assert min(tenth[:2]) < 0.1 < max(tenth[:2]) and max(map(abs, tenth)) - nearest < 1e-8
    assert len(beside([(1.0 + each, 1) for each in range(300)], torch.float16)) == MOST


@pytest.mark.parametrize(
    ("body", "border"),
    [
        ("x.sum(1).masked_fill(ids == 50256, 0.0)", 50256.0),
        ("F.cross_entropy(x, ids, ignore_index=30)", 30.0),
    ],
)
def test_an_integer_may_be_compared_with_any(body: str, border: float) -> None:
    made = reference(body, "torch.randn(64, 40), torch.randint(0, 40, (64,))", "x, ids")
    found = dict(comparisons_of(made, made.instance(0)).borders)
    assert found == {border: 1}


def test_of_a_large_tensor_a_part_is_looked_at(monkeypatch: pytest.MonkeyPatch) -> None:
    looked_at: list[int] = []
    unique = torch.Tensor.unique

    def noted(tensor: torch.Tensor) -> torch.Tensor:
        looked_at.append(tensor.numel())
        return unique(tensor)

    monkeypatch.setattr(torch.Tensor, "unique", noted)
    made = reference("torch.maximum(x, y)", "torch.randn(64, 8, 4000), torch.ones(64, 8, 4000)",
                     "x, y")  # fmt: skip
    assert dict(comparisons_of(made, made.instance(0)).borders) == {1.0: 1}
    assert looked_at and max(looked_at) <= 1 << 16


@pytest.mark.parametrize("dtype", [torch.float8_e4m3fn, torch.float8_e5m2])
def test_types_of_eight_bits_have_none(dtype: torch.dtype) -> None:
    assert beside([(0.5, 1)], dtype) == []


def test_no_tensor_is_kept_that_forward_does_not_keep() -> None:
    made = reference("seen(8, x)", "torch.randn(64, 40)")
    kept: list[weakref.ref[torch.Tensor]] = []

    def seen(times: int, x: torch.Tensor) -> torch.Tensor:
        for _ in range(times):
            x = x + 1.0
            kept.append(weakref.ref(x))
        assert sum(each() is not None for each in kept) == 1, "the last alone"
        return torch.where(x > 9.0, x, 0.0)

    instance = made.instance(0)
    type(instance.model).forward.__globals__["seen"] = seen
    assert dict(comparisons_of(made, instance).borders).keys() == {1.0} and len(kept) == 8


def test_a_lack_of_memory_is_no_task_without_borders(monkeypatch: pytest.MonkeyPatch) -> None:
    made = reference("F.hardshrink(x, 0.25)", "torch.randn(64, 40)")
    instance = made.instance(0)

    def lacking(*_: object) -> None:
        raise ReferenceFault("CUDA out of memory")

    monkeypatch.setattr(type(made), "outputs", lacking)
    with pytest.raises(ReferenceFault, match="out of memory"):
        comparisons_of(made, instance)


def test_borders_are_among_the_zeros_of_a_case_that_is_compared() -> None:
    for body, at in (("F.hardshrink(x, 0.5)", 0.5), ("torch.where(x + 1 > 3, x, -x)", 2.0)):
        made = reference(body, "torch.randn(64, 40)")
        case, _ = first_finite(made, explore(made), 5, "zeros", None)
        assert int((case.tensors["x"] == at).sum()) > 10
        assert case.tolerances("both")[0] is not None


def test_integers_are_borders_of_integers() -> None:
    made = reference("torch.where(x > 700, x, -x)", "torch.randint(0, 1000, (64, 40))")
    case, _ = first_finite(made, explore(made), 5, "zeros", None)
    x = case.tensors["x"]
    assert all(int((x == each).sum()) > 20 for each in (699, 700, 701))
