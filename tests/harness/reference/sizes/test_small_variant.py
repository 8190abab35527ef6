"""The search for a small variant: what scales is scaled, what must stay is kept."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kernelblaster.harness.reference.sizes.small_variant import (
    MOST_TRIALS,
    Cost,
    Search,
    Values,
    shrunk,
    shrunk_apart,
)
from kernelblaster.harness.task.dimensions import Dimension


def searched(
    own: Values,
    elements: Callable[[Values], int | None],
    literals: Values | None = None,
    **chosen: int,
) -> tuple[Values, Cost, int]:
    """Search with a made-up task of so many elements; None where it would fail."""
    literals = literals or {}
    asked = 0

    def cost(values: Values) -> Cost | None:
        count = elements(own | literals | values)
        return None if count is None else Cost(given=count, kept=0, work=count)

    def trial(values: Values) -> Cost | None:
        nonlocal asked
        asked += 1
        return cost(values)

    full = cost({})
    assert full is not None
    named = {name: Dimension(name, value, "module") for name, value in own.items()}
    inner = {name: Dimension(name, value, "literal") for name, value in literals.items()}
    search = Search(named, inner, chosen, full, trial)
    search.run()
    return own | literals | search.values, search.cost, asked


def test_what_is_small_stays_as_it_is() -> None:
    assert searched({"N": 64}, lambda v: v["N"]) == ({"N": 64}, Cost(given=64, kept=0, work=64), 0)


def test_different_sizes_stay_different_and_kernels_as_they_are() -> None:
    own = {"batch_size": 64, "rows": 4096, "columns": 8192, "kernel_size": 300}
    found, cost, _ = searched(own, lambda v: v["rows"] * v["columns"])
    assert cost.small and found["kernel_size"] == 300
    assert found["rows"] == 128 and found["columns"] == 256


@pytest.mark.parametrize(
    ("own", "tensors", "left"),
    [
        ({"N": 1 << 30}, 3, {"N": 4096}),  # 128 are less than a block.
        ({"N": (1 << 22) + 37}, 2, {"N": 4096 + 37}),
        ({"N": 1 << 20, "kernel_size": 3}, 2, {"N": 4096}),
        ({"N": 1 << 20}, 64, {"N": 128}),  # Sixty-four such lines are enough work as it is.
        ({"rows": 1 << 20, "columns": 1 << 10}, 1, {"rows": 256, "columns": 128}),
        ({"N": 1 << 20, "small": 100}, 2, {"N": 4096, "small": 100}),
    ],
)
def test_a_size_that_alone_can_be_shrunk_is_left_several_blocks(
    own: Values, tensors: int, left: Values
) -> None:
    def elements(values: Values) -> int:
        return tensors * values.get("N", values.get("rows", 0) * values.get("columns", 0))

    found, cost, _ = searched(own, elements)
    assert cost.small and found == own | left


def test_batches_shrink_before_channels() -> None:
    own = {"batch_size": 128, "channels": 64, "height": 128, "width": 128}
    found, cost, _ = searched(
        own, lambda v: 2 * v["batch_size"] * v["channels"] * v["height"] * v["width"]
    )
    assert cost.small and found["batch_size"] < found["channels"]


@pytest.mark.parametrize(("name", "small"), [("batch_size", 8), ("rows", 16)])
def test_what_cannot_be_smaller_stays_and_the_rest_goes_on(name: str, small: int) -> None:
    def elements(v: Values) -> int | None:
        return v[name] * v["image"] * v["image"] if v["image"] == 224 else None

    found, cost, asked = searched({name: 1024, "image": 224}, elements)
    assert cost.small and found["image"] == 224 and found[name] == small
    assert asked <= MOST_TRIALS


def test_sizes_that_belong_together_shrink_together() -> None:
    def elements(v: Values) -> int | None:
        fits = v["out"] % v["num_groups"] == 0 and v["width"] == v["out"]
        return v["rows"] * v["out"] if fits else None

    own = {"rows": 8192, "out": 8192, "width": 8192, "num_groups": 48 * 4}
    found, cost, _ = searched(own | {"out": 192 * 48, "width": 192 * 48}, elements)
    assert cost.small and found["out"] == found["width"] and found["out"] % 192 == 0


def test_channels_in_the_classes_are_divided_by_one_number() -> None:
    def elements(v: Values) -> int | None:
        consistent = v["literal_512"] == 4 * v["literal_128"]
        return v["literal_512"] * v["literal_128"] * 64 if consistent else None

    found, cost, _ = searched({"N": 2}, elements, {"literal_512": 512, "literal_128": 128})
    assert cost.small and found["literal_512"] == 4 * found["literal_128"] < 512


def test_channels_that_cannot_be_divided_together_are_divided_alone() -> None:
    def elements(v: Values) -> int | None:
        return v["literal_1026"] * 1500 if v["literal_30"] == 30 else None

    # None is a multiple of 4: what cannot even be tried is no success.
    found, cost, _ = searched({"N": 2}, elements, {"literal_1026": 1026, "literal_30": 30})
    assert cost.small and found["literal_1026"] == 513


def test_what_a_person_chose_stays() -> None:
    own = {"rows": 4096, "columns": 8192}
    found, cost, _ = searched(own, lambda v: v["rows"] * v["columns"], rows=3000)
    assert cost.small and found["rows"] == 3000 and found["columns"] < 8192
    found, cost, asked = searched(
        own, lambda v: v["rows"] * v["columns"], rows=3000, columns=8000
    )
    assert found == {"rows": 3000, "columns": 8000} and asked == 1


def test_shrunk_keeps_small_values_and_remainders() -> None:
    assert [shrunk(v) for v in (1, 128, 160, 161, 255, 256, 4096, 4097, 4099)] == [
        1, 128, 160, 161, 255, 128, 128, 129, 131,
    ]  # fmt: skip


@given(st.dictionaries(st.sampled_from("ABCDEF"), st.integers(1, 1 << 20), min_size=1),
       st.sampled_from([128, 64, 32, 16]))  # fmt: skip
def test_shrinking_apart_keeps_equality_and_alignment(values: dict[str, int], base: int) -> None:
    small = shrunk_apart(values, base)
    for a in values:
        assert 1 <= small[a] <= values[a]
        for b in values:
            if values[a] == values[b]:
                assert small[a] == small[b]
            elif max(values[a], values[b]) > 8 * base:
                assert small[a] != small[b]
        if small[a] != values[a]:
            assert small[a] % base == values[a] % base
