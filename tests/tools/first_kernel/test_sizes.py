"""Sizes as formulas over a task's constants: one that holds in all variants that are known."""

from __future__ import annotations

from collections.abc import Sequence

import graph_support
import pytest

from kernelblaster.harness.records.tasks import Task
from kernelblaster.harness.records.tensors import TensorSpec
from kernelblaster.tools.first_kernel.kernels.source import _bytes
from kernelblaster.tools.first_kernel.program.arrays import Storage
from kernelblaster.tools.first_kernel.program.sizes import Sizes
from kernelblaster.tools.first_kernel.program.values import CannotWrite


def task(full: Sequence[int], small: Sequence[int]) -> Task:
    """A task of one tensor with these shapes."""
    base = graph_support.text_task()
    variants = {
        name: base.full.model_copy(
            update={"name": name, "dimensions": {},
                    "tensors": (TensorSpec(name="x", shape=tuple(shape), dtype="float32",
                                           role="input"),)}
        )
        for name, shape in (("full", full), ("verify", small))
    }  # fmt: skip
    return base.model_copy(update=variants)


FULL = (3, 224)
SMALL = ((2, 199), (3, 64), (4, 233), (5, 272))
"""Two variants tell the sizes of a chain that is halved five times, or more."""


def chain(size: int) -> list[int]:
    found = []
    for _ in range(5):
        size = (size + 1) // 2
        found.append(size)
    return found


def test_what_is_halved_again_and_again_is_told_by_four_variants() -> None:
    tasks = [task(FULL, small) for small in SMALL]
    sizes = Sizes(tasks[2], [tasks[0], tasks[1], tasks[3]])
    order = (SMALL[2], SMALL[0], SMALL[1], SMALL[3])
    columns = zip(chain(FULL[1]), *(chain(small[1]) for small in order), strict=True)
    names = [sizes.of(full, verify, tuple(rest)).text for full, verify, *rest in columns]
    assert sizes.declarations[0] == "constexpr long long SIZE_0 = (X_SIZE_1 + 1) / 2;"
    assert sizes.declarations[1:] == [
        f"constexpr long long SIZE_{at + 1} = (SIZE_{at} + 1) / 2;" for at in range(4)
    ]
    assert names == [f"SIZE_{at}" for at in range(5)]


def test_of_two_constants_with_one_pair_that_is_taken_which_is_right_elsewhere() -> None:
    one, other = task((16, 16, 9), (8, 8, 4)), task((16, 16, 9), (4, 12, 5))
    sizes = Sizes(one, [other])
    assert sizes.of(16, 8, (12,)).text == "X_SIZE_1" and sizes.of(16, 8, (4,)).text == "X_SIZE_0"
    assert sizes.of(16, 8).text == "X_SIZE_0"
    twice = sizes.of(32, 16, (24,))
    assert twice.text == "SIZE_0" and sizes.declarations[-1].endswith("= X_SIZE_1 * 2;")


def test_a_number_without_a_formula_is_chosen_in_each_variant() -> None:
    one, other = task((64, 9), (32, 4)), task((64, 9), (16, 5))
    assert Sizes(one).chosen("1", "2") == "X_SIZE_0 == 64 ? 1 : 2"
    told = Sizes(one, [other]).chosen("1", "2", "3")
    assert told == "X_SIZE_0 == 64 ? 1 : X_SIZE_0 == 32 ? 2 : 3"


def test_what_only_a_further_variant_tells_from_a_number_is_refused() -> None:
    sizes = Sizes(task((64,), (32,)), [task((64,), (16,))])
    with pytest.raises(CannotWrite, match="7 in two variants"):
        sizes.of(7, 7, (8,))
    assert sizes.of(7, 7, (7,)).text == "7"


def test_results_that_share_a_place_get_room_for_the_largest_in_any_variant() -> None:
    one, other = task((16, 20), (4, 8)), task((16, 20), (20, 10))
    for beside, text in (((), "X_SIZE_1 * 4"),
                         ((other,), "larger(X_SIZE_0 * 4, X_SIZE_1 * 4)")):  # fmt: skip
        sizes = Sizes(one, beside)
        others = (20,), (10,)
        found = _bytes(
            [Storage("a", "float32", sizes.of(16, 4, others[0] if beside else ())),
             Storage("b", "float32", sizes.of(20, 8, others[1] if beside else ()))], sizes,
        )  # fmt: skip
        assert text in found and ("larger" in found) == bool(beside)


def test_a_computed_number_keeps_the_name_that_is_right_elsewhere() -> None:
    one, other = task((16, 16, 9), (8, 8, 4)), task((16, 16, 9), (4, 12, 5))
    sizes = Sizes(one, [other])
    assert sizes.named(sizes.of(16, 8, (12,))).text == "X_SIZE_1"
    assert sizes.named(sizes.of(16, 8, (4,))).text == "X_SIZE_0"
