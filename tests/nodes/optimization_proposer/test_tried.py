"""What is not worth trying again: a technique on a kernel of the program, not the technique."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

import pytest

from kernelblaster.memory.records.evidence import Step
from kernelblaster.nodes.optimization_proposer.node import _settled, tried_here

STATE = cast(Any, {"current": SimpleNamespace(source_sha256="b"), "iteration": 1, "rollout": 0})


def step(technique: str, launch: str, parent: str = "b", gain: float | None = 0.0,
         at: tuple[int, int] = (1, 0)) -> Step:  # fmt: skip
    return cast(
        Step,
        SimpleNamespace(technique=technique, launch=launch, parent_sha256=parent, log_gain=gain,
                        iteration=at[0], rollout=at[1]),
    )  # fmt: skip


def test_tried_are_techniques_each_with_its_kernel() -> None:
    steps = [
        step("split_k", "two", "a", at=(0, 1)),
        step("fast_math", "one", "b", at=(0, 1)),
        step("unroll_loop", "one", "a", gain=0.5),
        step("register_tiling", "one", "a", gain=None),
    ]
    # Tried on this very source, also by another rollout, or since the last gain.
    found = tried_here(steps, STATE, ["one", "two"])
    assert found == {("fast_math", "one"), ("register_tiling", "one")}


def test_a_kernel_is_the_same_under_another_name_of_a_compiler_or_alone_in_its_program() -> None:
    steps = [step("fast_math", "void rows<64>(float*)")]
    assert tried_here(steps, STATE, ["rows<128>", "two"]) == {("fast_math", "rows")}
    assert tried_here(steps, STATE, ["online_rows"]) == {("fast_math", "")}


@pytest.mark.parametrize(
    ("targets", "settled"),
    [
        ({"register_tiling": "two", "fast_math": "one"}, ("fast_math",)),
        ({"register_tiling": "one"}, ("fast_math", "register_tiling")),
        ({}, ("fast_math", "register_tiling")),
    ],
)
def test_what_a_rewrite_can_do_to_another_kernel_is_not_settled(
    targets: dict[str, str], settled: tuple[str, ...]
) -> None:
    tries = frozenset({("register_tiling", "one"), ("fast_math", "one")})
    assert _settled(tries, targets) == settled


def test_what_was_tried_on_no_kernel_by_name_is_settled() -> None:
    assert _settled(frozenset({("split_k", "")}), {"split_k": "two"}) == ("split_k",)
