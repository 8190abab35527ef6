"""Numbers that a source names: found and changed, and nothing else of the text."""

from __future__ import annotations

import pytest

from kernelblaster.tools.rewriting.source.named_constants import (
    name_of,
    named_numbers,
    neighbours,
    with_numbers,
)

SOURCE = """#include "task.cuh"
#define TILE 32  // side
constexpr int kThreads = 256;
static const unsigned WIDTH = 4u;
constexpr int HALF = kThreads / 2;
template <int STAGES = 3, typename T = float>
__global__ void k(float* o) { constexpr int DEPTH = 0x10; o[0] = TILE; int n = 7; }
__global__ void g(float* o) { const int DEPTH_2 = 2; }
__global__ void h(float* o) { const int DEPTH_2 = 4; }
"""


def test_only_whole_numbers_that_are_named_once_are_found() -> None:
    """Not what is computed of others, a variable, or a name that two kernels give."""
    assert named_numbers(SOURCE) == {
        "TILE": 32, "kThreads": 256, "WIDTH": 4, "STAGES": 3, "DEPTH": 16,
    }  # fmt: skip


def test_nothing_but_the_number_changes() -> None:
    changed = with_numbers(SOURCE, {"TILE": 64, "STAGES": 2, "WIDTH": 8, "DEPTH": 32})
    expected = SOURCE.replace("TILE 32 ", "TILE 64 ").replace("STAGES = 3", "STAGES = 2")
    assert changed == expected.replace("4u", "8u").replace("0x10", "32")
    with pytest.raises(KeyError):
        with_numbers(SOURCE, {"HALF": 1})


@pytest.mark.parametrize(
    ("parameter", "name"),
    [("tile", "TILE"), ("threads", "kThreads"), ("Stages", "STAGES"), ("block", None)],
)
def test_a_parameter_is_found_under_the_name_that_a_source_gives_it(
    parameter: str, name: str | None
) -> None:
    assert name_of(parameter, list(named_numbers(SOURCE))) == name
    assert name_of("tile", ["TILE", "kTile"]) is None, "which of them is meant?"


@pytest.mark.parametrize(
    ("value", "listed", "expected"),
    [
        (32, (64, 16, 32), (16, 64)), (16, (64, 16, 32), (32,)), (24, (16, 32), (16, 32)),
        (3, (), (2, 4)), (1, (), (2,)), (128, (), (64, 256)),
    ],
)  # fmt: skip
def test_neighbours_are_of_the_list_or_powers_of_two(
    value: int, listed: tuple[int, ...], expected: tuple[int, ...]
) -> None:
    assert neighbours(value, listed) == expected
