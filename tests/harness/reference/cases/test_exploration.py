"""What may vary of a task: buffers that make no difference, integers, and what takes long."""

from __future__ import annotations

import pytest
from small_references import X, reference

from kernelblaster.harness.reference.cases import exploration
from kernelblaster.harness.reference.cases.exploration import explore, read_and_written


def test_buffers_that_forward_changes_are_unread_where_they_make_no_difference() -> None:
    made = reference(
        "F.batch_norm(x, self.mean, self.variance, training=True) + self.count.add_(1)",
        init="; ".join(
            f"self.register_buffer('{name}', torch.ones({size}))"
            for name, size in (("mean", 40), ("variance", 40), ("count", 1))
        ),
    )
    assert read_and_written(made) == (("mean", "variance"), ("mean", "variance", "count"))


def test_a_buffer_that_is_computed_with_is_read_though_its_size_makes_no_difference() -> None:
    """Where the largest of a row is stays, whatever the row is divided by."""
    made = reference(
        "(x / (self.norm.mul_(2) + self.unused.add_(1) * 0)).argmax(-1)",
        init="; ".join(
            f"self.register_buffer('{name}', torch.ones(1))" for name in ("norm", "unused")
        ),
    )
    assert read_and_written(made) == ((), ("norm", "unused"))


@pytest.mark.parametrize(("inputs", "told"), [("torch.randint(9, (N,))", [True]), (X, [])])
def test_it_is_told_before_integers_are_drawn(inputs: str, told: list[bool]) -> None:
    calls: list[bool] = []
    explore(reference("x * 2", inputs), drawing=lambda: calls.append(True))
    assert calls == told


def test_a_trial_does_not_end_by_the_time_of_others(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(exploration, "TRIAL_SECONDS", 0.05)
    made = reference("(__import__('time').sleep(0.03), x * 2.0)[1]")
    assert explore(made).levels["x"] == "any"


@pytest.mark.parametrize(
    ("inputs", "body", "level"),
    [
        ("torch.rand(N, 40) + 0.1, torch.randint(0, 9, (N, 40))",
         "x.log() * (w != 3).cumprod(1)", "positive"),
        ("torch.rand(N, 40), torch.randn(N, 40)", "(x + 1.5).sqrt() * (w > 0).int().prod(1, True)",
         "positive"),
        ("torch.rand(N, 40), torch.randn(N, 40)", "x + w.cumprod(1)", "any"),
    ],
)  # fmt: skip
def test_products_of_flags_and_whole_numbers_are_no_long_products(
    inputs: str, body: str, level: str
) -> None:
    found = explore(reference(body, inputs, "x, w"))
    assert found.levels["x"] == level
    assert found.multiplies is ("w.cumprod" in body)
