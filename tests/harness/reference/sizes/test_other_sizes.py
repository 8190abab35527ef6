"""Sizes that no search has seen: ragged, below and above, and the same task all the same."""

from __future__ import annotations

import pytest
from small_references import HEAD, MODEL

from kernelblaster.harness.records.readings import AS_WRITTEN
from kernelblaster.harness.reference.sizes.other_sizes import other_sizes
from kernelblaster.harness.reference.sizes.variant import Variant

TASKS = {
    "rows": ("F.softmax(x, 1)", "torch.randn(N, 40)", "pass"),
    "heads": ("x.view(N, 8, -1).sum(1)", "torch.randn(N, 96)", "pass"),
    "layer": ("self.layer(x)", "torch.randn(N, 40)", "self.layer = nn.Linear(40, 24)"),
    "choice": ("x.exp() if x.shape[1] == 40 else (x.exp(), x)", "torch.randn(N, 40)", "pass"),
    "topk": ("x.topk(K, 1).values", "torch.randn(N, 40)", "pass"),
    "rounded": (
        "self.layer(x)", "torch.randn(N, 40)",
        "self.layer = nn.Linear(40, (WIDTH + 4) // 8 * 8)",
    ),
    "fixed": ("x + torch.ones(64, 40)", "torch.randn(N, 40)", "pass"),
}


def drawn(name: str, count: int = 3, seed: str = "0") -> list[dict[str, int]]:
    body, inputs, init = TASKS[name]
    text = "K = 5\n" + (HEAD + MODEL).format(init=init, names="x", body=body, inputs=inputs)
    base = {"K": 5, "N": 64, "x_1": int(inputs[15:17])}
    full = Variant(text, "task.py", {}, AS_WRITTEN)
    return [each.dimensions for each in other_sizes(full, text, base, count, seed)]


def test_one_is_below_one_above_and_one_is_even() -> None:
    below, above, even = drawn("rows")
    assert all(below[name] < size < above[name] for name, size in (("N", 64), ("x_1", 40)))
    assert all(size % 2 for each in (below, above) for size in (each["N"], each["x_1"]))
    assert even["N"] % 16 == 0 and even["N"] not in (32, 64)
    assert drawn("rows") == [below, above, even] != drawn("rows", seed="1")


def test_what_a_view_divides_stays_divisible() -> None:
    assert all(each["x_1"] % 8 == 0 and each["x_1"] != 96 for each in drawn("heads"))


@pytest.mark.parametrize("name", ["layer", "choice", "topk"])
def test_what_is_fixed_by_the_model_stays(name: str) -> None:
    for each in drawn(name):
        assert each["N"] != 64
        assert (each["x_1"] == 40) == (name != "topk")
        assert name != "topk" or each["x_1"] >= each["K"]


@pytest.mark.parametrize("width", [16, 24, 30, 56, 72])
def test_what_is_rounded_to_multiples_is_another_in_the_first_where_sizes_are_told_apart(
    width: int
) -> None:
    body, inputs, init = TASKS["rounded"]
    text = f"WIDTH = {width}\n" + (HEAD + MODEL).format(
        init=init, names="x", body=body, inputs=inputs
    )
    base = {"WIDTH": width, "N": 64, "x_1": 40}
    full = Variant(text, "task.py", {}, AS_WRITTEN)
    for seed in "012":
        first = other_sizes(full, text, base, 1, seed, beside=base)[0]
        assert (first.dimensions["WIDTH"] + 4) // 8 < (width + 4) // 8


def test_a_task_whose_sizes_cannot_change_has_none() -> None:
    assert drawn("fixed") == []
