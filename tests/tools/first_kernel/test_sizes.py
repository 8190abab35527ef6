"""Sizes as formulas over a task's constants: one that holds in all variants that are known."""

from __future__ import annotations

from collections.abc import Sequence

import graph_support
import pytest

from kernelblaster.harness.records.tasks import Task
from kernelblaster.harness.records.tensors import TensorSpec
from kernelblaster.tools.first_kernel.kernels.source import _bytes
from kernelblaster.tools.first_kernel.program.arrays import Storage
from kernelblaster.tools.first_kernel.program.orders import never_more
from kernelblaster.tools.first_kernel.program.sizes import (
    Sizes,
    ceil_div,
    count,
    literal,
    slid,
    times,
)


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


def test_what_only_a_further_variant_tells_from_a_number_is_a_size() -> None:
    """Widths that were rounded to multiples are the same in many variants, not in all."""
    sizes = Sizes(task((64, 16), (32, 16)), [task((64, 16), (16, 8)), task((64, 16), (48, 16))])
    assert sizes.of(16, 16, (8, 16)).text == "X_SIZE_1" and sizes.of(16, 16, (16, 16)).text == "16"
    six = sizes.of(96, 96, (48, 96))
    assert sizes.formulas[six.text] == "X_SIZE_1 * 6"
    assert six.same_as(times(literal(6), sizes.of(16, 16, (8, 16))))
    assert not six.same_as(literal(96)) and not six.is_number


def test_a_quotient_that_is_rounded_is_a_number_of_numbers_alone() -> None:
    sizes = Sizes(task((48, 33), (36, 40)), [task((48, 33), (40, 35))])
    width, other = sizes.of(48, 36, (40,)), sizes.of(33, 40, (35,))
    tiles = ceil_div(width, 16)
    assert tiles.is_always(3) and tiles.text == "(X_SIZE_0 + 15) / 16"
    assert count([other, tiles]).text == "X_SIZE_1 * ((X_SIZE_0 + 15) / 16)"
    assert sizes.named(tiles).text == "SIZE_0" and not sizes.named(tiles).is_number
    assert ceil_div(literal(48), 16) == literal(3)


def test_how_a_half_is_rounded_is_taken_from_what_halves() -> None:
    """The sizes of all variants may be even: what a window does to odd ones is its rule."""
    sizes = Sizes(task((64,), (32,)), [task((64,), (48,))])
    size = sizes.of(64, 32, (48,))
    for window, offset, text in ((3, 3, "X_SIZE_0 / 2"), (3, 4, "(X_SIZE_0 + 1) / 2"),
                                 (2, 2, "X_SIZE_0 / 2"), (1, 2, "(X_SIZE_0 + 1) / 2")):  # fmt: skip
        (found,) = sizes.dims([32], [16], [24], likely=[slid(size, literal(window), offset, 2)])
        assert sizes.formulas.get(found.text, found.text) == text
    (same,) = sizes.dims([62], [30], [46], likely=[slid(size, literal(3), 1, 1)])
    assert sizes.formulas[same.text] == "X_SIZE_0 - 2"
    (other,) = sizes.dims([128], [64], [96], likely=[slid(size, literal(3), 1, 1)])
    assert sizes.formulas[other.text] == "X_SIZE_0 * 2"


FORMULAS = {"SIZE_0": "(X_SIZE_1 + 1) / 2", "SIZE_1": "SIZE_0 / 2", "SIZE_2": "N * SIZE_0",
            "SIZE_3": "X_SIZE_1 + 1"}  # fmt: skip


@pytest.mark.parametrize("one, other, told", [
    ("(N * C) * 4", "((N * C) * H) * 4", True), ("((N * C) * H) * 4", "(N * C) * 4", False),
    ("N * C", "C * N", True), ("N * C", "N * D", False), ("N * SIZE_1", "SIZE_2", True),
    ("SIZE_1 * SIZE_1", "SIZE_0 * X_SIZE_1", True), ("SIZE_0 * 2", "X_SIZE_1", False),
    ("SIZE_3", "X_SIZE_1", False), ("A - B", "A", False), ("A - B", "A - B", True),
    ("SIZE_1 * SIZE_1", "SIZE_0 * N", False),
])  # fmt: skip
def test_of_two_products_one_is_never_the_larger(one: str, other: str, told: bool) -> None:
    assert never_more(one, other, FORMULAS) is told


def test_results_that_share_a_place_get_room_for_the_largest_at_any_sizes() -> None:
    """One may be the larger in all variants that are known, and not in the next."""
    sizes = Sizes(task((16, 20), (4, 8)))
    rows, columns = sizes.of(16, 4), sizes.of(20, 8)
    stored = {
        name: Storage(name, "float32", size)
        for name, size in (("a", rows), ("b", columns), ("c", times(rows, columns)))
    }
    assert "larger(X_SIZE_0 * 4, X_SIZE_1 * 4)" in _bytes([stored["a"], stored["b"]], sizes)
    for order in ("ac", "ca", "abc", "cba"):
        found = _bytes([stored[name] for name in order], sizes)
        assert "larger" not in found and "X_SIZE_0 * X_SIZE_1" in found


def test_a_computed_number_keeps_the_name_that_is_right_elsewhere() -> None:
    one, other = task((16, 16, 9), (8, 8, 4)), task((16, 16, 9), (4, 12, 5))
    sizes = Sizes(one, [other])
    assert sizes.named(sizes.of(16, 8, (12,))).text == "X_SIZE_1"
    assert sizes.named(sizes.of(16, 8, (4,))).text == "X_SIZE_0"
