"""Sizes of a reference: found wherever they stand, named, and set."""

from __future__ import annotations

import ast
from typing import Any

from kernelblaster.harness.task.dimensions import (
    find_dimensions,
    find_literals,
    with_dimensions,
)

SOURCE = """
A = 4096
B: int = 2 * 1024 + 1
C = D = 16
E, F = 1 << 4, -3
G = A * 2
H = 1
H = 2
I = 5
I += 1
J = True
K = 2.5
L, M = f()
N = "x"
O = 7 // 0
def f():
    P = 9
"""


def values(source: str) -> dict[str, int]:
    return {name: each.value for name, each in find_dimensions(ast.parse(source)).items()}


def ran(source: str, dimensions: dict[str, int]) -> dict[str, Any]:
    names: dict[str, Any] = {}
    exec(compile(with_dimensions(ast.parse(source), dimensions), "x", "exec"), names)
    return names


def test_integers_set_once_are_found() -> None:
    assert values(SOURCE) == {
        "A": 4096, "B": 2049, "C": 16, "D": 16, "E": 16, "F": -3,
    }  # fmt: skip


def test_values_are_replaced_and_others_follow() -> None:
    source = "A = 4096\nB, C = 2, 3\nD = A * B\nE = F = 8\n"
    tree = with_dimensions(ast.parse(source), {"A": 5, "C": 7, "F": 1})
    names: dict[str, int] = {}
    exec(compile(tree, "x", "exec"), names)
    assert {name: names[name] for name in "ABCDEF"} == {
        "A": 5, "B": 2, "C": 7, "D": 10, "E": 8, "F": 1,
    }  # fmt: skip


WHEREVER = """
shape = (16, 3, (224, 1))
hidden = [1024] * 4
sizes = {"wide": 96}

class Model:
    def __init__(self, features, groups, width=64, depths=(2, 6)):
        self.w = f(512, 512 * 4, 8)

    def forward(self, image, mask):
        return image.view(-1, 512)

def get_inputs():
    n = 40
    late = rand(n, 7)
    return [rand(shape[0], 3, 200).half(), rand((n, 5)), late, 9]

def get_init_inputs():
    return [128, shape[1]]
"""


def test_sizes_are_found_wherever_they_stand() -> None:
    assert values(WHEREVER) == {
        "shape_0": 16, "shape_1": 3, "shape_2_0": 224, "hidden_0": 1024,
        "sizes_wide": 96, "n": 40, "late_1": 7, "image_1": 3, "image_2": 200, "mask_1": 5,
        "features": 128, "width": 64, "depths_0": 2, "depths_1": 6,
    }  # fmt: skip
    assert [*find_literals(ast.parse(WHEREVER))] == ["literal_512"]


def test_sizes_are_set_where_they_stand() -> None:
    model = "class Model:\n    def __init__(self, d=64):\n        self.d = d, 512 + 512\n"
    given = "def get_inputs():\n    return [(shape[0], 40)]\n"
    names = ran(f"shape = (16, 3)\n{model}{given}",
                {"shape_0": 2, "d": 8, "literal_512": 4, "input0_1": 5, "nothing": 1})  # fmt: skip
    assert names["shape"] == (2, 3)
    assert names["Model"]().d == (8, 8)
    assert names["get_inputs"]() == [(2, 5)]


def test_sizes_of_one_name_are_told_apart() -> None:
    source = "n = 64\ndef get_init_inputs():\n    n = 32\n    return [n, n]\n"
    assert values(source) == {"n": 64, "n_2": 32}
    names = ran(source, {"n_2": 7})
    assert names["n"] == 64 and names["get_init_inputs"]() == [7, 7]
